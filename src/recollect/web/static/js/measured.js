// A run on one's own questions: in words which is best and how sure that is, then dots with intervals, then figures.

import { fitted, intervals, table } from "./charts.js";
import { h, replace } from "./dom.js";
import { several } from "./moments.js";

const CHANCE = 0.05;
const FEWEST = 6;
const ENOUGH = 30;

/** The outcome of a run. */
export function measured(report) {
  const names = measuresOf(report);
  const drawing = h("div");
  const words = h("div", { role: "status" });
  const draw = (measure) => {
    const rows = ranked(report, measure);
    replace(words, h("p", { class: "lead" }, verdict(report, measure, rows)), fewWords(rows[0].n));
    replace(
      drawing,
      fitted((width) => intervals(rows, width)),
      h(
        "p",
        { class: "quiet" },
        "A dot is the mean over the questions, the line the range in which 95 of 100 such means would lie.",
      ),
    );
  };
  draw(names[0]);
  const choice = h(
    "select",
    { id: "own-measure", on: { change: () => draw(choice.value) } },
    names.map((name) => h("option", { value: name }, name)),
  );
  return [
    h("h3", null, "Results of the evaluation"),
    words,
    names.length > 1
      ? h("p", { class: "measure-choice" }, h("label", { for: "own-measure" }, "Measure"), choice)
      : null,
    drawing,
    means(report, names),
    differences(report),
    (report.warnings ?? []).map((said) => h("p", { class: "note" }, said)),
  ];
}

function measuresOf(report) {
  return Object.keys(Object.values(report.systems)[0]?.measures ?? {});
}

/** The systems by a measure, best first. */
export function ranked(report, measure) {
  const rows = Object.entries(report.systems)
    .map(([name, system]) => ({ name, ...system.measures[measure] }))
    .sort((a, b) => b.mean - a.mean);
  return rows.map((row) => ({ ...row, best: row.mean === rows[0].mean }));
}

/** Which is best, and whether its lead is more than chance gives. */
export function verdict(report, measure, rows) {
  const best = rows.filter((row) => row.best);
  const first = best[0];
  if (best.length === rows.length) return `All ${rows.length} find equally well: ${measure} ${first.mean.toFixed(3)}.`;
  const head =
    best.length > 1
      ? `${list(best.map((row) => row.name))} are best, and equal: ${measure} ${first.mean.toFixed(3)}.`
      : `${first.name} is best: ${measure} ${first.mean.toFixed(3)}.`;
  const found = comparison(report, measure, rows);
  if (!found) return head;
  const by = Math.abs(found.difference.mean).toFixed(3);
  const sure =
    found.p < CHANCE
      ? `more than chance would give (${chance(found.p)})`
      : `no more than chance could give (${chance(found.p)})`;
  return `${head} ${best.length > 1 ? "Their" : "Its"} lead of ${by} over ${found.other} is ${sure}.`;
}

/** The comparison of the best with the one all are compared with, or, where the best is that one, with the next best. */
function comparison(report, measure, rows) {
  const made = (report.comparisons ?? []).filter((one) => one.measure === measure);
  const against = made[0]?.b;
  const leader = rows.find(
    (row) => row.best && row.name !== against && !rows.some((other) => other.best && other.name === against),
  );
  const follower = rows.find((row) => !row.best);
  const found = made.find((one) => one.a === (leader ?? follower)?.name);
  return found ? { ...found, other: leader ? against : follower.name } : null;
}

function fewWords(number) {
  if (number < FEWEST)
    return h(
      "p",
      { class: "note" },
      `With ${several(number, "question")} no difference can be told from chance: ${FEWEST} are the fewest that could, ${ENOUGH} are better.`,
    );
  return number < ENOUGH
    ? h(
        "p",
        { class: "quiet" },
        `${number} questions show only great differences; with more of them smaller ones can be seen.`,
      )
    : null;
}

function means(report, names) {
  const rows = ranked(report, names[0]).map(({ name }) => [
    name,
    ...names.map((measure) => estimate(report.systems[name].measures[measure])),
  ]);
  return table("Means with confidence intervals", ["system", ...names], rows);
}

function differences(report) {
  const rows = (report.comparisons ?? []).map((one) => [
    `${one.a} − ${one.b}`,
    one.measure,
    estimate(one.difference, true),
    chance(one.p),
    one.wins,
    one.losses,
    one.ties,
  ]);
  return rows.length
    ? h(
        "details",
        { class: "figures" },
        h("summary", null, "Differences on the same questions"),
        table(
          "Differences on the same questions",
          ["systems", "measure", "difference", "p", "won", "lost", "equal"],
          rows,
          { words: [0, 1] },
        ),
      )
    : null;
}

function estimate(found, signed = false) {
  if (!found) return "–";
  const sign = signed && found.mean > 0 ? "+" : "";
  return [
    `${sign}${found.mean.toFixed(3)}`,
    h("span", { class: "interval-words" }, ` [${found.low.toFixed(3)}, ${found.high.toFixed(3)}]`),
  ];
}

function chance(p) {
  return p < 0.001 ? "p < 0.001" : `p = ${p.toFixed(3)}`;
}

function list(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}
