// One result: its rank, its text, where it is from, and what each source contributed to its score.

import { h } from "./dom.js";
import { count, several, took } from "./moments.js";
import { recordHash } from "./recordtext.js";
import {
  age, clip, inWords, linesOf, marked, number, placeOf, plain, sourceClass, timeOf, titleOf,
} from "./words.js";

/** The list of an answer's results. `compact` leaves out what two columns have no room for. */
export function resultList(answer, { compact = false, label = "Results" }) {
  const answered = answer.trace.sources.filter((source) => source.status === "ok").map((source) => source.name);
  return h("ol", { class: compact ? "results compact" : "results", "aria-label": label },
    answer.results.map((result) => [result.rank === answer.likely + 1 ? divider(answer.likely) : null,
      item(result, { matched: answer.matched ?? [], compact, answered })]));
}

/** The line above results that are probably unrelated. */
function divider(likely) {
  return h("li", { class: "divider" }, likely ? "below: probably unrelated" : "nothing here seems to answer this");
}

function item(result, { matched, compact, answered }) {
  const kind = result.title ? "result-title" : "result-title untitled";
  const title = h("a", { class: kind, href: recordHash(result.id) }, marked(titleOf(result), matched));
  const shown = ({ snippet, text, title }) => inWords(plain((snippet || text || title).slice(0, LONGEST)), result);
  const snippet = shown(result);
  const same = !result.title && titleOf(result).startsWith(snippet.trim().replace(/\s*…$/, ""));
  return h("li", { class: "result", dataset: { id: result.id, rank: result.rank } },
    h("span", { class: "rank" }, h("span", { class: "hidden" }, "Rank "), result.rank),
    h("div", { class: "result-body" },
      h("div", { class: "result-head" }, h("h3", { dir: "auto" }, title), h("span", { class: "move" })),
      same ? null : h("p", { class: "snippet", dir: "auto" }, marked(snippet, matched)),
      h("div", { class: "result-facts" }, where(result), compact ? null : chips(result),
        result.moved ? h("span", { class: "moved" }, result.moved) : null),
      result.passages ? further(result.passages, matched, shown) : null,
      h("div", { class: "result-scores" }, bar(result), places(result, answered), compact ? null : arithmetic(result))));
}

const LONGEST = 600;
const ADJOINING = 2; // lines from the end of a passage to the next one, with a blank line between them

/** The further passages of a file, folded, in the order of the file; those that adjoin are one. */
function further(passages, matched, shown) {
  const joined = [];
  for (const passage of [...passages].sort((one, other) => firstLine(one) - firstLine(other))) {
    const [first, last] = passage.lines ?? [0, 0];
    const before = joined.at(-1);
    if (before && first <= before.last + ADJOINING) {
      before.last = Math.max(before.last, last);
      before.parts.push(passage);
    } else joined.push({ first, last, parts: [passage] });
  }
  return h("details", { class: "passages" },
    h("summary", null, `and ${several(passages.length, "more passage")}`),
    h("ul", null, joined.map(({ first, last, parts }) => h("li", null,
      h("span", { class: "lines mono" }, placesOf(parts) || (last ? linesOf([first, last]) : "")),
      parts.map((passage) => h("a", { class: "passage", href: recordHash(passage.id), dir: "auto" },
        marked(shown(passage), matched)))))));
}

/** The pages, slides or messages of adjoining passages, each once. */
function placesOf(parts) {
  return [...new Set(parts.map((passage) => passage.place).filter(Boolean))].join(", ");
}

function firstLine(passage) {
  return passage.lines?.[0] ?? 0;
}

/** File and lines or kind, the age, and whether the file has changed since it was indexed. */
function where(result) {
  const fresh = result.freshness && result.freshness !== "fresh";
  return [
    h("span", { class: result.path ? "place mono" : "place", title: result.path }, h("bdi", null, placeOf(result))),
    h("time", { class: "age", datetime: timeOf(result), title: timeOf(result) }, age(timeOf(result))),
    h("span", { class: "short-id mono", title: `The id for commands: ${result.id}` }, h("bdi", null, clip(result.short_id))),
    fresh ? h("span", { class: "badge warn" }, { changed: "file changed", missing: "file missing",
      unreadable: "file cannot be read" }[result.freshness] ?? result.freshness) : null,
    result.superseded_by ? h("span", { class: "badge" }, "superseded") : null,
  ];
}

function chips(result) {
  const scope = Object.entries(result.scope ?? {}).map(([part, name]) => chip(`${part} ${name}`, "scope"));
  return [result.category ? chip(result.category, "category") : null, (result.tags ?? []).slice(0, 8).map((tag) =>
    chip(`#${tag}`, "tag")), scope];
}

function chip(text, kind) {
  return h("span", { class: `chip ${kind}` }, h("bdi", null, clip(text)));
}

/** A bar as long as the score, divided as the sources' contributions are. */
function bar(result) {
  const shares = Object.entries(result.sources).map(([name, share]) => [name, part(share.contribution, result.fused)]);
  const words = shares.map(([name, value]) => `${name} ${Math.round(value * 100)} %`).join(", ");
  const score = result.score >= 0.1 || result.score === 0 ? result.score.toFixed(2) : number(result.score);
  return h("div", { class: "score" },
    h("div", { class: "bar", role: "img", "aria-label": `Score ${score}${words ? `, of that ${words}` : ""}`,
      title: words },
      shares.map(([name, value]) =>
        h("span", { class: `bar-part ${sourceClass(name)}`, style: { width: `${value * result.score * 100}%` } }))),
    h("span", { class: "score-number" }, score),
    result.confidence === undefined ? null
      : h("span", { class: "score-more", title: "How likely it is that this result answers the query" },
        `confidence ${result.confidence.toFixed(2)}`));
}

function part(contribution, fused) {
  return fused > 0 ? Math.min(1, Math.max(0, contribution / fused)) : 0;
}

/** The rank each source gave it; a dash where a source that answered does not have it. */
function places(result, answered) {
  const names = [...new Set([...answered, ...Object.keys(result.sources)])];
  return h("ul", { class: "places", "aria-label": "Rank in each source" }, names.map((name) => {
    const share = result.sources[name];
    return h("li", { class: `source-chip ${sourceClass(name)}${share ? "" : " absent"}` },
      h("span", { class: "dot", "aria-hidden": "true" }), h("bdi", null, name), " ",
      share ? h("b", null, `#${share.rank}`) : [h("span", { "aria-hidden": "true" }, "–"),
        h("span", { class: "hidden" }, "did not find it")]);
  }));
}

/** How the score was computed, step by step. */
function arithmetic(result) {
  if (result.base === undefined) return null;
  const rows = Object.entries(result.sources).map(([name, share]) => row(`+ ${name}`, number(share.contribution, 4),
    `rank ${share.rank}${share.score === null ? "" : `, its own score ${number(share.score, 3)}`}`));
  rows.push(row("= fused", number(result.fused, 4), "the sum"));
  if (result.base > 0) {
    rows.push(row("÷ the most possible", number(result.fused / result.base, 4), "every source’s best"));
  }
  const factors = Object.entries(result.factors ?? {});
  rows.push(...factors.map(([name, factor]) => row(`× ${name}`, number(factor, 4), "")));
  rows.push(row("= score", number(result.score, 4), "0 to 1 under every method"));
  for (const [stage, move] of Object.entries(result.moves ?? {})) {
    rows.push(row(`by ${stage}`, `#${move.from} → #${move.to}`, "the rank before and after"));
  }
  if (result.similarity !== null && result.similarity !== undefined) {
    rows.push(row("cosine", number(result.similarity, 3), "to the question"));
  }
  return h("details", { class: "why-here" }, h("summary", null, "Why this rank"), h("table", null, h("tbody", null, rows)));
}

function row(name, value, note) {
  return h("tr", null, h("th", { scope: "row" }, name), h("td", { class: "figure" }, value), h("td", null, note));
}

/** One line about the search itself, which opens to the whole trace. */
export function traceLine(answer) {
  const { trace } = answer;
  const counts = trace.sources.map((source) =>
    source.status === "ok" ? `${source.name} ${count(source.hits)}` : `${source.name} ${source.status}`);
  const parts = [took(trace.took_ms), counts.join(" · ")];
  if (trace.favours) parts.push(`favours ${trace.favours}`);
  if (trace.also_searched?.length) parts.push(`also searched: ${trace.also_searched.join(", ")}`);
  if (trace.warnings.length) parts.push(several(trace.warnings.length, "warning"));
  if (trace.abstained) parts.push("abstained");
  const loud = trace.warnings.length || trace.abstained || trace.sources.some((source) => source.status !== "ok");
  return h("details", { class: loud ? "trace loud" : "trace" }, h("summary", null, parts.join("  ·  ")), traced(trace));
}

function traced(trace) {
  const sources = trace.sources.map((source) => h("tr", null,
    h("th", { scope: "row" }, source.name), h("td", null, source.status), h("td", { class: "figure" }, count(source.hits)),
    h("td", { class: "figure" }, took(source.took_ms)),
    h("td", null, source.reason ?? (source.trust === undefined ? "" : `trust ${number(source.trust)}`))));
  const dropped = counted(trace.filtered);
  const behind = counted(trace.lag);
  return h("div", { class: "trace-body" },
    trace.abstained ? h("p", { class: "warning" }, trace.abstained) : null,
    trace.warnings.map((warning) => h("p", { class: "warning" }, warning)),
    h("table", null, h("thead", null, h("tr", null, ["source", "status", "hits", "took", ""].map((head) =>
      head ? h("th", { scope: "col" }, head) : h("td")))), h("tbody", null, sources)),
    h("p", { class: "stages" }, trace.stages.map((stage, at) => [at ? " → " : "",
      h("span", { class: stage.in === stage.out ? "" : "cut" }, `${stage.name} ${count(stage.out)}`)])),
    dropped.length ? h("p", null, `Removed: ${dropped.join(", ")}`) : null,
    behind.length ? h("p", null, `Not yet indexed: ${behind.join(", ")}`) : null);
}

function counted(counts) {
  return Object.entries(counts ?? {}).filter(([, many]) => many).map(([what, many]) => `${what} ${count(many)}`);
}

/** What the colours of the bars mean. */
export function legend(names) {
  return h("p", { class: "legend" }, names.map((name) =>
    h("span", { class: sourceClass(name) }, h("span", { class: "dot", "aria-hidden": "true" }), name)));
}
