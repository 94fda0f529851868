// One ranking: it asks, ignores answers that came too late, and shows what came, or what went wrong.

import { button, focused, h, replace } from "./dom.js";
import { failure, mayPass } from "./notice.js";
import { legend, resultList, traceLine } from "./results.js";
import { recordHash } from "./recordtext.js";
import { request } from "./state.js";
import { number, plural } from "./words.js";

/** The ranking of one side of the desk: `element`, `run()`, `stop()`, and the last `answer`. */
export function ranking(desk, side, { compact = false, label = "Results", blank, heard = () => {} } = {}) {
  const body = h("div", { class: "ranking-body" });
  const live = h("p", { class: "hidden", role: "status", "aria-live": "polite" });
  const ranked = { element: h("div", { class: "ranking" }, live, body), answer: null, run, stop };
  let running = null;

  /** Asks, and shows the answer; `quiet`, only where it is another, and what went wrong is not shown. */
  async function run({ quiet = false } = {}) {
    if (quiet && body.hasAttribute("aria-busy")) return; // that answer is on its way
    running?.abort();
    const mine = (running = new AbortController());
    if (!quiet) body.setAttribute("aria-busy", "true");
    try {
      if (!desk.state.q.trim()) {
        const page = blank ? await blank() : null;
        if (mine === running && !(quiet && same(page, body.firstElementChild))) show(null, page);
        return;
      }
      const asked = { ...request(desk.state, side), explain: true, ...(desk.typing ? { typing: true } : {}) };
      const answer = await desk.app.api.post("/v1/search", asked, { signal: mine.signal });
      if (mine === running && !(quiet && alike(answer, ranked.answer))) show(answer, found(answer), quiet);
    } catch (error) {
      if (mine === running && !mine.signal.aborted && !quiet) failed(error);
    }
  }

  function show(answer, content, quiet = false) {
    const unfolded = quiet ? opened(body) : [];
    ranked.answer = answer;
    body.removeAttribute("aria-busy");
    const back = focused(body);
    replace(body, content);
    for (const place of unfolded) body.querySelector(place)?.setAttribute("open", "");
    back();
    if (!compact) live.textContent = answer ? plural(answer.results.length, "result") : "";
    heard(answer);
  }

  function failed(error) {
    // Where the server is away the banner says so; what was found stays, and is asked for again when it is back.
    if (error.code === "unreachable" && ranked.answer) return;
    show(null, failure(error, mayPass(error) ? run : null));
  }

  function found(answer) {
    if (!answer.results.length) return [traceLine(answer), nothing(desk, answer.closest)];
    const names = [...new Set(answer.results.flatMap((result) => Object.keys(result.sources)))];
    const head = h("div", { class: "ranking-head" },
      h(compact ? "span" : "h2", { class: "count" }, plural(answer.results.length, "result")), traceLine(answer),
      compact ? null : legend(names));
    return [head, resultList(answer, { compact, label })];
  }

  function stop() {
    running?.abort();
    running = null;
  }

  return ranked;
}

/** Whether two answers would look the same: times and ages aside, which pass by themselves. */
function alike(one, other) {
  const looks = ({ results }) =>
    JSON.stringify(results.map(({ id, title, text, category, tags, superseded_by, freshness, passages }) =>
      [id, title, text, category, tags, superseded_by, freshness, passages?.map((passage) => passage.id)]));
  return other !== null && looks(one) === looks(other);
}

function same(page, shown) {
  return Boolean(page && shown) && page.textContent === shown.textContent;
}

/** What has been unfolded in a ranking, as places to unfold again. */
function opened(body) {
  return [...body.querySelectorAll("details[open]")].map((one) => {
    const id = one.closest("[data-id]")?.dataset.id;
    return id ? `[data-id="${CSS.escape(id)}"] .${one.classList[0]}` : ".trace";
  });
}

/** No result is an answer too: what could be asked instead. */
function nothing(desk, closest) {
  const narrowed = Object.keys(desk.state.filters).length > 0;
  const advice = [];
  if (narrowed) advice.push(button("Clear the filters", desk.unfilter));
  if (desk.app.settings.caller.owner && !desk.state.filters.any_scope) {
    advice.push(button("Search every scope", desk.anyScope));
  }
  advice.push(button("Why not…?", desk.askWhy));
  const words = closest ? [`No result reaches the minimum confidence. Closest, with ${number(closest.confidence)}: `,
    h("a", { href: recordHash(closest.id) }, h("bdi", null, closest.name))]
    : narrowed ? "No record that passes the filters matches." : "No source has a match.";
  return h("div", { class: "blank" }, h("h2", null, "No results"), h("p", { class: "quiet" }, words),
    h("div", { class: "row" }, advice));
}
