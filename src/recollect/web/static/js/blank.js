// The search view without a query.

import { button, h } from "./dom.js";
import { takeBack } from "./editing.js";
import { recordHash } from "./recordtext.js";
import { age, placeOf, timeOf, titleOf } from "./words.js";

const NEWEST = 6;

/** The newest records and a line to add a fact; for an empty store, how to fill it. */
export async function blankPage(view) {
  let newest;
  try {
    const any_scope = view.state.filters.any_scope;
    newest = (await view.app.api.get("/v1/records", { limit: NEWEST, any_scope })).records;
  } catch {
    newest = null; // the search itself will say what is wrong
  }
  if (newest?.length === 0) return first(view);
  return h("div", { class: "blank" },
    h("h2", null, "Search your memory"),
    h("p", { class: "quiet" },
      "Keywords and vectors are searched together. Every result shows what each source contributed. ",
      h("span", { class: "if-keys" }, h("kbd", null, "/"), " searches, ", h("kbd", null, "c"),
        " compares two rankings, ", h("kbd", null, "?"), " shows all keys.")),
    quickAdd(view.app),
    newest ? [h("h3", { class: "overline" }, "Newest"), h("ul", { class: "newest" }, newest.map(entry))] : null);
}

function entry(record) {
  return h("li", null, h("a", { href: recordHash(record.id), dir: "auto" }, titleOf(record)),
    h("span", { class: "quiet" }, h("bdi", null, placeOf(record)), " · ", age(timeOf(record))));
}

/** One line that stores a fact. */
function quickAdd(app) {
  if (app.settings.caller.read_only) return null;
  const field = h("input", { type: "text", name: "fact", dir: "auto", "aria-label": "Remember a fact", autocomplete: "off",
    placeholder: "Remember something: Anneke has the spare key" });
  const store = async (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!text) return;
    const { change } = await app.api.post("/v1/records", { text });
    field.value = "";
    const undo = change.action === "add" ? async () => {
      await takeBack(app, change);
      return "The new record is removed.";
    } : null;
    app.toast(undo ? "Remembered." : "This was known already.", { undo, link: { href: recordHash(change.id), text: "Open" } });
  };
  return h("form", { class: "quick-add", on: { submit: (event) => app.attempt(() => store(event)) } }, field,
    h("button", { class: "button" }, "Remember"));
}

/** The page of an empty store: index a folder, try the sample, or store a fact. */
function first(view) {
  const { app } = view;
  const { owner, read_only: readOnly } = app.settings.caller;
  const { sample } = app.settings;
  const trySample = () => app.attempt(() => indexSample(app, sample));
  return h("div", { class: "blank" },
    h("h2", null, "Nothing is stored yet"),
    h("p", { class: "quiet" }, "Index a folder of notes in a terminal, and this page shows them as they come in: ",
      h("code", null, "recollect index ~/notes")),
    h("div", { class: "row" },
      sample && !readOnly ? button("Try the sample notes", trySample, { class: "button primary" }) : null,
      readOnly ? null : h("a", { class: "button", href: "#/add" }, "Add a fact"),
      owner ? button("Search every scope", view.anyScope) : null),
    quickAdd(app));
}

/** Indexes the notes that come with the package, and asks the first question about them. */
async function indexSample(app, folder) {
  await app.api.post("/v1/index", { paths: [folder] });
  app.toast("The sample notes are being indexed.");
  app.go(`#/search?${new URLSearchParams({ q: "the machine hums but does not drain" })}`);
}
