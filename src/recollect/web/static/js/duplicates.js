// While a record is being written: known records that say nearly the same.

import { button, h, replace } from "./dom.js";
import { several } from "./moments.js";
import { nameOf, recordHash } from "./recordtext.js";

const PAUSE_MS = 450;
const LEAST = 12;
const MOST_ASKED = 1000;

/** Watches a text field; `node` shows what is near in the scope, `replaced()` is the record that is to be replaced. */
export function watchNear(area, app, scope) {
  const list = h("div", { class: "near" });
  const status = h("p", { class: "hidden", role: "status" });
  const chosen = h("div");
  let replaced = null;
  let asked = null;
  let timer = null;

  function choose(record) {
    replaced = record;
    replace(list);
    replace(chosen, record ? banner(record, cancel) : null);
    if (record) area.focus();
  }

  function cancel() {
    choose(null);
    area.focus();
    look();
  }

  function look() {
    stop();
    timer = setTimeout(ask, PAUSE_MS);
  }

  function stop() {
    clearTimeout(timer);
    asked?.abort();
  }

  async function ask() {
    const text = area.value.trim();
    if (text.length < LEAST || replaced) {
      replace(list);
      return;
    }
    asked = new AbortController();
    const body = { query: text.slice(0, MOST_ASKED), limit: 3, kind: "fact" };
    if (Object.keys(scope()).length) body.scope = scope();
    try {
      const { results, likely } = await app.api.post("/v1/search", body, { signal: asked.signal });
      const similar = results.slice(0, likely);
      status.textContent = similar.length ? `${several(similar.length, "record")} near to this` : "";
      replace(list, similar.length ? near(similar, choose) : null);
    } catch {
      replace(list); // the record can be stored without it
    }
  }

  area.addEventListener("input", look);
  return { node: h("div", { class: "near-place" }, status, chosen, list), replaced: () => replaced, stop };
}

function near(records, choose) {
  const row = (record) => h("li", { class: "near-row" },
    h("a", { href: recordHash(record.id), dir: "auto" }, nameOf({ text: record.text }, 140)),
    record.similarity ? h("span", { class: "quiet" }, `${Math.round(100 * record.similarity)} % alike`) : null,
    button("Supersede this record", () => choose(record), { class: "button small",
      "aria-label": `Supersede this record: ${nameOf({ text: record.text }, 60)}` }));
  return [h("h2", { class: "near-title" }, "Most similar records"), h("ul", { class: "near-list" }, records.map(row))];
}

function banner(record, cancel) {
  return h("div", { class: "note replaces" },
    h("p", null, "Supersedes: ", h("bdi", null, nameOf({ text: record.text }, 140))),
    button("Store as a new record", cancel, { class: "button small" }));
}
