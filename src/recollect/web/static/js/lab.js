// The laboratory: reports that were made, one report with its plots, and measuring on one's own questions.

import { table } from "./charts.js";
import { h, replace } from "./dom.js";
import { moment } from "./moments.js";
import { ownQuestions } from "./ownquestions.js";
import { plot } from "./plot.js";

const KINDS = {
  run: "systems compared",
  sweep: "settings swept",
  overlap: "what sources share",
};

const NONE = "None yet: `recollect eval … --json` writes them, and what is measured above can be kept here.";

/** Fills `root` with one report where `params.name` names it, else with the list and the form. */
export async function show(root, params, app) {
  return params.name ? showReport(root, params.name, app) : showAll(root, app);
}

async function showAll(root, app) {
  const reports = app.settings.caller.owner ? shelf(app) : null;
  await reports?.reload();
  replace(
    root,
    h(
      "div",
      { class: "lab" },
      h("h1", null, "Evaluation"),
      h("p", { class: "quiet" }, "How good are the results, and which settings are best?"),
      ownQuestions(app, async () => reports?.reload()),
      reports?.node,
    ),
  );
}

/** The reports that are kept on the server; they are the owner's. */
function shelf(app) {
  const list = h("ul", { class: "recent-list" });
  const reload = async () => {
    try {
      const { reports } = await app.api.get("/v1/eval/reports");
      replace(list, reports.length ? reports.map(row) : h("li", { class: "quiet" }, NONE));
    } catch (error) {
      replace(list, h("li", { class: "note" }, [error.message, error.hint].filter(Boolean).join(" ")));
    }
  };
  const title = h("h2", { id: "reports-title" }, "Reports");
  return { node: h("section", { class: "card", "aria-labelledby": "reports-title" }, title, list), reload };
}

function row(report) {
  return h(
    "li",
    { class: "recent-row" },
    h("a", { href: `#/lab/${encodeURIComponent(report.name)}`, dir: "auto" }, report.name),
    h(
      "p",
      { class: "recent-about quiet" },
      h("span", null, KINDS[report.kind] ?? report.kind),
      report.data ? h("bdi", null, report.data) : null,
      moment(report.at),
    ),
  );
}

async function showReport(root, name, app) {
  const back = h("p", { class: "crumbs" }, h("a", { href: "#/lab" }, "← Evaluation"));
  let report;
  try {
    report = await app.api.get(`/v1/eval/reports/${encodeURIComponent(name)}`);
  } catch (error) {
    if (error.status !== 404) throw error;
    replace(
      root,
      h(
        "div",
        { class: "lab" },
        back,
        h("h1", null, "There is no such report"),
        h("p", { class: "path" }, h("bdi", null, name)),
      ),
    );
    return;
  }
  document.title = `${name} · Recollect`;
  replace(
    root,
    h(
      "div",
      { class: "lab" },
      back,
      h("h1", { dir: "auto" }, report.name),
      findings(report.sections),
      report.sections.map(section),
    ),
  );
}

function findings(sections) {
  if (sections.length < 2) return null;
  const go = (key) => document.getElementById(`section-${key}`)?.focus();
  return h(
    "nav",
    { class: "card", "aria-label": "Summary" },
    h("h2", null, "Summary"),
    h(
      "ul",
      { class: "findings" },
      sections.map((one) =>
        h(
          "li",
          null,
          h("button", { type: "button", class: "finding-link", on: { click: () => go(one.key) } }, one.lead),
        ),
      ),
    ),
  );
}

function section(one) {
  const drawn = one.svg ? plot(one.svg) : null;
  return h(
    "section",
    { class: "card lab-section", id: `section-${one.key}`, tabindex: "-1", "aria-label": one.title },
    h("h2", { dir: "auto" }, one.title),
    h("p", { class: "lead", dir: "auto" }, one.lead),
    (one.more ?? []).map((words) => h("p", { class: "quiet", dir: "auto" }, words)),
    drawn
      ? h(
          "figure",
          { class: "plot" },
          drawn,
          one.source ? h("figcaption", { class: "quiet", dir: "auto" }, one.source) : null,
        )
      : h("p", { dir: "auto" }, one.shows),
    (one.tables ?? []).map((found) =>
      table(
        found.caption,
        found.head,
        found.rows.map((cells) => cells.map(cell)),
        { words: found.words ?? [0], region: `${found.caption}, ${one.title}` },
      ),
    ),
  );
}

/** An interval steps back behind its mean. */
function cell(text) {
  const at = String(text).indexOf(" [");
  return at < 0 ? text : [text.slice(0, at), h("span", { class: "interval-words" }, text.slice(at))];
}
