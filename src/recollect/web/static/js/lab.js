// The laboratory: reports that were made, one report with its plots, and measuring on one's own questions.

import { table } from "./charts.js";
import { button, card, h, replace } from "./dom.js";
import { moment } from "./moments.js";
import { errorText, phrase } from "./notice.js";
import { ownQuestions } from "./ownquestions.js";

const KINDS = { run: "systems compared", sweep: "settings swept", overlap: "what sources share" };
const NONE = "None yet: `recollect eval … --json` writes them, and what is measured above can be kept here.";

const SVG = "http://www.w3.org/2000/svg";
const ELEMENTS = new Set(["svg", "g", "defs", "clipPath", "path", "rect", "circle", "ellipse", "line", "polyline",
  "polygon", "use", "text", "tspan", "title", "desc"]);
const STYLES = /^(fill|stroke|opacity|color|font|text-anchor|dominant-baseline|white-space|clip|paint-order)(-[a-z-]+)?$/;

/** Fills `root` with one report where `params.name` names it, else with the list and the form. */
export async function show(root, params, app) {
  return params.name ? showReport(root, params.name, app) : showAll(root, app);
}

async function showAll(root, app) {
  const reports = app.settings.caller.owner ? shelf(app) : null;
  await reports?.reload();
  replace(root, h("div", { class: "lab" },
    h("h1", null, "Evaluation"),
    h("p", { class: "quiet" }, "How good are the results, and which settings are best?"),
    ownQuestions(app, async () => reports?.reload()),
    reports?.node));
}

/** The reports that are stored on the server; only the owner sees them. */
function shelf(app) {
  const list = h("ul", { class: "recent-list" });
  const reload = async () => {
    try {
      const { reports } = await app.api.get("/v1/eval/reports");
      replace(list, reports.length ? reports.map(row) : h("li", { class: "quiet" }, phrase(NONE)));
    } catch (error) {
      replace(list, h("li", { class: "note" }, errorText(error)));
    }
  };
  return { node: card("reports", "Reports", list), reload };
}

function row(report) {
  return h("li", { class: "recent-row" },
    h("a", { href: `#/lab/${encodeURIComponent(report.name)}`, dir: "auto" }, report.name),
    h("p", { class: "recent-about quiet" },
      h("span", null, KINDS[report.kind] ?? report.kind),
      report.data ? h("bdi", null, report.data) : null,
      moment(report.at)));
}

async function showReport(root, name, app) {
  const back = h("p", { class: "crumbs" }, h("a", { href: "#/lab" }, "← Evaluation"));
  const fill = (...inside) => replace(root, h("div", { class: "lab" }, back, inside));
  try {
    const report = await app.api.get(`/v1/eval/reports/${encodeURIComponent(name)}`);
    document.title = `${name} · Recollect`;
    fill(h("h1", { dir: "auto" }, report.name), findings(report.sections), report.sections.map(section));
  } catch (error) {
    if (error.status !== 404) throw error;
    fill(h("h1", null, "There is no such report"), h("p", { class: "path" }, h("bdi", null, name)));
  }
}

function findings(sections) {
  if (sections.length < 2) return null;
  const go = (key) => document.getElementById(`section-${key}`)?.focus();
  const link = (one) => h("li", null, button(one.lead, () => go(one.key), { class: "finding-link" }));
  return h("nav", { class: "card", "aria-label": "Summary" },
    h("h2", null, "Summary"),
    h("ul", { class: "findings" }, sections.map(link)));
}

function section(one) {
  const drawn = one.svg ? plot(one.svg) : null;
  const source = one.source ? h("figcaption", { class: "quiet", dir: "auto" }, one.source) : null;
  const props = { class: "card lab-section", id: `section-${one.key}`, tabindex: "-1", "aria-label": one.title };
  return h("section", props,
    h("h2", { dir: "auto" }, one.title),
    h("p", { class: "lead", dir: "auto" }, one.lead),
    (one.more ?? []).map((words) => h("p", { class: "quiet", dir: "auto" }, words)),
    drawn ? h("figure", { class: "plot" }, drawn, source) : h("p", { dir: "auto" }, one.shows),
    (one.tables ?? []).map(({ caption, head, rows, words = [0] }) =>
      table(caption, head, rows.map((cells) => cells.map(cell)), { words, region: `${caption}, ${one.title}` })));
}

/** A cell whose interval is less prominent than its mean. */
function cell(text) {
  const at = String(text).indexOf(" [");
  return at < 0 ? text : [text.slice(0, at), h("span", { class: "interval-words" }, text.slice(at))];
}

/** A drawing that came as text, built again from what a plot needs, so that nothing in it can act; null if it is none. */
function plot(text) {
  const parsed = new DOMParser().parseFromString(renamed(text ?? ""), "image/svg+xml");
  const root = parsed.documentElement;
  return root.namespaceURI === SVG && root.localName === "svg" ? copy(root) : null;
}

/** A style attribute is refused by the page's policy even while it is parsed; under another name it is only text. */
function renamed(text) {
  return text.replace(/<[^>]*>/g, (tag) => tag.replace(/\sstyle\s*=/g, " data-style="));
}

function copy(element) {
  const made = document.createElementNS(SVG, element.localName);
  for (const { localName, value } of element.attributes) {
    if (localName === "data-style") dress(made, value);
    else if (harmless(localName, value)) made.setAttribute(localName, value);
  }
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) made.append(child.data);
    else if (child.namespaceURI === SVG && ELEMENTS.has(child.localName)) made.append(copy(child));
  }
  return made;
}

/** No handler, no address but one inside the drawing. */
function harmless(name, value) {
  if (/^on|^style$|^xmlns$/i.test(name)) return false;
  if (name === "href") return value.startsWith("#");
  return isInside(value);
}

function isInside(value) {
  return !/url\(\s*(?!["']?#)/i.test(value);
}

/** Set one by one, the parts of a style are allowed. */
function dress(element, style) {
  for (const part of style.split(";")) {
    const at = part.indexOf(":");
    const [name, value] = [part.slice(0, at).trim(), part.slice(at + 1).trim()];
    if (STYLES.test(name) && isInside(value)) element.style.setProperty(name, value);
  }
}
