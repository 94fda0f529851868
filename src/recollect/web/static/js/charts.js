// Two drawings: how many searches took how long, and means with their intervals. Each is as wide as its place.

import { h, replace, svg } from "./dom.js";
import { count, took } from "./moments.js";

const MARGIN = 0.03;
const LEAST_SPAN = 0.1;

/** A place that draws itself again whenever its width changes; `draw(width)` gives an <svg>. */
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

/** Bars of a histogram with p50 and p95 marked; the buckets are [{from, to, count}], the last `to` may be null. */
export function histogram(buckets, marks, width) {
  const box = { left: 36, right: 8, top: 44, bottom: 26, height: 190 };
  const inner = width - box.left - box.right;
  const step = inner / buckets.length;
  const most = Math.max(1, ...buckets.map((one) => one.count));
  const floor = box.height - box.bottom;
  const y = (value) => floor - (value / most) * (floor - box.top);
  const bars = buckets.map((one, at) =>
    svg(
      "rect",
      {
        class: "histogram-bar",
        x: box.left + at * step + 1,
        y: y(one.count),
        width: Math.max(1, step - 2),
        height: Math.max(0, floor - y(one.count)),
        rx: Math.min(2, step / 4),
      },
      svg("title", null, bucketWords(one)),
    ),
  );
  const every = Math.ceil(buckets.length / Math.max(2, Math.floor(inner / 64)));
  const ticks = buckets.map((one, at) =>
    one.to !== null && (at + 1) % every === 0
      ? svg(
          "text",
          {
            class: "tick",
            x: box.left + (at + 1) * step,
            y: box.height - 8,
            "text-anchor": at + 1 === buckets.length ? "end" : "middle",
          },
          took(one.to),
        )
      : null,
  );
  const lines = marks
    .filter((mark) => mark.ms !== null && mark.ms !== undefined)
    .map((mark, at) => {
      const x = box.left + placeOf(mark.ms, buckets) * step;
      const end = x > width * 0.66;
      return svg(
        "g",
        { class: "mark-line" },
        svg("line", { x1: x, x2: x, y1: 8 + at * 17, y2: floor }),
        svg(
          "text",
          { class: "mark-words", x: end ? x - 5 : x + 5, y: 17 + at * 17, "text-anchor": end ? "end" : "start" },
          `${mark.name} ${took(mark.ms)}`,
        ),
      );
    });
  const scale = [...new Set([0, Math.ceil(most / 2), most])].map((value) =>
    svg(
      "g",
      null,
      svg("line", { class: "grid", x1: box.left, x2: width - box.right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: box.left - 6, y: y(value) + 4, "text-anchor": "end" }, count(value)),
    ),
  );
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${box.height}`, width, height: box.height, "aria-hidden": "true" },
    scale,
    bars,
    ticks,
    lines,
  );
}

/** "5 to 10 ms: 12 searches". */
export function bucketWords(one) {
  const range =
    one.to === null ? `more than ${took(one.from)}` : `${one.from ? took(one.from) : "0"} to ${took(one.to)}`;
  return `${range}: ${count(one.count)}`;
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
  const ticks = rounds(low, low + span).map((value) =>
    svg(
      "g",
      null,
      svg("line", { class: "grid", x1: x(value), x2: x(value), y1: 4, y2: height - 24 }),
      svg("text", { class: "tick", x: x(value), y: height - 8, "text-anchor": "middle" }, value.toFixed(2)),
    ),
  );
  const drawn = rows.map((one, at) => {
    const y = at * row + row / 2 + 4;
    return svg(
      "g",
      { class: one.best ? "interval interval-best" : "interval" },
      svg("text", { class: "row-name", x: names - 14, y: y + 4, "text-anchor": "end" }, one.name),
      svg("line", { x1: x(one.low), x2: x(one.high), y1: y, y2: y }),
      svg("circle", { cx: x(one.mean), cy: y, r: 5.5 }),
      svg(
        "title",
        null,
        `${one.name}: ${one.mean.toFixed(3)}, between ${one.low.toFixed(3)} and ${one.high.toFixed(3)}`,
      ),
    );
  });
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, ticks, drawn);
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
  return h(
    "div",
    { class: "table-scroll", tabindex: "0", role: "region", "aria-label": region },
    h(
      "table",
      { class: "table" },
      h("caption", null, caption),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          head.map((name, at) => h("th", { scope: "col", class: kind(at) }, name)),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((cells) =>
          h(
            "tr",
            null,
            cells.map((cell, at) =>
              at === 0 ? h("th", { scope: "row", class: kind(at) }, cell) : h("td", { class: kind(at) }, cell),
            ),
          ),
        ),
      ),
    ),
  );
}
