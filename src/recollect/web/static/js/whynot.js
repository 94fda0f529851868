// "Why not…?": why a record is missing from the results, and the change that brings it back.

import { button, h, replace } from "./dom.js";
import { failure, mayPass } from "./notice.js";
import { picker } from "./picker.js";
import { recordHash } from "./recordtext.js";
import { apply, request } from "./state.js";
import { number, sourceClass, titleOf } from "./words.js";

const WAIT_MS = 120;
const STEPS = ["Store", "Filters", "Sources", "Fusion", "Threshold", "Diversity", "Limit", "Answer"];
const LOST_AT = {
  forgotten: 0, "not indexed": 0, changed: 0, missing: 0,
  scope: 1, as_of: 1, superseded: 1, expired: 1, category: 1, kind: 1, tag: 1, path: 1, since: 1, until: 1,
  origin: 1, author: 1, author_session: 1, phrase: 1, required: 1, without: 1,
  fetch_k: 2, weight: 2, trust: 2, unmatched: 2,
  duplicate: 3, threshold: 4, confidence: 4, mmr: 5, limit: 6, found: 7,
};

/** The panel: `element`, `button`, `update()`, `toggle()`. What is asked about is in the address. */
export function whyNot(view) {
  const opener = button("Why not…?", () => toggle(), { "aria-expanded": "false", "aria-controls": "why-not",
    title: "Why is a record not there? (w)" });
  const answer = h("div", { class: "verdict", "aria-live": "polite" });
  const pick = picker(view, ask);
  const element = h("section", { class: "panel why-not", id: "why-not", "aria-label": "Why not", hidden: true },
    pick.element, answer);
  let running = null;
  let last = null;
  let timer = 0;

  function toggle(open = view.state.why === null) {
    ask(open ? "" : null);
    if (open) pick.focus();
    else opener.focus();
  }

  function ask(target) {
    view.change(() => (view.state.why = target), { search: false });
  }

  function update() {
    const { why, q } = view.state;
    element.hidden = why === null;
    opener.setAttribute("aria-expanded", String(why !== null));
    pick.show(why ?? "");
    const side = view.state.compare ? "a" : "one";
    const body = { ...request(view.state, side), target: why };
    const key = why && q.trim() ? JSON.stringify(body) : why ? "unasked" : "";
    if (key === last) return;
    last = key;
    running?.abort();
    running = null;
    clearTimeout(timer);
    if (why && q.trim()) timer = setTimeout(() => look(body, side), WAIT_MS);
    else replace(answer, why ? h("p", { class: "quiet" }, "Ask something first; then it can be looked for.") : null);
  }

  async function look(body, side) {
    running?.abort();
    const mine = (running = new AbortController());
    answer.setAttribute("aria-busy", "true");
    try {
      const verdict = await view.app.api.post("/v1/why-not", body, { signal: mine.signal });
      if (mine === running) replace(answer, explained(view, side, verdict));
    } catch (error) {
      if (mine === running && !mine.signal.aborted) {
        replace(answer, failure(error, mayPass(error) ? () => look(body, side) : null));
      }
    } finally {
      if (mine === running) answer.removeAttribute("aria-busy");
    }
  }

  function stop() {
    clearTimeout(timer);
    running?.abort();
  }

  return { element, button: opener, update, toggle, stop };
}

function explained(view, side, verdict) {
  const isFound = verdict.stage === "found";
  const change = Object.entries(verdict.change ?? {});
  return h("div", { class: isFound ? "told found" : "told" },
    verdict.record ? h("p", { class: "told-what" },
      h("a", { href: recordHash(verdict.record.id), dir: "auto" }, titleOf(verdict.record))) : null,
    route(verdict.stage),
    isFound ? h("p", { class: "told-reason" }, h("b", null, "It is in the results"), `, at rank ${verdict.rank}.`)
      : h("p", { class: "told-reason" }, h("b", null, `Removed by ${verdict.stage}: `), h("bdi", null, verdict.reason)),
    placesTable(verdict.sources),
    change.length ? mend(view, side, verdict.change) : null,
    verdict.advice ? h("p", { class: "advice" }, h("b", null, "What to do: "), h("bdi", null, verdict.advice)) : null,
    view.state.compare ? h("p", { class: "quiet" }, "Searched in ranking A.") : null);
}

/** The steps of a search, and the one at which the record was lost. */
function route(stage) {
  const at = LOST_AT[stage];
  if (at === undefined) return null;
  return h("ol", { class: "route", "aria-label": "Steps it passed" }, STEPS.map((step, place) => {
    const kind = place < at || stage === "found" ? "passed" : place === at ? "lost" : "";
    return h("li", { class: kind, "aria-current": place === at ? "step" : null }, step,
      kind === "lost" ? h("span", { class: "hidden" }, " (lost here)") : null);
  }));
}

function placesTable(sources) {
  const rows = Object.entries(sources ?? {}).map(([name, place]) => h("tr", null,
    h("th", { scope: "row", class: sourceClass(name) }, h("span", { class: "dot", "aria-hidden": "true" }), name),
    h("td", { class: "figure" }, place.rank ? `#${place.rank}` : "–"),
    h("td", { class: "figure" }, number(place.score, 3)),
    h("td", { class: "figure" }, place.fetch_k),
    h("td", null, place.note ?? (place.rank > place.fetch_k ? "deeper than it is read" : ""))));
  if (!rows.length) return null;
  return h("div", { class: "scroll" }, h("table", null,
    h("thead", null, h("tr", null, ["source", "rank", "score", "read to", "note"].map((head, at) =>
      h("th", { scope: "col", class: at > 0 && at < 4 ? "figure" : null }, head)))), h("tbody", null, rows)));
}

function mend(view, side, change) {
  const now = { ...view.app.settings.search, ...view.state.knobs[side], ...view.state.filters };
  const doApply = () => {
    view.change(() => apply(view.state, side, change, view.app.settings.search));
    view.app.toast("Applied");
  };
  return h("div", { class: "mend" }, h("p", null, "This brings it back; it was tried."),
    h("ul", { "aria-label": "The change that returns it" }, Object.entries(change).map(([name, value]) =>
      h("li", { class: "chip" }, h("b", null, name), " ", words(now[name]), " → ", h("b", null, words(value))))),
    button("Apply", doApply, { class: "button primary" }));
}

function words(value) {
  if (value === null || value === undefined || value.length === 0) return "none";
  return typeof value === "object" && !Array.isArray(value) ? Object.values(value).join(", ") : String(value);
}
