// One record: its text, its fields, its history, and what can be done with it.

import { button, card, h, replace } from "./dom.js";
import { editForm, supersedeForm, takeBack } from "./editing.js";
import { DECAYS, weight } from "./fields.js";
import { listen } from "./keys.js";
import { moment } from "./moments.js";
import { errorText } from "./notice.js";
import { note, opener, reveal } from "./reading.js";
import { nameOf, readable, recordHash, recordPath, recordText } from "./recordtext.js";
import { related } from "./related.js";
import { timeline } from "./timeline.js";
import { isMarkdown, linesOf } from "./words.js";

const UNDONE = {
  add: "The new record is removed.",
  update: "The edit is undone.",
  supersede: "It is current again.",
  forget: "It is restored.",
};

const LONG = 1500;
const LONGEST_LINE = 2000;

const FRESHNESS = {
  changed: "The file has changed since it was indexed: the lines may have moved. Index again to follow it.",
  missing: "The file is no longer there; this is what was indexed of it.",
  unreadable: "The file cannot be read now; this is what was indexed of it.",
  unknown: "The file was not indexed on this machine, so it is not known whether it has changed.",
};

/** Fills `root` with the record of `params.id`. */
export async function show(root, params, app) {
  const view = { root, app, id: params.id, alive: true };
  await refresh(view);
  const press = (name) => () => {
    const pressed = root.querySelector(`[data-action=${name}]`);
    pressed?.click();
    return pressed !== null;
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
  replace(root, h("article", { class: "record" }, head(record), body(view, record, text), notes, details(record),
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
  return h("header", { class: "record-head" },
    h("p", { class: "crumbs" },
      h("span", { class: "badge" }, record.kind === "chunk" ? "part of a file" : record.kind),
      record.superseded_by ? h("span", { class: "badge warn" }, "superseded") : null,
      expired(record) ? h("span", { class: "badge warn" }, "expired") : null,
      opener(record)),
    h("h1", { class: record.title ? null : "hidden", dir: "auto", tabindex: "-1" }, nameOf(record, 300)),
    record.superseded_by ? h("p", { class: "note" }, "Superseded: ",
      h("a", { href: recordHash(record.superseded_by) }, "see what took its place"), ".") : null);
}

function expired(record) {
  return record.expires_at && new Date(record.expires_at) <= new Date();
}

/** Category, tags, scope, weight, times and source; what is not set is left out. */
function details(record) {
  const scope = Object.entries(record.scope ?? {});
  const lines = record.lines ? `, ${linesOf(record.lines)}` : "";
  const rows = [
    ["Category", record.category && h("bdi", null, record.category)],
    ["Tags", record.tags?.length
      ? h("span", { class: "chips" }, record.tags.map((tag) => h("bdi", { class: "record-tag" }, tag))) : null],
    ["Scope", scope.length
      ? scope.map(([part, name], at) => [at ? ", " : "", `${part} `, h("bdi", null, name)]) : "everyone"],
    ["Importance", weight(record.importance)],
    ["Decay", record.decay ? `${record.decay}: ${DECAYS[record.decay] ?? ""}` : null],
    ["Happened", moment(record.happened_at)],
    ["Stored", moment(record.created_at)],
    ["Edited", moment(record.edited_at)],
    ["Expires", moment(record.expires_at)],
    ["Superseded", moment(record.superseded_at)],
    ["Written by", [record.origin, record.author ? [": ", h("bdi", null, record.author)] : ""]],
    ["Source", record.source && h("bdi", null, record.source)],
    ["Conversation", record.kind === "turn" && record.place && h("bdi", null, record.place)],
    ["File", record.path && [h("bdi", null, record.path), record.place ? `, ${record.place}` : lines]],
    ["Short id", record.short_id && record.short_id !== record.id && h("code", null, record.short_id)],
    ["Id", h("code", { class: "id" }, record.id)],
  ];
  return card("about", "Details", h("dl", { class: "known" },
    rows.filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", { dir: "auto" }, value)])));
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
  const row = h("div", { class: "actions" },
    fact ? action("edit", "Edit", "e", () => open(editForm(record, view.app, editing))) : null,
    fact && !record.superseded_by
      ? action("supersede", "Supersede", "s", () => open(supersedeForm(record, view.app, superseding))) : null,
    action("forget", "Forget", "Delete", () => view.app.attempt(() => forget(view, record))),
    view.changed ? action("undo", "Undo last change", null, () => view.app.attempt(() => goBack(view))) : null);
  return row;
}

function action(name, words, key, act) {
  const hint = key ? h("kbd", { "aria-hidden": "true" }, key === "Delete" ? "Del" : key) : null;
  return button([words, hint], act, { dataset: { action: name }, "aria-keyshortcuts": key });
}

/** Undoes the last change, whenever it was made and by whom. */
async function goBack(view) {
  const { undone } = await view.app.api.post("/v1/undo", { id: view.id });
  await refresh(view, "[data-action=undo]");
  view.app.toast(UNDONE[undone] ?? "Undone.");
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
  const { changes: [change] } = await view.app.api.delete(recordPath("records", record.id));
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

/** The page of an id under which no record is found: it is forgotten, or unknown. */
async function absent(view) {
  const { root, app, id } = view;
  const history = await app.api.get(recordPath("history", id)).catch(() => null);
  if (!view.alive) return;
  const last = history?.events?.at(-1);
  const restore = async () => app.toast(await undo(view, { id, seq: last.seq }, "It is restored."));
  document.title = "Record · Recollect";
  const search = h("p", null, h("a", { href: "#/search" }, "Search"), " for it, or look through ",
    h("a", { href: "#/add" }, "what was stored last"), ".");
  const forgotten = last?.action === "forget";
  replace(root, h("article", { class: "record" },
    forgotten ? [
      h("h1", { tabindex: "-1" }, "This record is forgotten"),
      h("p", null, "Since ", moment(last.at), " no search finds it."),
      app.settings.caller.read_only ? null : h("p", null, button("Restore", restore)),
    ] : [
      h("h1", null, "No record has this id"),
      h("p", { class: "path" }, h("bdi", null, id)),
      h("p", null, "The id may be mistyped, the record purged, or it belongs to another scope."),
    ],
    search));
  if (forgotten) root.querySelector("h1").focus();
}

/** The lines around a chunk with its own marked; null where there is no file, words where it cannot be read. */
async function openFile(record, api) {
  if (record.kind !== "chunk" || !record.path) return null;
  const panel = (path, ...inside) =>
    card("file", "In its file", h("p", { class: "path" }, h("bdi", null, path)), inside);
  try {
    const file = await api.get(recordPath("file", record.id));
    const { freshness } = file;
    const warning = FRESHNESS[freshness];
    return panel(file.path, warning ? h("p", { class: "note", dataset: { freshness } }, warning) : null,
      file.text ? listing(file) : null);
  } catch (error) {
    return panel(record.path, h("p", { class: "note" }, errorText(error)));
  }
}

function listing(file) {
  const [first, last] = file.lines;
  const rows = file.text.split(/\r\n|\r|\n/);
  if (rows.at(-1) === "") rows.pop();
  const shownLast = file.first_line + rows.length - 1;
  const words = `Lines ${file.first_line}–${shownLast} of ${file.total_lines}; the chunk is ${linesOf(file.lines)}.`;
  const label = `${file.path}, lines ${file.first_line} to ${shownLast}`;
  const code = h("div", { class: "code", tabindex: "0", role: "region", "aria-label": label },
    h("ol", { class: "code-lines", start: file.first_line },
      rows.map((text, at) => codeLine(text, file.first_line + at, first, last))));
  requestAnimationFrame(() => scrollToChunk(code));
  return [file.freshness === "missing" ? null : h("p", { class: "quiet" }, words), code];
}

function codeLine(text, number, first, last) {
  const own = number >= first && number <= last;
  const cut = text.length > LONGEST_LINE ? `${text.slice(0, LONGEST_LINE)}… (${text.length} characters)` : text;
  return h("li", { class: own ? "code-line code-mine" : "code-line", value: number, dataset: { line: number } },
    h("span", { class: "code-number", "aria-hidden": "true" }, number),
    h(own ? "mark" : "span", { class: "code-text", dir: "auto" }, cut || " "));
}

/** Scrolls the listing, and only the listing, so that the chunk stands near its top. */
function scrollToChunk(code) {
  const own = code.querySelector(".code-mine");
  if (own) code.scrollTop = own.offsetTop - code.clientHeight / 4;
}
