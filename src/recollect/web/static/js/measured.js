// A run on one's own questions: in words which is best and how sure that is, then dots with intervals, then figures.

import { fitted, intervals, table } from "./charts.js";
import { folded, h, replace } from "./dom.js";
import { several } from "./moments.js";

const CHANCE = 0.05;
const FEWEST = 6;
const ENOUGH = 30;

/** The outcome of a run. */
export function measured(report) {
  const names = Object.keys(Object.values(report.systems)[0]?.measures ?? {});
  const drawing = h("div");
  const words = h("div", { role: "status" });
  const legend = "A dot is the mean over the questions, the line the range in which 95 of 100 such means would lie.";
  const draw = (measure) => {
    const rows = ranked(report, measure);
    replace(words, h("p", { class: "lead" }, verdict(report, measure, rows)), fewWords(rows[0].n));
    replace(drawing, fitted((width) => intervals(rows, width)), h("p", { class: "quiet" }, legend));
  };
  draw(names[0]);
  const choice = h("select", { id: "own-measure", on: { change: () => draw(choice.value) } },
    names.map((name) => h("option", { value: name }, name)));
  return [
    h("h3", null, "Results of the evaluation"),
    words,
    names.length > 1
      ? h("p", { class: "measure-choice" }, h("label", { for: "own-measure" }, "Measure"), choice) : null,
    drawing,
    means(report, names),
    differences(report),
    (report.warnings ?? []).map((warning) => h("p", { class: "note" }, warning)),
  ];
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
  const best = rows.filter((row) => row.best).map((row) => row.name);
  const mean = `${measure} ${rows[0].mean.toFixed(3)}`;
  if (best.length === rows.length) return `All ${rows.length} find equally well: ${mean}.`;
  const equal = best.length > 1;
  const head = equal
    ? `${best.slice(0, -1).join(", ")} and ${best.at(-1)} are best, and equal: ${mean}.` : `${best[0]} is best: ${mean}.`;
  const compared = comparison(report, measure, rows);
  if (!compared) return head;
  const by = Math.abs(compared.difference.mean).toFixed(3);
  const sure = compared.p < CHANCE ? "more than chance would give" : "no more than chance could give";
  return `${head} ${equal ? "Their" : "Its"} lead of ${by} over ${compared.other} is ${sure} (${chance(compared.p)}).`;
}

/** The comparison of the best with the one all are compared with, or, where the best is that one, with the next best. */
function comparison(report, measure, rows) {
  const made = (report.comparisons ?? []).filter((one) => one.measure === measure);
  const against = made[0]?.b;
  const isBest = rows.some((row) => row.best && row.name === against);
  const leader = isBest ? undefined : rows.find((row) => row.best);
  const follower = rows.find((row) => !row.best);
  const compared = made.find((one) => one.a === (leader ?? follower)?.name);
  return compared ? { ...compared, other: leader ? against : follower.name } : null;
}

function fewWords(number) {
  if (number >= ENOUGH) return null;
  if (number >= FEWEST)
    return h("p", { class: "quiet" },
      `${number} questions show only great differences; with more of them smaller ones can be seen.`);
  return h("p", { class: "note" }, `With ${several(number, "question")} no difference can be told from chance: `
    + `${FEWEST} are the fewest that could, ${ENOUGH} are better.`);
}

function means(report, names) {
  const rows = ranked(report, names[0]).map(({ name }) =>
    [name, ...names.map((measure) => estimate(report.systems[name].measures[measure]))]);
  return table("Means with confidence intervals", ["system", ...names], rows);
}

function differences(report) {
  const rows = (report.comparisons ?? []).map((one) =>
    [`${one.a} − ${one.b}`, one.measure, estimate(one.difference, true), chance(one.p), one.wins, one.losses, one.ties]);
  if (!rows.length) return null;
  const title = "Differences on the same questions";
  const head = ["systems", "measure", "difference", "p", "won", "lost", "equal"];
  return folded(title, table(title, head, rows, { words: [0, 1] }));
}

function estimate(interval, signed = false) {
  if (!interval) return "–";
  const [mean, low, high] = [interval.mean, interval.low, interval.high].map((value) => value.toFixed(3));
  return [signed && interval.mean > 0 ? `+${mean}` : mean, h("span", { class: "interval-words" }, ` [${low}, ${high}]`)];
}

function chance(p) {
  return p < 0.001 ? "p < 0.001" : `p = ${p.toFixed(3)}`;
}
