// Writing: a new record, a record edited in place, a record superseded. Everything stored can be undone.

import { button, card, focused, h, replace } from "./dom.js";
import { watchNear } from "./duplicates.js";
import { fields } from "./fields.js";
import { relative } from "./moments.js";
import { errorText } from "./notice.js";
import { nameOf, recordHash, recordPath, recordText } from "./recordtext.js";
import { inWords } from "./words.js";

const EDITABLE = ["text", "title", "category", "tags", "importance", "decay"];
const NEW = [...EDITABLE, "expires"];
const PAGE = 10;

/** Fills `root` with the form for a new record and the list of the latest. */
export async function show(root, params, app) {
  const readOnly = app.settings.caller.read_only;
  const facets = await app.api.get("/v1/facets", { any_scope: app.settings.caller.owner || null }).catch(() => ({}));
  const list = recent(app);
  const form = readOnly ? null : addForm(app, facets, list.reload);
  replace(root, h("div", { class: "adding" },
    h("h1", null, readOnly ? "Latest records" : "Add a record"),
    readOnly ? h("p", { class: "note" }, "You have read-only access.") : form.node,
    list.node));
  if (form) form.first.focus(); // at once: later it would take the letters of who writes elsewhere already
  const again = () => list.reload().catch(() => {}); // the list stays as it is, and the banner says why
  await list.reload();
  window.addEventListener("recollect:changed", again);
  return () => {
    window.removeEventListener("recollect:changed", again);
    form?.stop();
  };
}

/** The latest records with a button for more; `reload()` begins again from the newest and shows as many as before. */
function recent(app) {
  const list = h("ul", { class: "recent-list" });
  const foot = h("div", { class: "actions" });
  let shown = 0;
  let last = Promise.resolve();
  const inTurn = (work) => () => (last = last.catch(() => {}).then(work));
  const fetchSome = async (limit, offset) => {
    const any_scope = app.settings.caller.owner || null;
    return (await app.api.get("/v1/records", { limit, offset, any_scope })).records;
  };
  const more = inTurn(async () => {
    const at = shown;
    const records = await fetchSome(PAGE + 1, at);
    put(records.slice(0, PAGE), records.length > PAGE);
    list.children[at]?.querySelector("a").focus();
  });
  const put = (records, left) => {
    list.append(...records.map(row));
    shown += records.length;
    const held = foot.contains(document.activeElement);
    replace(foot, left ? button("Load more", more) : null);
    if (held) foot.querySelector("button")?.focus({ preventScroll: true });
  };
  const reload = inTurn(async () => {
    const limit = Math.max(shown, PAGE);
    const records = await fetchSome(limit + 1, 0);
    const back = focused(list);
    replace(list, records.length ? null : h("li", { class: "quiet" }, "Nothing is stored yet."));
    shown = 0;
    put(records.slice(0, limit), records.length > limit);
    back();
  });
  return { node: card("recent", "Newest first", list, foot), reload };
}

function row(record) {
  return h("li", { class: "recent-row" },
    h("a", { href: recordHash(record.id), dir: "auto" }, nameOf(record, 120)),
    record.title ? h("p", { class: "recent-text", dir: "auto" }, inWords(nameOf({ text: record.text }, 160), record)) : null,
    h("p", { class: "recent-about quiet" },
      h("span", null, record.kind === "chunk" ? "part of a file" : record.kind),
      record.category ? h("bdi", null, record.category) : null,
      Object.keys(record.scope ?? {}).length ? h("bdi", null, Object.values(record.scope).join(", ")) : null,
      h("time", { datetime: record.created_at, title: record.created_at }, relative(record.created_at))));
}

function addForm(app, facets, reload) {
  const names = app.settings.caller.owner ? [...NEW, "scope"] : NEW;
  const form = { node: h("div", { class: "add-form" }), first: null, stop: null };
  const begin = () => {
    form.stop?.();
    const inputs = fields({}, names, facets);
    const near = watchNear(inputs.first, app, () => inputs.read().scope ?? {});
    form.first = inputs.first;
    form.stop = near.stop;
    const save = async () => {
      const record = await store(app, inputs.read(), near.replaced());
      begin();
      form.first.focus();
      announce(app, record, reload);
      await reload();
    };
    const [text, ...rest] = inputs.nodes;
    replace(form.node, sheet({ save, words: "Store", rows: [text, near.node, h("div", { class: "entry-grid" }, rest)] }));
  };
  begin();
  return form;
}

function store(app, values, replaced) {
  const isSet = (value) => value !== null && value !== "" && !(typeof value === "object" && !Object.keys(value).length);
  const body = Object.fromEntries(Object.entries(values).filter(([, value]) => isSet(value)));
  if (replaced) body.supersedes = replaced.id;
  return app.api.post("/v1/records", body);
}

/** Takes back one change, and no other that came after it. */
export function takeBack(app, { id, seq }) {
  return app.api.post("/v1/undo", { id, seq });
}

const OUTCOMES = { // action → the message after it, and the message when it is undone
  supersedes: ["Stored. It supersedes the old record.", "The old record is current again."],
  update: ["This record was already stored; its fields are updated.", "The change is undone."],
  nothing: ["This record was already stored.", null],
  add: ["Stored.", "The new record is removed."],
};

function announce(app, record, reload) {
  const [message, undone] = OUTCOMES[record.change.action] ?? OUTCOMES.add;
  const undo = async () => {
    await takeBack(app, record.change);
    await reload();
    return undone;
  };
  app.toast(message, { undo: undone ? undo : null, link: { href: recordHash(record.id), text: "Open it" } });
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
  const rows = [text, h("div", { class: "entry-grid" }, rest)];
  return { node: sheet({ save, cancel, words: "Save", rows, label: "Edit this record" }), first: inputs.first };
}

/** The form for the text that replaces the old one, which is shown beside it. */
export function supersedeForm(record, app, { done, cancel }) {
  const inputs = fields({ text: record.text }, ["text"]);
  const save = async () => done(await app.api.post("/v1/supersede", { id: record.id, text: inputs.read().text }));
  inputs.nodes[0].querySelector("label").textContent = "New text";
  const rows = [
    h("div", { class: "beside" },
      h("div", { class: "entry" },
        h("p", { class: "beside-title" }, "Current text"),
        h("div", { class: "beside-old" }, recordText(record))),
      inputs.nodes),
    h("p", { class: "entry-hint" },
      "The new record takes the title, the category, the tags and the scope of the old one, which stays in its history."),
  ];
  const label = `Supersede ${nameOf(record, 60)}`;
  return { node: sheet({ save, cancel, words: "Supersede", rows, label }), first: inputs.first };
}

/** A form with its buttons: Ctrl+Enter saves, Escape cancels, a refusal is shown beside the button. */
function sheet({ save, cancel = null, words, rows, label = words }) {
  const problem = h("p", { class: "form-error", role: "alert" });
  const submit = h("button", { type: "submit", class: "button primary", "aria-keyshortcuts": "Control+Enter" },
    words, h("kbd", { "aria-hidden": "true" }, "Ctrl ↵"));
  const form = h("form", { class: "sheet", "aria-label": label, novalidate: true }, rows,
    h("div", { class: "actions" }, submit, cancel ? button("Cancel", cancel) : null, problem));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    await saveOnce(form, submit, problem, save);
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

async function saveOnce(form, submit, problem, save) {
  const text = form.querySelector("textarea");
  problem.textContent = "";
  if (!text.value.trim()) {
    problem.textContent = "The text must not be empty.";
    text.focus();
    return;
  }
  if (submit.disabled) return;
  submit.disabled = true;
  try {
    await save();
  } catch (error) {
    problem.textContent = errorText(error);
  } finally {
    submit.disabled = false;
  }
}
