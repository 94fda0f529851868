// Two rankings of one question, side by side, and how each record moved from the one to the other.

import { controls } from "./controls.js";
import { button, h, replace, svg } from "./dom.js";
import { summary } from "./knobs.js";
import { several } from "./moments.js";
import { ranking } from "./ranking.js";

/** The comparison: `element`, `update()`, `run()`, `stop()`. */
export function comparison(view) {
  const sides = { a: half(view, "a", "A", compare), b: half(view, "b", "B", compare) };
  const lines = svg("svg", { class: "lines", "aria-hidden": "true", focusable: "false" });
  const verdict = h("p", { class: "compared", role: "status" });
  const columns = h("div", { class: "columns" }, sides.a.element, lines, sides.b.element);
  const element = h("div", { class: "compare" }, verdict, columns);
  const folds = columns.querySelectorAll(".half-controls");
  for (const fold of folds) {
    // Both open together, so that the two lists stay level.
    fold.addEventListener("toggle", () => folds.forEach((other) => (other.open = fold.open)));
  }
  const watcher = new ResizeObserver(() => draw(columns, lines));
  watcher.observe(columns);
  for (const [event, on] of [["pointerover", true], ["pointerout", false], ["focusin", true], ["focusout", false]]) {
    columns.addEventListener(event, (happened) => light(columns, happened.target, on));
  }

  function compare() {
    const [a, b] = [sides.a.ranked.answer, sides.b.ranked.answer];
    if (a && b) {
      moves(sides.a.element, places(b.results), elsewhere);
      moves(sides.b.element, places(a.results), moved);
    }
    verdict.textContent = a && b ? inWords(a, b) : "";
    draw(columns, lines);
  }

  return {
    element,
    update: () => Object.values(sides).forEach((one) => one.update()),
    run: (how) => Promise.all(Object.values(sides).map((one) => one.ranked.run(how))),
    stop: () => {
      watcher.disconnect();
      Object.values(sides).forEach((one) => one.ranked.stop());
    },
  };
}

function half(view, side, name, onAnswer) {
  const panel = controls(view, side, { title: `Ranking ${name}` });
  const what = h("span", { class: "half-what" });
  const use = button(`Use ${name}`, () => view.keep(side), { class: "link", title: "Continue with this ranking only" });
  const ranked = ranking(view, side, { compact: true, label: `Ranking ${name}`, onAnswer });
  const element = h("section", { class: "half", "aria-label": `Ranking ${name}`, dataset: { side } },
    h("div", { class: "half-head" }, h("h2", null, name), what, use),
    h("details", { class: "half-controls" }, h("summary", null, "Change the ranking"), panel.element), ranked.element);
  const update = () => {
    panel.update();
    what.textContent = summary({ ...view.app.settings.search, ...view.state.knobs[side] });
    what.title = what.textContent;
  };
  update();
  return { element, ranked, update };
}

function places(results) {
  return new Map(results.map((result) => [result.id, result.rank]));
}

/** Shows beside each title the rank of the record on the other side. */
function moves(side, others, describe) {
  for (const item of side.querySelectorAll(".result")) {
    const rank = Number(item.dataset.rank);
    const there = others.get(item.dataset.id);
    const mark = item.querySelector(".move");
    const [kind, text, words] = describe(rank, there);
    mark.className = `move ${kind}`;
    replace(mark, h("span", { "aria-hidden": "true" }, text), h("span", { class: "hidden" }, words));
    mark.title = words;
  }
}

function elsewhere(rank, there) {
  if (there === undefined) return ["gone", "not in B", "not in B"];
  if (rank === there) return ["there same", "=", "at the same place in B"];
  return ["there", `→ ${there}`, `at rank ${there} in B`];
}

function moved(rank, there) {
  if (there === undefined) return ["new", "new", "not in A"];
  const up = there - rank;
  if (up === 0) return ["same", "=", "at the same place in A"];
  return up > 0 ? ["up", `▲${up}`, `${several(up, "place")} higher than in A`]
    : ["down", `▼${-up}`, `${several(-up, "place")} lower than in A`];
}

function inWords({ results: a }, { results: b }) {
  const there = places(b);
  const both = a.filter((result) => there.has(result.id));
  const still = both.filter((result) => there.get(result.id) === result.rank).length;
  if (!a.length && !b.length) return "Neither ranking has results.";
  if (still === a.length && a.length === b.length) return "Both rankings are equal.";
  const all = a.length + b.length - both.length;
  const counts = [[still, "at the same place"], [both.length - still, "moved"], [a.length - both.length, "only in A"],
    [b.length - both.length, "only in B"]];
  const parts = counts.filter(([count]) => count).map(([count, words]) => `${count} ${words}`);
  return `${several(all, "record")}: ${parts.join(", ")}.`;
}

/** A line from each record on the left to itself on the right. */
function draw(columns, lines) {
  replace(lines);
  const frame = lines.getBoundingClientRect();
  if (!frame.width) return; // the columns are stacked
  const items = (side) => [...columns.querySelectorAll(`[data-side="${side}"] .result`)];
  const rights = new Map(items("b").map((item) => [item.dataset.id, item]));
  for (const left of items("a")) {
    const right = rights.get(left.dataset.id);
    if (!right) continue;
    const [from, to] = [left, right].map((item) => {
      const box = item.querySelector(".result-head").getBoundingClientRect();
      return box.top + box.height / 2 - frame.top;
    });
    const middle = frame.width / 2;
    const still = left.querySelector(".move").classList.contains("same");
    const path = svg("path", { class: still ? "line same" : "line",
      d: `M0 ${from} C${middle} ${from} ${middle} ${to} ${frame.width} ${to}` });
    path.dataset.id = left.dataset.id;
    lines.append(path);
  }
}

function light(columns, target, on) {
  const id = target.closest?.(".result")?.dataset.id;
  if (id === undefined) return;
  for (const one of columns.querySelectorAll("[data-id]")) one.classList.toggle("lit", on && one.dataset.id === id);
  columns.classList.toggle("dimmed", on);
}
