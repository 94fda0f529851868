// The command palette (Ctrl+K): every view and action by name, and what one types searched.

import { h, replace } from "./dom.js";

/** Opens the palette. `commands` are [name, act] pairs; words that name none of them are searched. */
export function palette(commands, search) {
  if (document.querySelector("dialog[open]")) return;
  const list = h("ul", { class: "palette-list", id: "palette-list", role: "listbox", "aria-label": "Commands" });
  const field = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list",
    "aria-autocomplete": "list", "aria-label": "A command, or words to search", placeholder: "Type a command, or search…",
    autocomplete: "off", on: { input: () => fill(), keydown: key } });
  const dialog = h("dialog", { class: "dialog palette", "aria-label": "Commands", on: { close: () => dialog.remove() } },
    field, list);
  let shown = [];
  let at = 0;

  function fill() {
    const words = field.value.trim().toLowerCase();
    shown = commands.filter(([name]) => name.toLowerCase().includes(words));
    if (words) shown.push([`Search for “${field.value.trim()}”`, () => search(field.value.trim())]);
    at = 0;
    paint();
  }

  function paint() {
    replace(list, shown.map(([name, act], place) => h("li", { id: `palette-${place}`, role: "option",
      "aria-selected": String(place === at), on: { click: () => run(act) } }, name)));
    field.setAttribute("aria-activedescendant", `palette-${at}`);
    list.children[at]?.scrollIntoView({ block: "nearest" });
  }

  function run(act) {
    dialog.close();
    act();
  }

  function key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      at = (at + step + shown.length) % shown.length;
      paint();
    } else if (event.key === "Enter" && shown[at]) {
      event.preventDefault();
      run(shown[at][1]);
    }
  }

  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  fill();
  dialog.showModal();
  field.focus();
}
