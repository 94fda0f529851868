// Words for people: matched words marked, ages, numbers, titles.

import { h } from "./dom.js";

const UNSPACED = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]+$/u;
const LONGEST_TITLE = 140;

/** The text as nodes, with these words in <mark>: the server says which words of the results match. */
export function marked(text, words) {
  if (!words.length) return [text];
  return text.split(pattern(words)).map((part, at) => (at % 2 ? h("mark", null, part) : part));
}

/** Whole words; of scripts without spaces also parts of a run. */
function pattern(words) {
  const any = (some) => some.sort((x, y) => y.length - x.length).map((word) => RegExp.escape?.(word)
    ?? word.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")).join("|") || "(?!)";
  const spaced = any(words.filter((word) => !UNSPACED.test(word)));
  const runs = any(words.filter((word) => UNSPACED.test(word)));
  return new RegExp(`((?<![\\p{L}\\p{N}])(?:${spaced})(?![\\p{L}\\p{N}])|${runs})`, "giu");
}

/** A record's title, else its first words. */
export function titleOf(record) {
  const text = (record.title || record.text || record.id).slice(0, 4 * LONGEST_TITLE).trim().replace(/\s+/g, " ");
  return clip(plain(text), LONGEST_TITLE);
}

/** The text with what would turn its letters round made visible: gnp.exe must not look like exe.png. */
export function plain(text) {
  return text.replace(/[\u202d\u202e]/g, "\ufffd");
}

/** A snippet of Markdown in plain words: its marks are for the whole note, where they are rendered. */
export function unmarked(text) {
  return text
    .replace(/(^|\s)(?:`{3,}|~{3,})[\w+-]*(?=\s|$)/g, "$1") // a fence, with the language of its code
    .replace(/(^|\s)#{1,6}\s+/g, "$1")
    .replace(/(^|[.:;!?…]\s+)[-*+]\s+(?=\S)/g, "$1• ") // elsewhere it may be a minus or a plus
    .replace(/!?\[\[(?:[^\][|]*\|)?([^\][|]*)\]\]/g, "$1")
    .replace(/!?\[([^\]]*)\]\([^)\s]*\)/g, "$1")
    .replace(/(\*\*|__|~~|`+)(\S(?:.*?\S)?)\1/g, "$2")
    .replace(/(^|[\s(])[*_](\S(?:.*?\S)?)[*_](?=[\s).,;:!?]|$)/g, "$1$2")
    .replace(/\|(\s*:?-+:?\s*\|)+/g, " ")
    .replace(/^\s*\|\s+|\s*\|\s+\|\s*/g, " • ") // a row begins, as on the terminal
    .replace(/\s+\|\s*$/, "")
    .replace(/\s*\|\s*/g, " · ");
}

/** Part of a record's text; of Markdown, without its marks. */
export function inWords(text, record) {
  return isMarkdown(record) ? unmarked(text) : text;
}

/** Whether a record's text is Markdown: a fact, or part of a Markdown file or a document. */
export function isMarkdown(record) {
  return !record.path || Boolean(record.place) || /\.(md|markdown|mdown|mkdn?|mdx|qmd|rmd)$/i.test(record.path);
}

/** When it happened, else when it was stored. */
export function timeOf(record) {
  return record.happened_at ?? record.created_at;
}

/** Where a record comes from: the end of its path and its lines or page, or its kind. */
export function placeOf(record) {
  if (record.kind === "turn" && record.author) {
    return `said by ${record.author}${record.place ? ` in “${record.place}”` : ""}`;
  }
  if (!record.path) return record.kind;
  const parts = record.path.split(/[\\/]/);
  const short = parts.length > 3 ? `…/${parts.slice(-2).join("/")}` : record.path;
  if (record.place) return `${short}, ${record.place}`;
  return record.lines ? `${short}:${[...new Set(record.lines)].join("–")}` : short;
}

/** "lines 3–7", or "line 3". */
export function linesOf([first, last]) {
  return first === last ? `line ${first}` : `lines ${first}–${last}`;
}

/** A name short enough for a chip. */
export function clip(name, most = 40) {
  return name.length > most ? `${name.slice(0, most)}…` : name;
}

const STEPS = [[31557600, "y"], [2629800, "mo"], [604800, "w"], [86400, "d"], [3600, "h"], [60, "min"]];

/** How long ago, in one short word. */
export function age(iso) {
  const seconds = (Date.now() - Date.parse(iso)) / 1000;
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 0) return "in the future";
  const step = STEPS.find(([size]) => seconds >= size);
  return step ? `${Math.floor(seconds / step[0])} ${step[1]} ago` : "just now";
}

/** A number with as many places as tell something. */
export function number(value, places = 2) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) < 0.1 && value !== 0 ? value.toPrecision(3) : value.toFixed(places);
}

const OWN = ["keyword", "vector", "hyde"];

/** The class that gives a source its colour; outside sources share three. */
export function sourceClass(name) {
  if (OWN.includes(name)) return `source-${name}`;
  let sum = 0;
  for (const letter of name) sum += letter.codePointAt(0);
  return `source-other-${sum % 3}`;
}
