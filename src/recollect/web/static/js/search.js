// The search view: the query, the filters, one ranking or two, and "why not".

import { blankPage } from "./blank.js";
import { comparison } from "./compare.js";
import { controls } from "./controls.js";
import { button, h, replace } from "./dom.js";
import { filters } from "./filters.js";
import { listen } from "./keys.js";
import { ranking } from "./ranking.js";
import { readingPane } from "./reading.js";
import { rewrite } from "./router.js";
import { fromQuery, narrow, toHash, toggleCompare } from "./state.js";
import { whyNot } from "./whynot.js";

const DEBOUNCE_MS = 120;
const SETTLED_MS = 1500;
const NO_FACETS = { categories: [], tags: [], scopes: [], roots: [], sources: ["keyword", "vector"] };

let opened = null; // the id of the result that was opened last

/** Fills `root` with the view. */
export async function show(root, params, app) {
  const view = { app, facets: NO_FACETS, state: fromQuery(params.query, app.settings.search), change };
  let timer = null;
  let written = 0;
  let stage = null;

  const field = h("input", { type: "search", id: "q", name: "q", dir: "auto", autocomplete: "off",
    spellcheck: "false", enterkeyhint: "search", placeholder: "Search your memory", value: view.state.q,
    on: { input: () => change(() => (view.state.q = field.value), { wait: true }), keydown: fieldKey } });
  const form = h("form", { class: "ask", role: "search", on: { submit: (event) => event.preventDefault() } },
    h("label", { class: "hidden", for: "q" }, "Search"), field, h("kbd", { "aria-hidden": "true" }, "/"));
  const compareButton = button("Compare", compare, { title: "Two rankings side by side (c)" });
  const stagePlace = h("div", { class: "stage" });

  Object.assign(view, {
    unfilter: () => change(() => (view.state.filters = {})),
    anyScope: () => change(() => narrow(view.state, "any_scope", true)),
    askWhy: () => why.toggle(true),
    keep: (side) => change(() => {
      view.state.knobs.one = { ...view.state.knobs[side] };
      view.state.compare = false;
    }),
  });
  const narrowing = filters(view);
  const why = whyNot(view);
  const tune = tuning(view);
  const walk = walker(stagePlace, field);

  replace(root, h("h1", { class: "hidden" }, "Search"), form,
    h("div", { class: "tools" }, narrowing.button, tune.button, compareButton, why.button, narrowing.chips),
    narrowing.element, tune.element, why.element, stagePlace);

  /** Every change goes through here: it updates the address and the controls, and searches again. */
  function change(make, { wait = false, search = true } = {}) {
    make();
    view.typing = wait; // the last word may not be complete yet
    refresh();
    if (!search) return address();
    clearTimeout(timer);
    if (wait) timer = setTimeout(settle, DEBOUNCE_MS);
    else settle();
  }

  /** The address is written only when a search is sent: browsers refuse a hundred changes in a row. */
  function settle() {
    timer = null;
    address();
    return stage.run();
  }

  function address() {
    rewrite(toHash(view.state), { push: Date.now() - written > SETTLED_MS });
    written = Date.now();
    window.dispatchEvent(new Event("recollect:address"));
  }

  function refresh() {
    if (document.activeElement !== field) field.value = view.state.q;
    document.title = view.state.q.trim() ? `${view.state.q.trim().slice(0, 60)} · Recollect` : "Search · Recollect";
    compareButton.setAttribute("aria-pressed", String(view.state.compare));
    if (stage?.compare !== view.state.compare) setStage();
    stage.update();
    narrowing.update();
    tune.update();
    why.update();
  }

  function setStage() {
    stage?.stop();
    const { compare: two } = view.state;
    stage = { ...(two ? comparison(view) : single(view, walk.restore)), compare: two };
    replace(stagePlace, stage.element);
  }

  function compare() {
    change(() => toggleCompare(view.state, app.settings.search));
  }

  function fieldKey(event) {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") {
      if (walk.first()) event.preventDefault();
    } else if (event.key === "Enter") {
      event.preventDefault();
      answerNow();
    } else if (event.key === "Escape") {
      event.preventDefault(); // the browser would clear the field
      field.blur();
    }
  }

  /** Enter searches at once and moves the focus to the first result, unless the user types on. */
  async function answerNow() {
    const words = field.value;
    view.typing = false;
    clearTimeout(timer);
    await settle();
    if (field.value === words && document.activeElement === field) walk.first();
  }

  function escape() {
    if (view.state.why !== null) why.toggle(false);
    else if (!narrowing.element.hidden) narrowing.toggle(false);
    else if (!tune.element.hidden) tune.toggle(false);
    else if (view.state.compare) compare();
    else return false;
  }

  const silence = listen({ j: () => walk.step(1), ArrowDown: () => walk.step(1), k: () => walk.step(-1),
    ArrowUp: () => walk.step(-1), c: compare, w: () => why.toggle(), f: () => narrowing.toggle(), r: () => tune.toggle(), Escape: escape });
  const leave = (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || !event.target.closest?.(".panel")) return;
    event.preventDefault();
    escape();
  };
  const back = () => {
    loadFacets();
    stage.run();
  };
  const again = () => timer ?? stage.run({ quiet: true }); // what is being typed is asked in a moment anyway
  root.addEventListener("keydown", leave);
  window.addEventListener("recollect:back", back);
  window.addEventListener("recollect:changed", again);

  async function loadFacets() {
    try {
      const any_scope = app.settings.caller.owner || null;
      view.facets = { ...NO_FACETS, ...(await app.api.get("/v1/facets", { any_scope })) };
      stage?.update();
      narrowing.update();
    } catch {
      view.facets = NO_FACETS; // filters can be typed without suggestions
    }
  }

  refresh();
  loadFacets();
  stage.run();
  if (!walk.expects() && matchMedia("(hover: hover)").matches) field.focus();

  function done() {
    clearTimeout(timer);
    silence();
    stage.stop();
    why.stop();
    window.removeEventListener("recollect:back", back);
    window.removeEventListener("recollect:changed", again);
  }
  done.update = (next) => {
    const state = fromQuery(next.query, app.settings.search);
    if (toHash(state) === toHash(view.state)) return;
    view.state = state;
    field.value = view.state.q;
    written = 0;
    refresh();
    stage.run();
  };
  return done;
}

/** One ranking, and the note of the result that has the focus beside it. */
function single(view, onAnswer) {
  const pane = readingPane(view.app);
  const wide = matchMedia("(min-width: 64rem)");
  const ranked = ranking(view, "one", { blank: () => blankPage(view), onAnswer: (answer) => {
    const [first] = answer?.results ?? [];
    if (first && wide.matches) pane.show(first, answer.matched);
    else pane.clear();
    onAnswer(answer);
  } });
  const choose = (event) => {
    const id = event.target.closest?.("[data-id]")?.dataset.id;
    const result = id && ranked.answer?.results.find((one) => one.id === id);
    if (result && wide.matches) pane.show(result, ranked.answer.matched);
  };
  ranked.element.addEventListener("focusin", choose);
  ranked.element.addEventListener("click", choose);
  return { element: h("div", { class: "single" }, ranked.element, pane.element), update: () => {}, run: ranked.run,
    stop: ranked.stop };
}

/** The controls of the ranking, behind one button that says how many were changed. */
function tuning(view) {
  const panel = controls(view, "one");
  const element = h("section", { class: "panel", id: "ranking", "aria-label": "How results are ranked", hidden: true },
    panel.element);
  const opener = button("Ranking", () => toggle(), { "aria-expanded": "false", "aria-controls": "ranking",
    title: "How results are ranked (r)" });
  function toggle(open = element.hidden) {
    element.hidden = !open;
    opener.setAttribute("aria-expanded", String(open));
    (open ? element.querySelector("input, select, button") : opener)?.focus();
  }
  function update() {
    panel.update();
    const changed = Object.keys(view.state.knobs.one).length;
    opener.textContent = changed ? `Ranking, ${changed} changed` : "Ranking";
    opener.hidden = view.state.compare;
    if (view.state.compare && !element.hidden) toggle(false);
  }
  return { element, button: opener, toggle, update };
}

/** Moves the focus through the titles of the results, so that Enter opens one. Back from a record, it is on its result. */
function walker(place, field) {
  const titles = () => [...place.querySelectorAll(".result-title, .newest a")];
  const to = (title) => {
    title.focus({ preventScroll: true });
    title.closest("li").scrollIntoView({ block: "nearest" });
  };
  place.addEventListener("click", (event) => {
    opened = event.target.closest?.(".result-title")?.closest("[data-id]").dataset.id ?? opened;
  });

  return {
    first() {
      const [title] = titles();
      if (title) to(title);
      return title !== undefined;
    },
    step(by) {
      const all = titles();
      const here = all.findIndex((title) => title.closest("li").contains(document.activeElement));
      if (here + by < 0) field.focus();
      else if (all[here + by]) to(all[here + by]);
      else if (here < 0 && all.length) to(all[0]);
      return all.length > 0;
    },
    expects: () => opened !== null,
    restore() {
      const item = opened && place.querySelector(`[data-id="${CSS.escape(opened)}"]`);
      opened = null;
      if (item) requestAnimationFrame(() => to(item.querySelector(".result-title")));
    },
  };
}
