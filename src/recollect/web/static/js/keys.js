// Keys: one table for the handlers' help, and a listener that leaves fields alone.

import { button, h } from "./dom.js";

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

/** Calls the handler of a key that is pressed outside a field; gives back what ends it. */
export function listen(handlers) {
  const hear = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (typing(event) || document.querySelector("dialog[open]")) return;
    const handler = handlers[event.key];
    if (!handler || handler(event) === false) return;
    event.preventDefault();
  };
  document.addEventListener("keydown", hear);
  return () => document.removeEventListener("keydown", hear);
}

/** The keys that there are, in a dialog. */
export function showKeys() {
  const close = () => dialog.remove();
  const rows = KEYS.map(([keys, does]) => [
    h("dt", null, keys.split(" ").map((one) => (one === "or" ? " or " : h("kbd", null, one)))), h("dd", null, does)]);
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "keys-title", on: { close } },
    h("h2", { id: "keys-title" }, "Keys"),
    h("dl", { class: "keys" }, rows),
    h("div", { class: "dialog-buttons" },
      button("Close", () => dialog.close())));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
}

/** Whether the key is the field's own: any key in a text, the arrows on a slider or a choice. */
function typing(event) {
  const field = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (!field) return false;
  return !field.matches("[type=checkbox], [type=radio], [type=range]") || event.key.startsWith("Arrow");
}
