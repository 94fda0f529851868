// One ranking: it asks, ignores answers that came too late, and shows what came, or what went wrong.

import { button, h, replace } from "./dom.js";
import { failure, mayPass } from "./notice.js";
import { legend, resultList, traceLine } from "./results.js";
import { request } from "./state.js";
import { plural } from "./words.js";

/** The ranking of one side of the desk: `element`, `run()`, `stop()`, and the last `answer`. */
export function ranking(desk, side, { compact = false, label = "Results", blank, heard = () => {} } = {}) {
  const body = h("div", { class: "ranking-body" });
  const live = h("p", { class: "hidden", role: "status", "aria-live": "polite" });
  const ranked = { element: h("div", { class: "ranking" }, live, body), answer: null, run, stop };
  let running = null;

  async function run() {
    running?.abort();
    const mine = (running = new AbortController());
    body.setAttribute("aria-busy", "true");
    try {
      if (!desk.state.q.trim()) {
        const page = blank ? await blank() : null;
        if (mine === running) show(null, page);
        return;
      }
      const asked = { ...request(desk.state, side), explain: true };
      const answer = await desk.app.api.post("/v1/search", asked, { signal: mine.signal });
      if (mine === running) show(answer, found(answer));
    } catch (error) {
      if (mine === running && !mine.signal.aborted) failed(error);
    }
  }

  function show(answer, content) {
    ranked.answer = answer;
    body.removeAttribute("aria-busy");
    const focused = body.contains(document.activeElement) && document.activeElement.closest("[data-id]")?.dataset.id;
    replace(body, content);
    if (focused) body.querySelector(`[data-id="${CSS.escape(focused)}"] .result-title`)?.focus();
    if (!compact) live.textContent = answer ? plural(answer.results.length, "result") : "";
    heard(answer);
  }

  function failed(error) {
    // Where the server is away the banner says so; what was found stays, and is asked for again when it is back.
    if (error.code === "unreachable" && ranked.answer) return;
    show(null, failure(error, mayPass(error) ? run : null));
  }

  function found(answer) {
    if (!answer.results.length) return [traceLine(answer), nothing(desk)];
    const names = [...new Set(answer.results.flatMap((result) => Object.keys(result.sources)))];
    const head = h("div", { class: "ranking-head" },
      h(compact ? "span" : "h2", { class: "count" }, plural(answer.results.length, "result")), traceLine(answer),
      compact ? null : legend(names));
    return [head, resultList(answer, { query: desk.state.q, compact, label })];
  }

  function stop() {
    running?.abort();
    running = null;
  }

  return ranked;
}

/** No result is an answer too: what could be asked instead. */
function nothing(desk) {
  const narrowed = Object.keys(desk.state.filters).length > 0;
  const advice = [];
  if (narrowed) advice.push(button("Clear the filters", desk.unfilter));
  if (desk.app.settings.caller.owner && !desk.state.filters.any_scope) {
    advice.push(button("Look in every scope", desk.anyScope));
  }
  advice.push(button("Why not…?", desk.askWhy));
  const words = narrowed ? "Nothing within these filters answers that." : "No source has anything for that.";
  return h("div", { class: "blank" }, h("h2", null, "Nothing found"), h("p", { class: "quiet" }, words),
    h("div", { class: "row" }, advice));
}
