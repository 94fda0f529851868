// Words for people: matched words marked, ages, numbers, titles.

import { h } from "./dom.js";

const COMMON = new Set(
  ("a an and are as at be but by can did do does for from had has have how i if in into is it its me my not of on " +
    "or our so that the their them then there these they this to was we were what when where which who why will " +
    "with you der die das und ist ein eine wie wo").split(" "),
);
const WORD = /[\p{L}\p{N}]+(?:['’][\p{L}\p{N}]+)*/gu;
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]+/gu;
const LONGEST_TITLE = 140;

/** The text as nodes, with the words of the query in <mark>. */
export function marked(text, query) {
  const wanted = new Set((query.match(WORD) ?? []).filter((word) => !COMMON.has(word.toLowerCase())).map(stem));
  const runs = new Set((query.match(UNSPACED) ?? []).flatMap(pairs));
  const nodes = [];
  let end = 0;
  for (const [from, to] of [...spans(text, wanted), ...occurrences(text, runs)].sort((x, y) => x[0] - y[0])) {
    if (from < end) continue;
    nodes.push(text.slice(end, from), h("mark", null, text.slice(from, to)));
    end = to;
  }
  return [...nodes, text.slice(end)];
}

function* spans(text, wanted) {
  if (!wanted.size) return;
  for (const found of text.matchAll(WORD)) {
    if (wanted.has(stem(found[0]))) yield [found.index, found.index + found[0].length];
  }
}

function* occurrences(text, runs) {
  for (const run of runs) {
    for (let at = text.indexOf(run); at >= 0; at = text.indexOf(run, at + run.length)) yield [at, at + run.length];
  }
}

function pairs(run) {
  return run.length < 2 ? [run] : Array.from({ length: run.length - 1 }, (_, at) => run.slice(at, at + 2));
}

/** Near enough to the server's stemmer to show why a text was found; it decides nothing. */
function stem(word) {
  const low = word.toLowerCase().replace(/['’]s$/, "");
  return low.length < 4 ? low : low.replace(/(?:ies|ied)$/, "y").replace(/(?:ing|ed|es|s|ly|e)$/, "");
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

/** Where a record is shown. */
export function addressOf(record) {
  return `#/record/${encodeURIComponent(record.id)}`;
}

/** When it happened, else when it was stored. */
export function timeOf(record) {
  return record.happened_at ?? record.created_at;
}

/** Where a record comes from: the end of its path and its lines or page, or its kind. */
export function placeOf(record) {
  if (!record.path) return record.kind;
  const parts = record.path.split(/[\\/]/);
  const short = parts.length > 3 ? `…/${parts.slice(-2).join("/")}` : record.path;
  if (record.place) return `${short}, ${record.place}`;
  return record.lines ? `${short}:${record.lines[0]}–${record.lines[1]}` : short;
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

export function milliseconds(value) {
  return value < 10 ? `${value.toFixed(1)} ms` : `${Math.round(value)} ms`;
}

export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

const OWN = ["keyword", "vector", "hyde"];

/** The class that gives a source its colour; outside sources share three. */
export function sourceClass(name) {
  if (OWN.includes(name)) return `source-${name}`;
  let sum = 0;
  for (const letter of name) sum += letter.codePointAt(0);
  return `source-other-${sum % 3}`;
}
