// Writing: a new record, a record edited in place, a record superseded. Everything stored can be undone.

import { h, replace } from "./dom.js";
import { watchNear } from "./duplicates.js";
import { fields } from "./fields.js";
import { recent } from "./recent.js";
import { nameOf, recordHash, recordPath, recordText } from "./recordtext.js";

const EDITABLE = ["text", "title", "category", "tags", "importance", "decay"];
const NEW = [...EDITABLE, "expires"];

/** Fills `root` with the form for a new record and the list of the latest. */
export async function show(root, params, app) {
  const readOnly = app.settings.caller.read_only;
  const facets = await app.api.get("/v1/facets", { any_scope: app.settings.caller.owner || null }).catch(() => ({}));
  const list = recent(app);
  const form = readOnly ? null : addForm(app, facets, list.reload);
  replace(
    root,
    h(
      "div",
      { class: "adding" },
      h("h1", null, readOnly ? "Latest records" : "Add a record"),
      readOnly ? h("p", { class: "note" }, "You have read-only access.") : form.node,
      list.node,
    ),
  );
  if (form) form.first.focus(); // at once: later it would take the letters of who writes elsewhere already
  const again = () => list.reload().catch(() => {}); // what is shown stays, and the banner says why
  await list.reload();
  window.addEventListener("recollect:changed", again);
  return () => {
    window.removeEventListener("recollect:changed", again);
    form?.stop();
  };
}

function addForm(app, facets, stored) {
  const names = app.settings.caller.owner ? [...NEW, "scope"] : NEW;
  const holder = h("div", { class: "add-form" });
  const state = { node: holder, first: null, stop: null };
  const fresh = () => {
    state.stop?.();
    const inputs = fields({}, names, facets);
    const near = watchNear(inputs.first, app, () => inputs.read().scope ?? {});
    state.first = inputs.first;
    state.stop = near.stop;
    const save = async () => {
      const told = await store(app, inputs.read(), near.replaced());
      fresh();
      state.first.focus();
      announce(app, told, stored);
      await stored();
    };
    const [text, ...rest] = inputs.nodes;
    replace(holder, sheet({ save, words: "Store", rows: [text, near.node, h("div", { class: "entry-grid" }, rest)] }));
  };
  fresh();
  return state;
}

async function store(app, said, replaced) {
  const body = Object.fromEntries(
    Object.entries(said).filter(([, value]) => value !== null && value !== "" && !empty(value)),
  );
  if (replaced) body.supersedes = replaced.id;
  const record = await app.api.post("/v1/records", body);
  return { record, what: record.change.action };
}

function empty(value) {
  return typeof value === "object" && Object.keys(value).length === 0;
}

/** Takes back one change, and no other that came after it. */
export function takeBack(app, { id, seq }) {
  return app.api.post("/v1/undo", { id, seq });
}

const OUTCOMES = {
  supersedes: ["Stored. It supersedes the old record.", "The old record is current again."],
  update: ["This record was already stored; its fields are updated.", "The change is undone."],
  nothing: ["This record was already stored.", null],
  add: ["Stored.", "The new record is removed."],
};

function announce(app, { record, what }, stored) {
  const [said, taken] = OUTCOMES[what] ?? OUTCOMES.add;
  const undo = async () => {
    await takeBack(app, record.change);
    await stored();
    return taken;
  };
  app.toast(said, { undo: taken ? undo : null, link: { href: recordHash(record.id), text: "Open it" } });
}

/** The form that edits a fact in place; `done(record)` after saving, `done(null)` where nothing was changed. */
export function editForm(record, app, { done, cancel }) {
  const inputs = fields(record, EDITABLE);
  const save = async () => {
    const changed = inputs.changed();
    const any = Object.keys(changed).length > 0;
    await done(any ? await app.api.patch(recordPath("records", record.id), changed) : null);
  };
  const [text, ...rest] = inputs.nodes;
  return {
    node: sheet({
      save,
      cancel,
      words: "Save",
      rows: [text, h("div", { class: "entry-grid" }, rest)],
      label: "Edit this record",
    }),
    first: inputs.first,
  };
}

/** The form that writes what holds now, the old text beside it. */
export function supersedeForm(record, app, { done, cancel }) {
  const inputs = fields({ text: record.text }, ["text"]);
  const save = async () => done(await app.api.post("/v1/supersede", { id: record.id, text: inputs.read().text }));
  inputs.nodes[0].querySelector("label").textContent = "New text";
  const rows = h(
    "div",
    { class: "beside" },
    h(
      "div",
      { class: "entry" },
      h("p", { class: "beside-title" }, "Current text"),
      h("div", { class: "beside-old" }, recordText(record)),
    ),
    inputs.nodes,
  );
  const hint = h(
    "p",
    { class: "entry-hint" },
    "The new record takes the title, the category, the tags and the scope of the old one, which stays in its history.",
  );
  return {
    node: sheet({ save, cancel, words: "Supersede", rows: [rows, hint], label: `Supersede ${nameOf(record, 60)}` }),
    first: inputs.first,
  };
}

/** A form with its buttons: Ctrl+Enter saves, Escape cancels, a refusal is said beside the button. */
function sheet({ save, cancel = null, words, rows, label = words }) {
  const said = h("p", { class: "form-error", role: "alert" });
  const submit = h(
    "button",
    { type: "submit", class: "button primary", "aria-keyshortcuts": "Control+Enter" },
    words,
    h("kbd", { "aria-hidden": "true" }, "Ctrl ↵"),
  );
  const form = h(
    "form",
    { class: "sheet", "aria-label": label, novalidate: true },
    rows,
    h(
      "div",
      { class: "actions" },
      submit,
      cancel ? h("button", { type: "button", class: "button", on: { click: cancel } }, "Cancel") : null,
      said,
    ),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    await attempt(form, submit, said, save);
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    } else if (event.key === "Escape" && cancel) {
      event.preventDefault();
      cancel();
    }
  });
  return form;
}

async function attempt(form, submit, said, save) {
  const text = form.querySelector("textarea");
  said.textContent = "";
  if (!text.value.trim()) {
    said.textContent = "The text must not be empty.";
    text.focus();
    return;
  }
  if (submit.disabled) return;
  submit.disabled = true;
  try {
    await save();
  } catch (error) {
    said.textContent = [error.message, error.hint].filter(Boolean).join(" ");
  } finally {
    submit.disabled = false;
  }
}
