// Times and sizes as a person reads them: absolute, and beside it how long ago in words.

import { h } from "./dom.js";

const STEPS = [
  ["year", 31557600],
  ["month", 2629800],
  ["week", 604800],
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
];
const EXACT = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const DISTANCE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const NUMBER = new Intl.NumberFormat("en");

/** "14 Mar 2026, 15:09 (8 months ago)", in the reader's own time zone; nothing for nothing. */
export function moment(iso) {
  const at = new Date(iso);
  if (!iso || Number.isNaN(at.getTime())) return iso ? String(iso) : null;
  const age = relative(iso);
  return h("time", { datetime: iso, title: iso }, EXACT.format(at), age ? h("span", { class: "quiet" }, ` (${age})`) : null);
}

/** "3 days ago", "in 2 weeks", "just now". */
export function relative(iso, now = Date.now()) {
  const seconds = (new Date(iso).getTime() - now) / 1000;
  if (Number.isNaN(seconds)) return "";
  const [unit, length] = STEPS.find(([, size]) => Math.abs(seconds) >= size) ?? [];
  return unit ? DISTANCE.format(Math.trunc(seconds / length), unit) : "just now";
}

/** A length of time: "3 days 4 hours", "41 seconds". */
export function lasting(seconds) {
  const parts = [];
  let left = Math.max(0, Math.round(seconds));
  for (const [unit, size] of [...STEPS.slice(3), ["second", 1]]) {
    const times = Math.floor(left / size);
    left -= times * size;
    if (times) parts.push(`${count(times)} ${unit}${times === 1 ? "" : "s"}`);
  }
  return parts.slice(0, 2).join(" ") || "less than a second";
}

/** A time of milliseconds with three digits, in seconds from one second on. */
export function took(ms) {
  if (ms === null || ms === undefined) return "–";
  const short = (value) => String(Number(value.toPrecision(3)));
  return ms >= 1000 ? `${short(ms / 1000)} s` : `${short(ms)} ms`;
}

/** 1,234. */
export function count(number) {
  return NUMBER.format(number ?? 0);
}

/** "1 record", "1,234 records". */
export function several(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** 4.2 MB; thousands, as disks are sold; the space does not break. */
export function bytes(number) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let value = number ?? 0;
  let at = 0;
  for (; value >= 1000 && at < units.length - 1; at += 1) value /= 1000;
  return `${at ? value.toFixed(value < 10 ? 1 : 0) : value}\u00a0${units[at]}`;
}

/** The time that a date field says, in UTC; null where it is empty. */
export function ofField(value) {
  return value ? new Date(value).toISOString() : null;
}
