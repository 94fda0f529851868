// The latest records, newest first, page by page.

import { focused, h, replace } from "./dom.js";
import { relative } from "./moments.js";
import { nameOf, recordHash } from "./recordtext.js";

const PAGE = 10;

/** A list with a button for more; `reload()` begins again from the newest and keeps as many as were shown. */
export function recent(app) {
  const list = h("ul", { class: "recent-list" });
  const foot = h("div", { class: "actions" });
  const state = { shown: 0, last: Promise.resolve() };
  const inTurn = (work) => () => (state.last = state.last.catch(() => {}).then(work));
  const fetchSome = (limit, offset) =>
    app.api.get("/v1/records", { limit, offset, any_scope: app.settings.caller.owner || null });
  const more = inTurn(async () => {
    const at = state.shown;
    const { records } = await fetchSome(PAGE + 1, at);
    put(records.slice(0, PAGE), records.length > PAGE);
    list.children[at]?.querySelector("a").focus();
  });
  const put = (records, left) => {
    list.append(...records.map(row));
    state.shown += records.length;
    const held = foot.contains(document.activeElement);
    replace(foot, left ? h("button", { type: "button", class: "button", on: { click: more } }, "Load more") : null);
    if (held) foot.querySelector("button")?.focus({ preventScroll: true });
  };
  const reload = inTurn(async () => {
    const limit = Math.max(state.shown, PAGE);
    const { records } = await fetchSome(limit + 1, 0);
    const back = focused(list);
    replace(list, records.length ? null : h("li", { class: "quiet" }, "Nothing is stored yet."));
    state.shown = 0;
    put(records.slice(0, limit), records.length > limit);
    back();
  });
  return {
    node: h(
      "section",
      { class: "card", "aria-labelledby": "recent-title" },
      h("h2", { id: "recent-title" }, "Newest first"),
      list,
      foot,
    ),
    reload,
  };
}

function row(record) {
  return h(
    "li",
    { class: "recent-row" },
    h("a", { href: recordHash(record.id), dir: "auto" }, nameOf(record, 120)),
    record.title ? h("p", { class: "recent-text", dir: "auto" }, nameOf({ text: record.text }, 160)) : null,
    h(
      "p",
      { class: "recent-about quiet" },
      h("span", null, record.kind === "chunk" ? "part of a file" : record.kind),
      record.category ? h("bdi", null, record.category) : null,
      Object.keys(record.scope ?? {}).length ? h("bdi", null, Object.values(record.scope).join(", ")) : null,
      h("time", { datetime: record.created_at, title: record.created_at }, relative(record.created_at)),
    ),
  );
}
