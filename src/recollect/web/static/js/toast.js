// Messages in a corner about what has just been done, with a way back: a button, `u`, or Ctrl+Z outside fields.

import { h } from "./dom.js";
import { isTaken } from "./keys.js";
import { errorText } from "./notice.js";

const STAYS_MS = 9000;
const MOST = 3;

const shown = [];
const region = h("div", { class: "toasts", role: "region", "aria-label": "Messages", "aria-live": "polite" });
document.body.append(region);
document.addEventListener("keydown", undoByKey);

/** Shows a message; `undo` is called once when asked for; `link` is {href, text}; `kind` "error" is read out at once. */
export function toast(message, { undo = null, kind = "info", link = null } = {}) {
  const entry = { undo, timer: null };
  const close = () => remove(entry);
  const undoing = { type: "button", class: "button toast-undo", "aria-keyshortcuts": "u Control+Z",
    on: { click: () => takeBack(entry) } };
  const closing = { type: "button", class: "toast-close", "aria-label": "Close this message", on: { click: close } };
  entry.element = h("div", { class: `toast toast-${kind}`, role: kind === "error" ? "alert" : null },
    h("p", { class: "toast-words", dir: "auto" }, message),
    link ? h("a", { class: "toast-link", href: link.href, on: { click: close } }, link.text) : null,
    undo ? h("button", undoing, "Undo", h("kbd", { "aria-hidden": "true" }, "u")) : null,
    h("button", closing, "×"));
  region.append(entry.element);
  shown.push(entry);
  while (shown.length > MOST) remove(shown[0]);
  removeLater(entry);
}

/** Does something; an error is shown as a message. */
export async function attempt(work) {
  try {
    await work();
  } catch (error) {
    toast(errorText(error), { kind: "error" });
  }
}

/** A message stays while it is read: the clock stops under the pointer and while something in it has the focus. */
function removeLater(entry) {
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
  await attempt(async () => toast((await undo()) ?? "Undone."));
}

function remove(entry) {
  clearTimeout(entry.timer);
  const at = shown.indexOf(entry);
  if (at >= 0) shown.splice(at, 1);
  entry.element.remove();
}

function undoByKey(event) {
  const plain = event.key === "u" && !event.ctrlKey && !event.metaKey && !event.altKey;
  const usual = event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey;
  if (!(plain || usual) || isTaken(event)) return;
  const latest = shown.findLast((entry) => entry.undo);
  if (!latest) return;
  event.preventDefault();
  takeBack(latest);
}
