// The search view before anything was asked.

import { button, h } from "./dom.js";
import { addressOf, age, placeOf, timeOf, titleOf } from "./words.js";

const NEWEST = 6;

/** What is newest, and how to begin; where nothing is kept yet, how to change that. */
export async function blankPage(desk) {
  let newest;
  try {
    const any_scope = desk.state.filters.any_scope;
    newest = (await desk.app.api.get("/v1/records", { limit: NEWEST, any_scope })).records;
  } catch {
    newest = null; // the search itself will say what is wrong
  }
  if (newest?.length === 0) return first(desk);
  return h("div", { class: "blank" },
    h("h2", null, "Search your memory"),
    h("p", { class: "quiet" },
      "Keywords and vectors are searched together. Every result shows what each source contributed. ",
      h("span", { class: "if-keys" }, h("kbd", null, "/"), " searches, ", h("kbd", null, "c"),
        " compares two rankings, ", h("kbd", null, "?"), " shows all keys.")),
    newest ? [h("h3", { class: "overline" }, "Newest"), h("ul", { class: "newest" }, newest.map(entry))] : null);
}

function entry(record) {
  return h("li", null, h("a", { href: addressOf(record), dir: "auto" }, titleOf(record)),
    h("span", { class: "quiet" }, h("bdi", null, placeOf(record)), " · ", age(timeOf(record))));
}

function first(desk) {
  const { owner, read_only: readOnly } = desk.app.settings.caller;
  return h("div", { class: "blank" },
    h("h2", null, "Nothing is stored yet"),
    h("p", { class: "quiet" }, "Add a fact, or index a folder of notes in a terminal: ",
      h("code", null, "recollect index ~/notes")),
    h("div", { class: "row" },
      readOnly ? null : h("a", { class: "button primary", href: "#/add" }, "Add a fact"),
      owner ? button("Search every scope", desk.anyScope) : null));
}
