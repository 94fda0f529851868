// Two drawings: how many searches took how long, and means with their intervals. Each is as wide as its place.

import { h, replace, svg } from "./dom.js";
import { count, took } from "./moments.js";

const MARGIN = 0.03;
const LEAST_SPAN = 0.1;

/** A place that draws itself again whenever its width changes; `draw(width)` returns an <svg>. */
export function fitted(draw) {
  const place = h("div", { class: "chart" });
  let last = 0;
  const observer = new ResizeObserver(([entry]) => {
    const width = Math.round(entry.contentRect.width);
    if (width && width !== last) replace(place, draw((last = width)));
  });
  observer.observe(place);
  return place;
}

function drawing(width, height, ...parts) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, parts);
}

function line(kind, x1, y1, x2, y2) {
  return svg("line", { class: kind, x1, x2, y1, y2 });
}

function label(kind, x, y, anchor, words) {
  return svg("text", { class: kind, x, y, "text-anchor": anchor }, words);
}

/** Bars of a histogram with p50 and p95 marked; the buckets are [{from, to, count}], the last `to` may be null. */
export function histogram(buckets, marks, width) {
  const box = { left: 36, right: 8, top: 44, bottom: 26, height: 190 };
  const inner = width - box.left - box.right;
  const step = inner / buckets.length;
  const most = Math.max(1, ...buckets.map((one) => one.count));
  const floor = box.height - box.bottom;
  const y = (value) => floor - (value / most) * (floor - box.top);
  const bars = buckets.map((one, at) =>
    svg("rect", { class: "histogram-bar", x: box.left + at * step + 1, y: y(one.count), width: Math.max(1, step - 2),
      height: Math.max(0, floor - y(one.count)), rx: Math.min(2, step / 4) }, svg("title", null, bucketWords(one))));
  const every = Math.ceil(buckets.length / Math.max(2, Math.floor(inner / 64)));
  const ticks = buckets.map((one, at) => {
    if (one.to === null || (at + 1) % every) return null;
    return label("tick", box.left + (at + 1) * step, box.height - 8, at + 1 === buckets.length ? "end" : "middle",
      took(one.to));
  });
  const known = marks.filter((mark) => mark.ms !== null && mark.ms !== undefined);
  const lines = known.map((mark, at) => {
    const x = box.left + placeOf(mark.ms, buckets) * step;
    const left = x > width * 0.66;
    return svg("g", { class: "mark-line" },
      line(null, x, 8 + at * 17, x, floor),
      label("mark-words", left ? x - 5 : x + 5, 17 + at * 17, left ? "end" : "start", `${mark.name} ${took(mark.ms)}`));
  });
  const scale = [...new Set([0, Math.ceil(most / 2), most])].map((value) => svg("g", null,
    line("grid", box.left, y(value), width - box.right, y(value)),
    label("tick", box.left - 6, y(value) + 4, "end", count(value))));
  return drawing(width, box.height, scale, bars, ticks, lines);
}

/** "5 to 10 ms: 12". */
export function bucketWords({ from, to, count: searches }) {
  const range = to === null ? `more than ${took(from)}` : `${from ? took(from) : "0"} to ${took(to)}`;
  return `${range}: ${count(searches)}`;
}

/** How many bars from the left a time lies, in parts of a bar. */
function placeOf(ms, buckets) {
  const at = buckets.findIndex((one) => one.to === null || ms <= one.to);
  if (at < 0) return buckets.length;
  const { from, to } = buckets[at];
  return at + (to === null ? 0.5 : Math.min(1, Math.max(0, (ms - from) / (to - from))));
}

/** One row for each system: a dot for the mean, a line for its interval; rows are [{name, mean, low, high, best}]. */
export function intervals(rows, width) {
  const row = 34;
  const names = 22 + 8.2 * Math.max(...rows.map((one) => one.name.length));
  const inner = width - names - 20;
  const high = Math.min(1, Math.max(...rows.map((one) => one.high)) + MARGIN);
  const low = Math.max(0, Math.min(high - LEAST_SPAN, Math.min(...rows.map((one) => one.low)) - MARGIN));
  const span = Math.max(high - low, LEAST_SPAN);
  const x = (value) => names + ((value - low) / span) * inner;
  const height = rows.length * row + 30;
  const ticks = rounds(low, low + span).map((value) => svg("g", null,
    line("grid", x(value), 4, x(value), height - 24),
    label("tick", x(value), height - 8, "middle", value.toFixed(2))));
  const drawn = rows.map((one, at) => {
    const y = at * row + row / 2 + 4;
    const [mean, from, to] = [one.mean, one.low, one.high].map((value) => value.toFixed(3));
    return svg("g", { class: one.best ? "interval interval-best" : "interval" },
      label("row-name", names - 14, y + 4, "end", one.name),
      line(null, x(one.low), y, x(one.high), y),
      svg("circle", { cx: x(one.mean), cy: y, r: 5.5 }),
      svg("title", null, `${one.name}: ${mean}, between ${from} and ${to}`));
  });
  return drawing(width, height, ticks, drawn);
}

/** Round numbers between two others, four or so. */
function rounds(low, high) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2].find((one) => (high - low) / one <= 5) ?? 0.25;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, at) => (first + at) * step);
}

/** A table under a caption that scrolls by itself where it is wide; the columns of `words` hold words. */
export function table(caption, head, rows, { words = [0], region = caption } = {}) {
  const kind = (at) => (words.includes(at) ? "w" : null);
  const cell = (content, at) =>
    at === 0 ? h("th", { scope: "row", class: kind(at) }, content) : h("td", { class: kind(at) }, content);
  return h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": region },
    h("table", { class: "table" },
      h("caption", null, caption),
      h("thead", null, h("tr", null, head.map((name, at) => h("th", { scope: "col", class: kind(at) }, name)))),
      h("tbody", null, rows.map((cells) => h("tr", null, cells.map(cell))))));
}
