// "Measure on your own questions": ask, tick what answers it, keep; then let every way of searching be measured.

import { h, replace } from "./dom.js";
import { measured } from "./measured.js";
import { several } from "./moments.js";
import { asFile, forServer, fromFile, load, save, withQuestion } from "./questionset.js";
import { nameOf, recordHash } from "./recordtext.js";

const POOL = 20;
const STUDY_MS = 310000; // the server gives a study up after 300 s
const SYSTEMS = ["keyword", "vector", "rrf", "weighted", "default"];

/** The whole section; `saved()` is called after a report was kept on the server. */
export function ownQuestions(app, saved) {
  const state = { questions: load() };
  const kept = h("div");
  const outcome = h("div", { class: "outcome", tabindex: "-1" });
  const put = (questions) => {
    state.questions = questions;
    if (!save(questions))
      app.toast("This browser does not save the questions: export the set before you leave.", { kind: "error" });
    draw();
  };
  const drop = (question) => {
    const before = state.questions;
    put(before.filter((one) => one !== question));
    app.toast("Question removed.", { undo: async () => put(before) });
  };
  const draw = () => replace(kept, keptList(state.questions, drop), tools(app, state, put, outcome, saved));
  draw();
  return h(
    "section",
    { class: "card", "aria-labelledby": "own-title" },
    h("h2", { id: "own-title" }, "Measure on your own questions"),
    h(
      "p",
      { class: "quiet" },
      "Ask a question, select the records that answer it, and save it. What no source finds cannot be ticked, so this compares ways of searching; it does not say what all of them miss.",
    ),
    asking(app, (question) => put(withQuestion(state.questions, question))),
    kept,
    outcome,
  );
}

function asking(app, keep) {
  const field = h("input", { id: "own-question", type: "text", dir: "auto", autocomplete: "off" });
  const results = h("div");
  const submit = async (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!text) return;
    try {
      const answer = await app.api.post("/v1/search", { query: text, limit: POOL });
      replace(
        results,
        answer.results.length
          ? judging(text, answer.results, done)
          : h("p", { class: "quiet", role: "status" }, "No results for this question."),
      );
      results.querySelector("input")?.focus();
    } catch (error) {
      replace(results, h("p", { class: "form-error", role: "alert" }, error.message));
    }
  };
  const done = (question) => {
    replace(results);
    keep(question);
    field.value = "";
    field.focus();
  };
  return h(
    "div",
    null,
    h(
      "form",
      { class: "ask-row", on: { submit } },
      h("label", { for: "own-question" }, "A question"),
      field,
      h("button", { type: "submit", class: "button" }, "Find"),
    ),
    results,
  );
}

function judging(text, found, done) {
  const boxes = found.map((record, at) => ({ record, box: h("input", { type: "checkbox", id: `judge-${at}` }) }));
  const ticked = () =>
    boxes.filter((one) => one.box.checked).map(({ record }) => ({ id: record.id, name: nameOf(record, 80) }));
  const said = h("p", { class: "form-error", role: "alert" });
  const keep = (event) => {
    event.preventDefault();
    if (ticked().length) done({ text, relevant: ticked() });
    else said.textContent = "Select at least one record that answers it.";
  };
  return h(
    "form",
    { class: "judging", on: { submit: keep } },
    h(
      "fieldset",
      null,
      h("legend", null, "Which of these records answer it?"),
      boxes.map(({ record, box }) =>
        h(
          "div",
          { class: "judged" },
          box,
          h(
            "label",
            { for: box.id },
            record.title ? [h("bdi", { class: "judged-name" }, nameOf(record, 80)), " "] : null,
            h("bdi", null, nameOf({ text: record.text }, 160)),
          ),
          h(
            "a",
            { href: recordHash(record.id), target: "_blank", "aria-label": `Open ${nameOf(record, 60)} in a new tab` },
            "open",
          ),
        ),
      ),
    ),
    h(
      "div",
      { class: "actions" },
      h("button", { type: "submit", class: "button primary" }, "Save this question"),
      said,
    ),
  );
}

function keptList(questions, drop) {
  if (!questions.length) return h("p", { class: "quiet" }, "No question is saved yet.");
  return h(
    "details",
    { class: "figures", open: questions.length <= 8 },
    h("summary", null, several(questions.length, "question"), " kept in this browser"),
    h(
      "ul",
      { class: "kept" },
      questions.map((one) =>
        h(
          "li",
          { class: "kept-row" },
          h("bdi", { class: "kept-text" }, one.text),
          h("span", { class: "quiet" }, several(one.relevant.length, "answer")),
          h(
            "button",
            {
              type: "button",
              class: "button small",
              "aria-label": `Remove the question ${one.text.slice(0, 80)}`,
              on: { click: () => drop(one) },
            },
            "Remove",
          ),
        ),
      ),
    ),
  );
}

function tools(app, state, put, outcome, saved) {
  const file = h("input", {
    type: "file",
    accept: "application/json,.json",
    class: "hidden",
    tabindex: "-1",
    "aria-hidden": "true",
    on: { change: () => read(file, state, put, app) },
  });
  const owner = app.settings.caller.owner && !app.settings.caller.read_only;
  const name = owner ? h("input", { id: "report-name", type: "text", autocomplete: "off", maxlength: 80 }) : null;
  const run = (event) => {
    event.preventDefault();
    return measure(app, state.questions, name?.value.trim(), outcome, saved);
  };
  const some = state.questions.length > 0;
  return h(
    "form",
    { class: "actions own-tools", on: { submit: run } },
    some ? h("button", { type: "submit", class: "button primary" }, "Measure") : null,
    some && name ? [h("label", { for: "report-name" }, "and keep the report as"), name] : null,
    some
      ? h("button", { type: "button", class: "button", on: { click: () => download(state.questions) } }, "Export")
      : null,
    h("button", { type: "button", class: "button", on: { click: () => file.click() } }, "Import"),
    file,
  );
}

async function measure(app, questions, name, outcome, saved) {
  const systems = app.settings.vectors ? SYSTEMS : ["keyword"];
  replace(
    outcome,
    h("p", { role: "status" }, `Asking ${several(questions.length, "question")} in ${several(systems.length, "way")} …`),
  );
  try {
    const body = { questions: forServer(questions), compare: systems };
    const report = await app.api.post("/v1/eval/run", name ? { ...body, save: name } : body, { timeout: STUDY_MS });
    replace(outcome, measured(report));
    if (name) await saved();
  } catch (error) {
    replace(
      outcome,
      h("p", { class: "form-error", role: "alert" }, [error.message, error.hint].filter(Boolean).join(" ")),
    );
  }
  outcome.focus();
}

function download(questions) {
  const href = URL.createObjectURL(asFile(questions));
  h("a", { href, download: "questions.json" }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

async function read(file, state, put, app) {
  try {
    const found = fromFile(await file.files[0].text());
    put(found.reduce(withQuestion, state.questions));
    app.toast(`${several(found.length, "question")} read.`);
  } catch {
    app.toast("This file contains no questions.", { kind: "error" });
  }
}
