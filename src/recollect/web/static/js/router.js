// Hash routes: `#/search?q=…`, `#/record/ID`, `#/add`, `#/facts`, `#/status`, `#/lab`, `#/lab/NAME`; views are loaded when shown.

const VIEWS = {
  search: () => import("./search.js"),
  record: () => import("./record.js"),
  add: () => import("./editing.js"),
  facts: () => import("./facts.js"),
  status: () => import("./status.js"),
  lab: () => import("./lab.js"),
};
const TITLES = { search: "Search", record: "Record", add: "Add", facts: "Facts", status: "Status", lab: "Lab" };

/** The view's name and its params: `query`, the `id` of a record and the `name` of a report. */
function parse(hash) {
  const [, path, query] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash);
  const [name, ...parts] = path.split("/");
  const rest = decode(parts.join("/"));
  const view = name in VIEWS ? name : "search";
  return { view, params: { id: rest, name: rest, query: new URLSearchParams(query) } };
}

/**
 * Shows the view of the address in `root`, and again whenever the address changes. A view may return a function that
 * cleans up after it; where that has an `update(params)`, a change within the same view is told to it instead.
 */
export function start(root, app, shown) {
  let cleanup = null;
  let current = "";
  let turn = 0;
  async function show() {
    const { view, params } = parse(location.hash);
    if (view === current && cleanup?.update) return cleanup.update(params);
    const mine = ++turn;
    current = view;
    const fresh = document.createElement("div");
    fresh.className = `view view-${view}`;
    await cleanup?.();
    cleanup = null;
    document.title = `${TITLES[view]} · Recollect`;
    shown(view, params);
    root.replaceChildren(fresh);
    try {
      const module = await VIEWS[view]();
      if (mine !== turn) return;
      const done = await module.show(fresh, params, app);
      if (mine === turn) cleanup = typeof done === "function" ? done : null;
      else if (typeof done === "function") done();
    } catch (error) {
      if (mine === turn) app.fail(fresh, error, show);
    }
  }
  window.addEventListener("hashchange", show);
  return show();
}

/** Changes the address without showing the view again; a new entry of the back button with `push`. */
export function rewrite(hash, { push = false } = {}) {
  if (hash === location.hash) return;
  history[push ? "pushState" : "replaceState"](null, "", hash);
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
