// One ranking: it sends the query, ignores answers that come too late, and shows the results or the error.

import { button, focused, h, replace } from "./dom.js";
import { several } from "./moments.js";
import { failure, mayPass } from "./notice.js";
import { legend, resultList, traceLine } from "./results.js";
import { recordHash } from "./recordtext.js";
import { request } from "./state.js";
import { number } from "./words.js";

/** One ranking (`side` is one, a or b): `element`, `run()`, `stop()`, and the last `answer`. */
export function ranking(view, side, { compact = false, label = "Results", blank, onAnswer = () => {} } = {}) {
  const place = h("div", { class: "ranking-body" });
  const live = h("p", { class: "hidden", role: "status", "aria-live": "polite" });
  const ranked = { element: h("div", { class: "ranking" }, live, place), answer: null, run, stop };
  let running = null;

  /** Searches and shows the answer. With `quiet` only a different answer is shown, and no error. */
  async function run({ quiet = false } = {}) {
    if (quiet && place.hasAttribute("aria-busy")) return; // that answer is on its way
    running?.abort();
    const mine = (running = new AbortController());
    if (!quiet) place.setAttribute("aria-busy", "true");
    try {
      if (!view.state.q.trim()) {
        const page = blank ? await blank() : null;
        if (mine === running && !(quiet && same(page, place.firstElementChild))) show(null, page);
        return;
      }
      const body = { ...request(view.state, side), explain: true, ...(view.typing ? { typing: true } : {}) };
      const answer = await view.app.api.post("/v1/search", body, { signal: mine.signal });
      if (mine === running && !(quiet && alike(answer, ranked.answer))) show(answer, contentOf(answer), quiet);
    } catch (error) {
      if (mine === running && !mine.signal.aborted && !quiet) failed(error);
    }
  }

  function show(answer, content, quiet = false) {
    const unfolded = quiet ? opened(place) : [];
    ranked.answer = answer;
    place.removeAttribute("aria-busy");
    const back = focused(place);
    replace(place, content);
    for (const selector of unfolded) place.querySelector(selector)?.setAttribute("open", "");
    back();
    if (!compact) live.textContent = answer ? several(answer.results.length, "result") : "";
    onAnswer(answer);
  }

  function failed(error) {
    // Where the server is away the banner says so; what was found stays, and is asked for again when it is back.
    if (error.code === "unreachable" && ranked.answer) return;
    show(null, failure(error, mayPass(error) ? run : null));
  }

  function contentOf(answer) {
    if (!answer.results.length) return [traceLine(answer), nothing(view, answer.closest)];
    const names = [...new Set(answer.results.flatMap((result) => Object.keys(result.sources)))];
    const head = h("div", { class: "ranking-head" },
      h(compact ? "span" : "h2", { class: "count" }, several(answer.results.length, "result")), traceLine(answer),
      compact ? null : legend(names));
    return [head, resultList(answer, { compact, label })];
  }

  function stop() {
    running?.abort();
    running = null;
  }

  return ranked;
}

/** Whether two answers look the same, apart from times and ages. */
function alike(one, other) {
  const looks = ({ results }) =>
    JSON.stringify(results.map(({ id, title, text, category, tags, superseded_by, freshness, passages }) =>
      [id, title, text, category, tags, superseded_by, freshness, passages?.map((passage) => passage.id)]));
  return other !== null && looks(one) === looks(other);
}

function same(page, shown) {
  return Boolean(page && shown) && page.textContent === shown.textContent;
}

/** Selectors of the parts of a ranking that are unfolded. */
function opened(place) {
  return [...place.querySelectorAll("details[open]")].map((one) => {
    const id = one.closest("[data-id]")?.dataset.id;
    return id ? `[data-id="${CSS.escape(id)}"] .${one.classList[0]}` : ".trace";
  });
}

/** The page of a search without results: what to try instead. */
function nothing(view, closest) {
  const narrowed = Object.keys(view.state.filters).length > 0;
  const advice = [];
  if (narrowed) advice.push(button("Clear the filters", view.unfilter));
  if (view.app.settings.caller.owner && !view.state.filters.any_scope) {
    advice.push(button("Search every scope", view.anyScope));
  }
  advice.push(button("Why not…?", view.askWhy));
  const words = closest ? [`No result reaches the minimum confidence. Closest, with ${number(closest.confidence)}: `,
    h("a", { href: recordHash(closest.id) }, h("bdi", null, closest.name))]
    : narrowed ? "No record that passes the filters matches." : "No source has a match.";
  return h("div", { class: "blank" }, h("h2", null, "No results"), h("p", { class: "quiet" }, words),
    h("div", { class: "row" }, advice));
}
