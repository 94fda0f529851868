// One record: what it says, what is known of it, what became of it, and what can be done with it.

import { h, replace } from "./dom.js";
import { editForm, supersedeForm, takeBack } from "./editing.js";
import { listen } from "./keys.js";
import { known } from "./known.js";
import { moment } from "./moments.js";
import { openFile } from "./opened.js";
import { note, opener, reveal } from "./reading.js";
import { nameOf, readable, recordHash, recordPath, recordText } from "./recordtext.js";
import { related } from "./related.js";
import { timeline } from "./timeline.js";
import { isMarkdown } from "./words.js";

const TAKEN_BACK = {
  add: "The new record is removed.",
  update: "The edit is undone.",
  supersede: "It is current again.",
  forget: "It is restored.",
};

const LONG = 1500;

/** Fills `root` with the record of `params.id`. */
export async function show(root, params, app) {
  const view = { root, app, id: params.id, alive: true };
  await refresh(view);
  const press = (name) => () => {
    const button = root.querySelector(`[data-action=${name}]`);
    button?.click();
    return button !== null;
  };
  const stop = listen({ e: press("edit"), s: press("supersede"), Delete: press("forget") });
  return () => {
    view.alive = false;
    stop();
  };
}

async function refresh(view, focus = null) {
  const { root, app, id } = view;
  let record;
  try {
    record = await app.api.get(recordPath("records", id));
  } catch (error) {
    if (error.status !== 404) throw error;
    return absent(view);
  }
  const history = await app.api.get(recordPath("history", id)).catch(() => ({ events: [], chain: [] }));
  view.changed = history.events.some(({ action }) => action !== "add");
  const rendered = isMarkdown(record) && readable(record);
  const [story, file, text] = await Promise.all([
    timeline(record, history, app.api),
    rendered ? null : openFile(record, app.api),
    rendered ? whole(app, record) : recordText(record),
  ]);
  if (!view.alive) return;
  const notes = h("div");
  document.title = `${nameOf(record, 60)} · Recollect`;
  replace(root, h("article", { class: "record" }, head(record), body(view, record, text), notes, known(record),
    file, story));
  related(app, id, root.querySelector(".prose")).then((section) => replace(notes, section)); // the page does not wait for it
  reveal(root.querySelector(".reading-body"));
  if (focus) root.querySelector(focus)?.focus();
}

/** The record's text; of a file's part the note around it, opened there. */
async function whole(app, record) {
  const text = await note(app, record);
  if (record.kind !== "chunk") return text;
  return h("div", { class: "reading-body card", tabindex: "0", role: "region", "aria-label": record.path }, text);
}

function head(record) {
  return h(
    "header",
    { class: "record-head" },
    h(
      "p",
      { class: "crumbs" },
      h("span", { class: "badge" }, record.kind === "chunk" ? "part of a file" : record.kind),
      record.superseded_by ? h("span", { class: "badge warn" }, "superseded") : null,
      expired(record) ? h("span", { class: "badge warn" }, "expired") : null,
      opener(record),
    ),
    h("h1", { class: record.title ? null : "hidden", dir: "auto", tabindex: "-1" }, nameOf(record, 300)),
    record.superseded_by
      ? h(
          "p",
          { class: "note" },
          "Superseded: ",
          h("a", { href: recordHash(record.superseded_by) }, "see what took its place"),
          ".",
        )
      : null,
  );
}

function expired(record) {
  return record.expires_at && new Date(record.expires_at) <= new Date();
}

function body(view, record, text) {
  const place = h("div", { class: "record-body" });
  const buttons = mayChange(record, view.app.settings.caller) ? actions(view, record, place, text) : null;
  replace(place, arranged(record, text, buttons));
  return place;
}

/** Whether the record is the caller's to change: one who is bound to a scope reads what is everyone's, no more. */
function mayChange(record, { owner, read_only: readOnly, scope }) {
  const bound = Object.keys(scope ?? {})[0];
  return !readOnly && (owner || !bound || record.scope?.[bound] !== undefined);
}

/** Under a short text, above a long one: the buttons are to be in sight. */
function arranged(record, text, buttons) {
  return record.text.length > LONG ? [buttons, text] : [text, buttons];
}

function actions(view, record, place, text) {
  const back = (focus) => {
    replace(place, arranged(record, text, row));
    if (focus) row.querySelector(`[data-action=${focus}]`)?.focus();
  };
  const open = (form) => {
    replace(place, form.node);
    form.first.focus();
  };
  const editing = { done: (stored) => edited(view, stored), cancel: () => back("edit") };
  const superseding = { done: (stored) => superseded(view, record, stored), cancel: () => back("supersede") };
  const fact = record.kind === "fact";
  const row = h(
    "div",
    { class: "actions" },
    fact ? button("edit", "Edit", "e", () => open(editForm(record, view.app, editing))) : null,
    fact && !record.superseded_by
      ? button("supersede", "Supersede", "s", () => open(supersedeForm(record, view.app, superseding)))
      : null,
    button("forget", "Forget", "Delete", () => forget(view, record)),
    view.changed ? button("undo", "Undo last change", null, () => goBack(view)) : null,
  );
  return row;
}

function button(name, words, key, act) {
  return h(
    "button",
    { type: "button", class: "button", dataset: { action: name }, "aria-keyshortcuts": key, on: { click: act } },
    words,
    key ? h("kbd", { "aria-hidden": "true" }, key === "Delete" ? "Del" : key) : null,
  );
}

/** One step back, whenever it was taken and by whom. */
async function goBack(view) {
  try {
    const { undone } = await view.app.api.post("/v1/undo", { id: view.id });
    await refresh(view, "[data-action=undo]");
    view.app.toast(TAKEN_BACK[undone] ?? "Undone.");
  } catch (error) {
    view.app.toast([error.message, error.hint].filter(Boolean).join(" "), { kind: "error" });
  }
}

async function edited(view, stored) {
  await refresh(view, "[data-action=edit]");
  if (stored) view.app.toast("Saved.", { undo: () => undo(view, stored.change, "The edit is undone.") });
}

function superseded(view, old, stored) {
  view.app.go(recordHash(stored.id));
  view.app.toast("Superseded. This is the new record.", {
    undo: async () => {
      await takeBack(view.app, stored.change);
      reopen(view.app, old.id);
      return "The old record is current again.";
    },
  });
}

async function forget(view, record) {
  let change;
  try {
    ({ changes: [change] } = await view.app.api.delete(recordPath("records", record.id)));
  } catch (error) {
    view.app.toast([error.message, error.hint].filter(Boolean).join(" "), { kind: "error" });
    return;
  }
  await absent(view);
  view.app.toast("Forgotten.", { undo: () => undo(view, change, "It is restored.") });
}

async function undo(view, change, words) {
  await takeBack(view.app, change);
  if (view.alive) await refresh(view, "h1");
  else reopen(view.app, change.id);
  return words;
}

/** Shows a record's page, also where that is the page that is shown, and is no longer true. */
function reopen(app, id) {
  if (new URL(recordHash(id), location.href).hash === location.hash) window.dispatchEvent(new Event("hashchange"));
  else app.go(recordHash(id));
}

/** What can be said of an id under which nothing is found: that it is forgotten, or that nobody knows it. */
async function absent(view) {
  const { root, app, id } = view;
  const history = await app.api.get(recordPath("history", id)).catch(() => null);
  if (!view.alive) return;
  const last = history?.events?.at(-1);
  const bring = async () => app.toast(await undo(view, { id, seq: last.seq }, "It is restored."));
  document.title = "Record · Recollect";
  const search = h(
    "p",
    null,
    h("a", { href: "#/search" }, "Search"),
    " for it, or look through ",
    h("a", { href: "#/add" }, "what was stored last"),
    ".",
  );
  if (last?.action !== "forget") {
    replace(
      root,
      h(
        "article",
        { class: "record" },
        h("h1", null, "No record has this id"),
        h("p", { class: "path" }, h("bdi", null, id)),
        h("p", null, "The id may be mistyped, the record purged, or it belongs to another scope."),
        search,
      ),
    );
    return;
  }
  replace(
    root,
    h(
      "article",
      { class: "record" },
      h("h1", { tabindex: "-1" }, "This record is forgotten"),
      h("p", null, "Since ", moment(last.at), " no search finds it."),
      app.settings.caller.read_only
        ? null
        : h("p", null, h("button", { type: "button", class: "button", on: { click: bring } }, "Restore")),
      search,
    ),
  );
  root.querySelector("h1").focus();
}
