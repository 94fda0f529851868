// Keys: their help, a listener that leaves fields alone, and the command palette (Ctrl+K).

import { button, h, replace } from "./dom.js";

const KEYS = [
  ["/", "search"],
  ["↓ ↑ or j k", "through the results"],
  ["Enter", "open the record"],
  ["c", "compare two rankings"],
  ["w", "why not…?"],
  ["f r", "filters, ranking"],
  ["e s Del", "edit, supersede, forget the record"],
  ["u or Ctrl+Z", "undo"],
  ["Ctrl+Enter", "store or save"],
  ["Ctrl+K", "all commands"],
  ["?", "these keys"],
  ["Esc", "close, or leave the field"],
];

/** Calls the handler of a key that is pressed outside a field; returns a function that ends it. */
export function listen(handlers) {
  const handle = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTaken(event)) return;
    const handler = handlers[event.key];
    if (!handler || handler(event) === false) return;
    event.preventDefault();
  };
  document.addEventListener("keydown", handle);
  return () => document.removeEventListener("keydown", handle);
}

/** Whether a key is not for the page: a dialog is open, or a field takes any key, or a slider or choice the arrows. */
export function isTaken(event) {
  if (event.defaultPrevented || document.querySelector("dialog[open]")) return true;
  const field = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (!field) return false;
  return !field.matches("[type=checkbox], [type=radio], [type=range]") || event.key.startsWith("Arrow");
}

/** Shows the keys in a dialog. */
export function showKeys() {
  const rows = KEYS.map(([keys, does]) => [
    h("dt", null, keys.split(" ").map((one) => (one === "or" ? " or " : h("kbd", null, one)))), h("dd", null, does)]);
  const dialog = openDialog({ class: "dialog", "aria-labelledby": "keys-title" },
    h("h2", { id: "keys-title" }, "Keys"),
    h("dl", { class: "keys" }, rows),
    h("div", { class: "dialog-buttons" }, button("Close", () => dialog.close())));
}

/** Opens a dialog, which a click beside it closes. */
function openDialog(props, ...inside) {
  const dialog = h("dialog", { ...props, on: { close: () => dialog.remove() } }, inside);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Opens the palette. `commands` are [name, act] pairs; words that name none of them are searched. */
export function palette(commands, search) {
  if (document.querySelector("dialog[open]")) return;
  const list = h("ul", { class: "palette-list", id: "palette-list", role: "listbox", "aria-label": "Commands" });
  const field = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list",
    "aria-autocomplete": "list", "aria-label": "A command, or words to search", placeholder: "Type a command, or search…",
    autocomplete: "off", on: { input: fill, keydown: key } });
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

  const dialog = openDialog({ class: "dialog palette", "aria-label": "Commands" }, field, list);
  fill();
}
