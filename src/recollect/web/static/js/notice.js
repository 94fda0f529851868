// Errors as text and as elements.

import { button, h } from "./dom.js";

/** A sentence as nodes; text in backticks becomes code. */
export function phrase(text) {
  return text.split("`").map((part, at) => (at % 2 ? h("code", null, part) : part));
}

/** What went wrong and what to do about it, in one line. */
export function errorText(error) {
  return [error.message, error.hint].filter(Boolean).join(" ");
}

/** Whether the same request may succeed later: it was not refused for its content. */
export function mayPass(error) {
  return error.status >= 500 || error.code === "timeout" || error.code === "busy";
}

/** An error with its hint, and a button to try again where `again` is given. */
export function failure(error, again) {
  return h("div", { class: "notice error", role: "alert" },
    h("p", { class: "notice-title" }, phrase(error.message || String(error))),
    error.hint ? h("p", { class: "quiet" }, phrase(error.hint)) : null,
    error.status >= 500 && error.requestId ? h("p", { class: "faint mono" }, `request ${error.requestId}`) : null,
    again ? button("Try again", again) : null);
}
