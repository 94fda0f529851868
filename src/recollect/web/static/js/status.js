// The state of the store: what it holds, how current its indexes are, how its sources do, how fast it answers.

import { bucketWords, fitted, histogram, table } from "./charts.js";
import { card, folded, h, replace } from "./dom.js";
import { indexing } from "./indexing.js";
import { bytes, count, lasting, moment, several, took } from "./moments.js";

const REST_MS = 4000;
const BUSY_MS = 1000;
const FEWEST_BARS = 8;

/** Fills `root`, and keeps it current while it is looked at; what has the focus stays where it is. */
export async function show(root, params, app) {
  const places = {
    size: h("dl", { class: "tiles" }),
    lag: h("div"),
    sources: h("ul", { class: "source-list" }),
    latency: latency(),
    server: h("dl", { class: "known" }),
    seen: h("p", { class: "quiet seen" }),
  };
  const job = indexing(app, () => turn(0));
  const owned = {
    sources: card("sources", "Sources", places.sources),
    latency: card("latency", "Search time", places.latency.node),
  };
  let timer = null;
  let alive = true;
  let at = null;
  const turn = (ms) => {
    clearTimeout(timer);
    if (alive) timer = setTimeout(tick, ms);
  };
  const tick = async () => {
    if (document.hidden && at) return turn(REST_MS);
    try {
      const status = await app.api.get("/v1/status");
      if (!alive) return undefined;
      fill(places, status, app);
      for (const [name, part] of Object.entries(owned)) part.hidden = !Object.keys(status[name] ?? {}).length;
      job.update(status.index);
      at = new Date().toLocaleTimeString("en-GB");
      setText(places.seen, `As of ${at}.`);
      return turn(status.index?.state === "running" ? BUSY_MS : REST_MS);
    } catch (error) {
      if (!at) throw error;
      setText(places.seen, `The server does not answer (${error.message}); these figures are of ${at}.`);
      return turn(REST_MS);
    }
  };
  const now = () => turn(0);
  await tick();
  window.addEventListener("recollect:changed", now);
  replace(root, h("div", { class: "status" },
    h("h1", null, "Status"),
    places.size,
    card("lag", "Indexes", places.lag, job.node),
    owned.sources,
    owned.latency,
    card("server", "Server", places.server),
    places.seen));
  return () => {
    alive = false;
    clearTimeout(timer);
    window.removeEventListener("recollect:changed", now);
  };
}

function setText(place, words) {
  if (place.textContent !== words) place.textContent = words;
}

function fill(places, status, app) {
  const { records } = status;
  const tiles = [
    ["Records", records.total],
    ["Facts", records.facts],
    ["Chunks", records.chunks],
    ["Turns", records.turns],
    ["Superseded", records.superseded],
    ["Forgotten", records.forgotten],
    ["Files", status.files],
  ];
  const known = tiles.filter(([, number]) => number !== undefined);
  replace(places.size,
    known.map(([name, number]) => tile(name, count(number), { figure: name })),
    status.bytes === undefined ? null : tile("On disk", bytes(status.bytes), { figure: "Bytes", bytes: status.bytes }));
  replace(places.lag, lag(status));
  replace(places.sources, (status.sources ?? []).map(source));
  places.latency.update(status.latency?.search);
  replace(places.server, pairs(server(status, app)));
}

function tile(name, value, dataset) {
  return h("div", { class: "tile", dataset }, h("dt", null, name), h("dd", null, value));
}

function pairs(rows) {
  return rows.filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]);
}

function lag({ vectors, keyword_lag: behind }) {
  const missing = vectors.without ? `${several(vectors.without, "record")} without one` : "every record has one";
  const late = behind ? `${several(behind, "change")} behind; the next search catches up` : "current";
  return h("dl", { class: "known" }, pairs([
    ["Keyword index", behind !== undefined && health(behind === 0, late)],
    ["Vectors", vectors.embedder && health(vectors.without === 0, missing)],
    ["Model", vectors.embedder
      ? [h("code", null, vectors.embedder), vectors.dimension ? `, ${vectors.dimension} numbers each` : ""]
      : "none: search is by words alone"],
  ]));
}

function health(good, words) {
  return h("span", { class: `health ${good ? "health-ok" : "health-resting"}` }, words);
}

function source(one) {
  const words = { ok: "answers", resting: "is left alone for now", failing: "fails" }[one.state] ?? one.state;
  const more = [one.failures ? several(one.failures, "failure") : "", one.reason ?? ""].filter(Boolean).join(": ");
  return h("li", { class: "source-row" },
    h("span", { class: `health health-${one.state}` }, h("bdi", { class: "source-name" }, one.name), ` ${words}`),
    one.kind && one.kind !== one.name ? h("span", { class: "quiet" }, one.kind) : null,
    more ? h("p", { class: "source-why", dir: "auto" }, more) : null,
    one.until ? h("p", { class: "quiet" }, "asked again ", moment(one.until)) : null);
}

function server(status, app) {
  const scope = Object.entries(status.scope ?? {}).map(([part, name]) => `${part} ${name}`).join(", ");
  return [
    ["Version", app.settings.version],
    ["Up for", lasting(status.uptime_s ?? 0)],
    ["Store", status.store && h("bdi", { class: "path" }, status.store)],
    ["Engine", status.engine],
    ["Language", status.language],
    ["Changes", status.sequence !== undefined && count(status.sequence)],
    ["Your scope", app.settings.caller.owner ? "everything" : scope || "what is everyone's"],
  ];
}

/** The histogram and, for those who cannot see it or want the figures, its table; redrawn only when something came in. */
function latency() {
  const words = h("p");
  const drawing = h("div");
  const figures = h("div");
  const details = folded("Show as a table", figures, { hidden: true });
  let last = "";
  const update = (search) => {
    if (JSON.stringify(search ?? null) === last) return;
    last = JSON.stringify(search ?? null);
    details.hidden = !search?.count;
    if (!search?.count) {
      setText(words, "No search since the server started.");
      replace(drawing);
      return;
    }
    const { buckets: counts, p50_ms: half, p95_ms: most } = search;
    const buckets = counts.map((one, at) => ({ from: at ? counts[at - 1].le_ms : 0, to: one.le_ms, count: one.count }));
    const marks = [{ name: "p50", ms: half }, { name: "p95", ms: most }];
    const searches = several(search.count, "search", "searches");
    setText(words, `${searches}: half within ${took(half)}, 95 of 100 within ${took(most)}.`);
    replace(drawing, fitted((width) => histogram(trim(buckets), marks, width)));
    const rows = buckets.map((one) => bucketWords(one).split(": "));
    replace(figures, table("Searches by duration", ["time", "searches"], rows));
  };
  return { node: h("div", null, words, drawing, details), update };
}

/** Without the empty buckets at either end, but for one; and not so few that one fills the page. */
function trim(buckets) {
  const first = Math.max(0, buckets.findIndex((one) => one.count) - 1);
  const end = buckets.findLastIndex((one) => one.count) + 2;
  return buckets.slice(first, Math.max(end, first + FEWEST_BARS));
}
