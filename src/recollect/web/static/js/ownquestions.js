// "Measure on your own questions": ask, tick what answers it, save; then every way of searching is measured on them.

import { button, card, folded, h, replace } from "./dom.js";
import { measured } from "./measured.js";
import { several } from "./moments.js";
import { errorText } from "./notice.js";
import { nameOf, recordHash } from "./recordtext.js";

const POOL = 20;
const STUDY_MS = 310000; // the server gives a study up after 300 s
const SYSTEMS = ["keyword", "vector", "rrf", "weighted", "default"];
const KEY = "recollect.questions";
const MOST = 500;
const ABOUT = "Ask a question, select the records that answer it, and save it. What no source finds cannot be ticked, "
  + "so this compares ways of searching; it does not say what all of them miss.";

/** The whole section; `saved()` is called after a report was stored on the server. */
export function ownQuestions(app, saved) {
  let questions = load();
  const list = h("div");
  const outcome = h("div", { class: "outcome", tabindex: "-1" });
  const put = (changed) => {
    questions = changed;
    if (!save(questions))
      app.toast("This browser does not save the questions: export the set before you leave.", { kind: "error" });
    draw();
  };
  const add = (more) => put(more.reduce((all, one) => [...all.filter(({ text }) => text !== one.text), one], questions));
  const drop = (question) => {
    const before = questions;
    put(before.filter((one) => one !== question));
    app.toast("Question removed.", { undo: async () => put(before) });
  };
  const draw = () => replace(list, savedList(questions, drop), tools(app, questions, add, outcome, saved));
  draw();
  return card("own", "Measure on your own questions", h("p", { class: "quiet" }, ABOUT),
    asking(app, (question) => add([question])), list, outcome);
}

/** The questions of this browser: [{text, relevant: [{id, name}]}]. */
function load() {
  try {
    return checked(JSON.parse(localStorage.getItem(KEY) ?? "[]"));
  } catch {
    return [];
  }
}

/** Saves the questions; false where the browser has no room or does not allow it. */
function save(questions) {
  try {
    localStorage.setItem(KEY, JSON.stringify(questions.slice(0, MOST)));
    return true;
  } catch {
    return false;
  }
}

/** The questions of a file or of the browser that have the right form. */
function checked(questions) {
  if (!Array.isArray(questions)) return [];
  return questions
    .filter((one) => typeof one?.text === "string" && one.text.trim())
    .map((one) => ({ text: one.text, relevant: judged(one.relevant) }))
    .filter((one) => one.relevant.length)
    .slice(0, MOST);
}

function judged(relevant) {
  const rows = Array.isArray(relevant) ? relevant : Object.keys(relevant ?? {});
  const objects = rows.map((one) => (typeof one === "string" ? { id: one } : one));
  return objects.filter((one) => one?.id).map(({ id, name }) => ({ id: String(id), name: String(name ?? id) }));
}

function asking(app, done) {
  const field = h("input", { id: "own-question", type: "text", dir: "auto", autocomplete: "off" });
  const results = h("div");
  const submit = async (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!text) return;
    try {
      const answer = await app.api.post("/v1/search", { query: text, limit: POOL });
      replace(results, answer.results.length ? judging(text, answer.results, judge)
        : h("p", { class: "quiet", role: "status" }, "No results for this question."));
      results.querySelector("input")?.focus();
    } catch (error) {
      replace(results, h("p", { class: "form-error", role: "alert" }, error.message));
    }
  };
  const judge = (question) => {
    replace(results);
    done(question);
    field.value = "";
    field.focus();
  };
  return h("div", null,
    h("form", { class: "ask-row", on: { submit } },
      h("label", { for: "own-question" }, "A question"),
      field,
      h("button", { type: "submit", class: "button" }, "Find")),
    results);
}

function judging(text, records, done) {
  const boxes = records.map((_, at) => h("input", { type: "checkbox", id: `judge-${at}` }));
  const problem = h("p", { class: "form-error", role: "alert" });
  const submit = (event) => {
    event.preventDefault();
    const ticked = records.filter((_, at) => boxes[at].checked);
    if (ticked.length) done({ text, relevant: ticked.map((record) => ({ id: record.id, name: nameOf(record, 80) })) });
    else problem.textContent = "Select at least one record that answers it.";
  };
  const row = (record, at) => h("div", { class: "judged" },
    boxes[at],
    h("label", { for: boxes[at].id },
      record.title ? [h("bdi", { class: "judged-name" }, nameOf(record, 80)), " "] : null,
      h("bdi", null, nameOf({ text: record.text }, 160))),
    h("a", { href: recordHash(record.id), target: "_blank", "aria-label": `Open ${nameOf(record, 60)} in a new tab` },
      "open"));
  return h("form", { class: "judging", on: { submit } },
    h("fieldset", null, h("legend", null, "Which of these records answer it?"), records.map(row)),
    h("div", { class: "actions" },
      h("button", { type: "submit", class: "button primary" }, "Save this question"), problem));
}

function savedList(questions, drop) {
  if (!questions.length) return h("p", { class: "quiet" }, "No question is saved yet.");
  const row = (one) => h("li", { class: "kept-row" },
    h("bdi", { class: "kept-text" }, one.text),
    h("span", { class: "quiet" }, several(one.relevant.length, "answer")),
    button("Remove", () => drop(one), { class: "button small",
      "aria-label": `Remove the question ${one.text.slice(0, 80)}` }));
  return folded([several(questions.length, "question"), " kept in this browser"],
    h("ul", { class: "kept" }, questions.map(row)), { open: questions.length <= 8 });
}

function tools(app, questions, add, outcome, saved) {
  const file = h("input", { type: "file", accept: "application/json,.json", class: "hidden", tabindex: "-1",
    "aria-hidden": "true", on: { change: () => read(file, add, app) } });
  const owner = app.settings.caller.owner && !app.settings.caller.read_only;
  const name = owner ? h("input", { id: "report-name", type: "text", autocomplete: "off", maxlength: 80 }) : null;
  const submit = (event) => {
    event.preventDefault();
    return measure(app, questions, name?.value.trim(), outcome, saved);
  };
  const some = questions.length > 0;
  return h("form", { class: "actions own-tools", on: { submit } },
    some ? h("button", { type: "submit", class: "button primary" }, "Measure") : null,
    some && name ? [h("label", { for: "report-name" }, "and keep the report as"), name] : null,
    some ? button("Export", () => download(questions)) : null,
    button("Import", () => file.click()),
    file);
}

async function measure(app, questions, name, outcome, saved) {
  const systems = app.settings.vectors ? SYSTEMS : ["keyword"];
  const words = `Asking ${several(questions.length, "question")} in ${several(systems.length, "way")} …`;
  replace(outcome, h("p", { role: "status" }, words));
  try {
    const sent = questions.map((one) => ({ text: one.text, relevant: one.relevant.map((record) => record.id) }));
    const body = { questions: sent, compare: systems, ...(name ? { save: name } : {}) };
    replace(outcome, measured(await app.api.post("/v1/eval/run", body, { timeout: STUDY_MS })));
    if (name) await saved();
  } catch (error) {
    replace(outcome, h("p", { class: "form-error", role: "alert" }, errorText(error)));
  }
  outcome.focus();
}

function download(questions) {
  const file = new Blob([`${JSON.stringify({ questions }, null, 2)}\n`], { type: "application/json" });
  const href = URL.createObjectURL(file);
  h("a", { href, download: "questions.json" }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

async function read(file, add, app) {
  try {
    const document = JSON.parse(await file.files[0].text());
    const questions = checked(Array.isArray(document) ? document : document?.questions);
    add(questions);
    app.toast(`${several(questions.length, "question")} read.`);
  } catch {
    app.toast("This file contains no questions.", { kind: "error" });
  }
}
