// Through the results by keyboard: the focus is on a result's title, so that Enter opens it.

let opened = null;

/** `first()`, `step(by)`; and back from a record, the focus is on the result that was opened. */
export function walker(place, field) {
  const titles = () => [...place.querySelectorAll(".result-title, .newest a")];
  const to = (title) => {
    title.focus({ preventScroll: true });
    title.closest("li").scrollIntoView({ block: "nearest" });
  };
  place.addEventListener("click", (event) => {
    opened = event.target.closest?.(".result-title")?.closest("[data-id]").dataset.id ?? opened;
  });

  return {
    first() {
      const [title] = titles();
      if (title) to(title);
      return title !== undefined;
    },
    step(by) {
      const all = titles();
      const here = all.findIndex((title) => title.closest("li").contains(document.activeElement));
      if (here + by < 0) field.focus();
      else if (all[here + by]) to(all[here + by]);
      else if (here < 0 && all.length) to(all[0]);
      return all.length > 0;
    },
    expects: () => opened !== null,
    restore() {
      const item = opened && place.querySelector(`[data-id="${CSS.escape(opened)}"]`);
      opened = null;
      if (item) requestAnimationFrame(() => to(item.querySelector(".result-title")));
    },
  };
}
