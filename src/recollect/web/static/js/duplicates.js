// While a record is being written: what is known already that says nearly the same.

import { h, replace } from "./dom.js";
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
  const state = { replaced: null, asked: null, timer: null };
  const choose = (record) => {
    state.replaced = record;
    replace(list);
    replace(
      chosen,
      record
        ? banner(record, () => {
            choose(null);
            area.focus();
            look();
          })
        : null,
    );
    if (record) area.focus();
  };
  const look = () => {
    clearTimeout(state.timer);
    state.asked?.abort();
    state.timer = setTimeout(
      () => ask({ text: area.value.trim(), scope: scope() }, app, state, { list, status, choose }),
      PAUSE_MS,
    );
  };
  area.addEventListener("input", look);
  const stop = () => {
    clearTimeout(state.timer);
    state.asked?.abort();
  };
  return { node: h("div", { class: "near-place" }, status, chosen, list), replaced: () => state.replaced, stop };
}

/** Asks quietly: a search that fails is no matter here. */
async function ask({ text, scope }, app, state, { list, status, choose }) {
  if (text.length < LEAST || state.replaced) {
    replace(list);
    return;
  }
  state.asked = new AbortController();
  try {
    const answer = await app.api.post(
      "/v1/search",
      { query: text.slice(0, MOST_ASKED), limit: 3, kind: "fact", ...(Object.keys(scope).length ? { scope } : {}) },
      { signal: state.asked.signal },
    );
    const found = answer.results.filter((one) => one.in_keyword || one.in_semantic);
    status.textContent = found.length ? `${several(found.length, "record")} near to this` : "";
    replace(list, found.length ? near(found, choose) : null);
  } catch {
    replace(list);
  }
}

function near(found, choose) {
  return [
    h("h2", { class: "near-title" }, "Most similar records"),
    h(
      "ul",
      { class: "near-list" },
      found.map((record) =>
        h(
          "li",
          { class: "near-row" },
          h("a", { href: recordHash(record.id), dir: "auto" }, nameOf({ text: record.text }, 140)),
          record.similarity ? h("span", { class: "quiet" }, `${Math.round(100 * record.similarity)} % alike`) : null,
          h(
            "button",
            {
              type: "button",
              class: "button small",
              "aria-label": `Supersede this record: ${nameOf({ text: record.text }, 60)}`,
              on: { click: () => choose(record) },
            },
            "Supersede this record",
          ),
        ),
      ),
    ),
  ];
}

function banner(record, cancel) {
  return h(
    "div",
    { class: "note replaces" },
    h("p", null, "Supersedes: ", h("bdi", null, nameOf({ text: record.text }, 140))),
    h("button", { type: "button", class: "button small", on: { click: cancel } }, "Store as a new record"),
  );
}
