// A field that takes an id or a path, or finds a record by words: a combobox with a list of suggestions.

import { h, replace } from "./dom.js";
import { placeOf, titleOf } from "./words.js";

const SHOWN = 6;
const WAIT_MS = 160;

/** `element`, `focus()`, `show(target)`; `chosen(target)` is called with an id, or what was typed. */
export function picker(view, chosen) {
  const list = h("ul", { class: "suggestions", id: "why-list", role: "listbox", "aria-label": "Records",
    hidden: true });
  const field = h("input", { type: "text", id: "why", role: "combobox", "aria-expanded": "false",
    "aria-controls": "why-list", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false",
    placeholder: "An id, a path, or text of the missing record",
    on: { input: () => soon(), focus: () => soon(), keydown: key, blur: () => setTimeout(hide, 150) } });
  const element = h("div", { class: "picker" }, h("label", { for: "why" }, "Why is this record not in the results?"),
    field, list);
  let offered = [];
  let at = -1;
  let timer = 0;
  let running = null;

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(suggest, WAIT_MS);
  }

  async function suggest() {
    running?.abort();
    const mine = (running = new AbortController());
    const words = field.value.trim();
    try {
      const records = await (words ? search(words, mine.signal) : newest(mine.signal));
      if (mine === running && document.activeElement === field) offer(records);
    } catch {
      if (mine === running) hide(); // suggestions are only a help: the field takes an id or a path without them
    }
  }

  const scoped = () => (view.app.settings.caller.owner ? { any_scope: true } : {});
  const search = async (query, signal) => {
    const body = { query, limit: SHOWN, superseded: true, ...scoped() };
    return (await view.app.api.post("/v1/search", body, { signal })).results;
  };
  const newest = async (signal) =>
    (await view.app.api.get("/v1/records", { limit: SHOWN, ...scoped() }, { signal })).records;

  function offer(records) {
    offered = records;
    at = -1;
    replace(list, records.map((record, place) => h("li", { role: "option", id: `why-${place}`, "aria-selected": "false",
      on: { pointerdown: (event) => {
        event.preventDefault();
        take(record.id);
      } } },
      h("span", { class: "suggestion", dir: "auto" }, titleOf(record)),
      h("span", { class: "quiet" }, h("bdi", null, placeOf(record))))));
    list.hidden = records.length === 0;
    field.setAttribute("aria-expanded", String(records.length > 0));
    field.removeAttribute("aria-activedescendant");
  }

  function hide() {
    running?.abort();
    clearTimeout(timer);
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  }

  function take(target) {
    field.value = target;
    hide();
    chosen(target);
  }

  function move(step) {
    if (list.hidden || !offered.length) return;
    at = (at + step + offered.length + (at < 0 && step < 0 ? 1 : 0)) % offered.length;
    [...list.children].forEach((one, place) => one.setAttribute("aria-selected", String(place === at)));
    list.children[at].scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", `why-${at}`);
  }

  function key(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") move(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Enter") {
      const words = /\s/.test(field.value.trim()); // no id has a space: the nearest record is meant
      if (!list.hidden && offered.length && (at >= 0 || words)) take(offered[Math.max(at, 0)].id);
      else if (field.value.trim()) take(field.value.trim());
    } else if (event.key === "Escape" && !list.hidden) hide();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  return {
    element,
    focus: () => field.focus(),
    show: (target) => {
      if (document.activeElement !== field) field.value = target;
    },
  };
}
