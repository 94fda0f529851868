// The index job: how far it is, what the last one did, and a button that starts one.

import { button, folded, h, replace } from "./dom.js";
import { count, moment, several, took } from "./moments.js";

const FATES = ["added", "changed", "moved", "removed", "rescoped", "unchanged", "skipped", "unconfirmed"];
const MOST_SKIPPED = 50;

/** `update(job)` shows the job; the button stays the same element, so that it keeps the focus. */
export function indexing(app, started) {
  const description = h("div", { class: "job" });
  const status = h("p", { class: "hidden", role: "status" });
  let before = null;
  let shown = "";
  const begin = async () => {
    update(await app.api.post("/v1/index", {}));
    started();
  };
  const { owner, read_only: readOnly } = app.settings.caller;
  const starter = owner && !readOnly ? button("Index again", () => app.attempt(begin)) : null;
  const update = (job) => {
    if (!job || JSON.stringify(job) === shown) return;
    shown = JSON.stringify(job);
    starter?.setAttribute("aria-disabled", String(job.state === "running"));
    if (before === "running" && job.state !== "running")
      status.textContent = job.state === "done" ? "Indexing is done." : "Indexing failed.";
    before = job.state;
    replace(description, WORDS[job.state]?.(job) ?? null);
  };
  const node = h("div", { class: "indexing" }, description, status,
    starter ? h("div", { class: "actions" }, starter) : null);
  return { node, update };
}

const WORDS = {
  running: (job) => [
    h("p", null, job.total ? `Indexing: ${job.done} of ${several(job.total, "file")}.` : "Indexing: looking for files."),
    h("progress", { "aria-label": "Indexing", max: job.total || null, value: job.total ? job.done : null }),
  ],
  done: (job) => [
    h("p", null, "Indexed ", moment(job.started_at), ` in ${took(job.took_ms)}: ${summary(job.report)}`),
    skipped(job.report),
    paths(job),
  ],
  stopped: () => h("p", null, "Indexing was stopped."),
  failed: (job) => [
    h("p", { class: "note" }, `Indexing failed: ${job.error?.message ?? job.error ?? "no reason given"}`),
    paths(job),
  ],
};

/** "3 added, 1 changed, 8 unchanged; 7 passages embedded." */
function summary(report) {
  const parts = FATES.filter((name) => size(report?.[name])).map((name) => `${count(size(report[name]))} ${name}`);
  const embedded = report?.embedded ? `; ${several(report.embedded, "passage")} embedded` : "";
  return `${parts.join(", ") || "no file was found"}${embedded}.`;
}

function size(value) {
  return typeof value === "object" && value !== null ? Object.keys(value).length : (value ?? 0);
}

function skipped(report) {
  const rows = Object.entries(report?.skipped ?? {}).slice(0, MOST_SKIPPED);
  if (!rows.length) return null;
  const row = ([path, why]) => h("li", null, h("bdi", { class: "path" }, path), `: ${why}`);
  return folded("Skipped files", h("ul", { class: "paths" }, rows.map(row)));
}

function paths(job) {
  if (!job.paths?.length) return null;
  return h("ul", { class: "paths" }, job.paths.map((path) => h("li", { class: "path" }, h("bdi", null, path))));
}
