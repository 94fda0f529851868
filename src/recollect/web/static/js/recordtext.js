// A record's text as it was written, where it is not rendered: nothing in it reaches beyond its box.

import { h, replace } from "./dom.js";
import { count } from "./moments.js";

const AT_ONCE = 40000;
const SHORT = 400;
const TURNED =
  "This holds invisible marks that turn the direction of writing: it may read otherwise than it is stored.";
const MARKS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** The whole text with its line breaks; of a very long one the head, and a button for the rest. */
export function recordText({ text, title = "" }) {
  const alone = !title && text.length < SHORT ? " alone" : "";
  const body = h("div", { class: `record-text${alone}${endless(text)}`, dir: "auto" }, text.slice(0, AT_ONCE));
  const whole = () => {
    replace(body, text);
    more.remove();
    body.tabIndex = -1;
    body.focus();
  };
  const more = h(
    "button",
    { type: "button", class: "button", on: { click: whole } },
    `Show all ${count(text.length)} characters`,
  );
  return [hasMarks(title + text) ? h("p", { class: "note" }, TURNED) : null, body, text.length > AT_ONCE ? more : null];
}

/** Whether a text can be rendered: it is not very long, and nothing in it turns the direction of writing. */
export function readable({ text, title = "" }) {
  return text.length <= AT_ONCE && !hasMarks(title + text) && !endless(text);
}

/** The class of a text with a word of hundreds of letters, whose kerning would take a browser minutes to break. */
export function endless(text) {
  return /\S{300}/.test(text) ? " endless" : "";
}

function hasMarks(text) {
  return text.search(MARKS) >= 0;
}

/** A name for a record: its title, else the beginning of its text; without marks that could turn it round. */
export function nameOf(record, most = 90) {
  const words = (record.title || record.text || "")
    .slice(0, 4 * most)
    .replace(MARKS, "")
    .replace(/\s+/g, " ")
    .trim();
  return words.length > most ? `${words.slice(0, most).trimEnd()}…` : words || "(no text)";
}

/** The address of a record's page. */
export function recordHash(id) {
  return `#/record/${encodeURIComponent(id)}`;
}

/** A record's path under the API. */
export function recordPath(kind, id) {
  return `/v1/${kind}/${encodeURIComponent(id)}`;
}
