// What has just been done, said in a corner, with a way back: a button, `u`, or Ctrl+Z outside fields.

import { h } from "./dom.js";

const STAYS_MS = 9000;
const MOST = 3;

const shown = [];
let region = null;

/** Says `message`; `undo` is called once when asked for; `link` is {href, text}; `kind` "error" is said at once. */
export function toast(message, { undo = null, kind = "info", link = null } = {}) {
  const entry = { undo, timer: null };
  const close = () => remove(entry);
  entry.element = h(
    "div",
    { class: `toast toast-${kind}`, role: kind === "error" ? "alert" : null },
    h("p", { class: "toast-words", dir: "auto" }, message),
    link ? h("a", { class: "toast-link", href: link.href, on: { click: close } }, link.text) : null,
    undo
      ? h(
          "button",
          {
            type: "button",
            class: "button toast-undo",
            "aria-keyshortcuts": "u Control+Z",
            on: { click: () => takeBack(entry) },
          },
          "Undo",
          h("kbd", { "aria-hidden": "true" }, "u"),
        )
      : null,
    h(
      "button",
      { type: "button", class: "toast-close", "aria-label": "Close this message", on: { click: close } },
      "×",
    ),
  );
  place().append(entry.element);
  shown.push(entry);
  while (shown.length > MOST) remove(shown[0]);
  keep(entry);
  return close;
}

/** Stays while it is read: the clock stops under the pointer and while something in it has the focus. */
function keep(entry) {
  const begin = () => {
    clearTimeout(entry.timer);
    entry.timer = setTimeout(() => remove(entry), STAYS_MS);
  };
  const wait = () => clearTimeout(entry.timer);
  const unlessHeld = () => {
    if (!entry.element.matches(":hover, :focus-within")) begin();
  };
  entry.element.addEventListener("pointerenter", wait);
  entry.element.addEventListener("focusin", wait);
  entry.element.addEventListener("pointerleave", unlessHeld);
  entry.element.addEventListener("focusout", () => setTimeout(unlessHeld));
  begin();
}

async function takeBack(entry) {
  const { undo } = entry;
  if (!undo) return;
  entry.undo = null;
  const held = entry.element.contains(document.activeElement);
  remove(entry);
  if (held) document.querySelector("main")?.focus();
  try {
    const said = await undo();
    toast(typeof said === "string" ? said : "Undone.");
  } catch (error) {
    toast([error.message, error.hint].filter(Boolean).join(" "), { kind: "error" });
  }
}

function remove(entry) {
  clearTimeout(entry.timer);
  const at = shown.indexOf(entry);
  if (at >= 0) shown.splice(at, 1);
  entry.element.remove();
}

function place() {
  if (!region?.isConnected) {
    region = h("div", { class: "toasts", role: "region", "aria-label": "Messages", "aria-live": "polite" });
    document.body.append(region);
    document.addEventListener("keydown", onKey);
  }
  return region;
}

place();

function onKey(event) {
  const plain = event.key === "u" && !event.ctrlKey && !event.metaKey && !event.altKey;
  const usual = event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey;
  if (!(plain || usual) || event.defaultPrevented || typing(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  const latest = shown.findLast((entry) => entry.undo);
  if (!latest) return;
  event.preventDefault();
  takeBack(latest);
}

/** Whether the keys belong to what has the focus. */
function typing(target) {
  const fields = "input:not([type=checkbox], [type=radio], [type=range]), textarea, select, [contenteditable]";
  return target instanceof Element && target.closest(fields) !== null;
}
