// The index job: how far it is, what the last one did, and a button that starts one.

import { h, replace } from "./dom.js";
import { count, moment, several, took } from "./moments.js";

const FATES = ["added", "changed", "moved", "removed", "rescoped", "unchanged", "skipped", "unconfirmed"];
const MOST_SKIPPED = 50;

/** `update(job)` shows the job; the button stays the same element, so that it keeps the focus. */
export function indexing(app, started) {
  const may = app.settings.caller.owner && !app.settings.caller.read_only;
  const said = h("div", { class: "job" });
  const status = h("p", { class: "hidden", role: "status" });
  const state = { was: null, shown: "" };
  const begin = async () => {
    try {
      update(await app.api.post("/v1/index", {}));
      started();
    } catch (error) {
      app.toast([error.message, error.hint].filter(Boolean).join(" "), { kind: "error" });
    }
  };
  const button = may ? h("button", { type: "button", class: "button", on: { click: begin } }, "Index again") : null;
  const update = (job) => {
    if (!job || JSON.stringify(job) === state.shown) return;
    state.shown = JSON.stringify(job);
    button?.setAttribute("aria-disabled", String(job.state === "running"));
    if (state.was === "running" && job.state !== "running")
      status.textContent = job.state === "done" ? "Indexing is done." : "Indexing failed.";
    state.was = job.state;
    replace(said, WORDS[job.state]?.(job) ?? null);
  };
  return {
    node: h("div", { class: "indexing" }, said, status, button ? h("div", { class: "actions" }, button) : null),
    update,
  };
}

const WORDS = {
  idle: () => null,
  running: (job) => [
    h(
      "p",
      null,
      job.total ? `Indexing: ${job.done} of ${several(job.total, "file")}.` : "Indexing: looking for files.",
    ),
    h("progress", { "aria-label": "Indexing", max: job.total || null, value: job.total ? job.done : null }),
  ],
  done: (job) => [
    h("p", null, "Indexed ", moment(job.started_at), ` in ${took(job.took_ms)}: ${report(job.report)}`),
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
function report(found) {
  const parts = FATES.filter((name) => size(found?.[name])).map((name) => `${count(size(found[name]))} ${name}`);
  const embedded = found?.embedded ? `; ${several(found.embedded, "passage")} embedded` : "";
  return `${parts.join(", ") || "no file was found"}${embedded}.`;
}

function size(value) {
  return typeof value === "object" && value !== null ? Object.keys(value).length : (value ?? 0);
}

function skipped(found) {
  const rows = Object.entries(found?.skipped ?? {}).slice(0, MOST_SKIPPED);
  return rows.length
    ? h(
        "details",
        { class: "figures" },
        h("summary", null, "Skipped files"),
        h(
          "ul",
          { class: "paths" },
          rows.map(([path, why]) => h("li", null, h("bdi", { class: "path" }, path), `: ${why}`)),
        ),
      )
    : null;
}

function paths(job) {
  return job.paths?.length
    ? h(
        "ul",
        { class: "paths" },
        job.paths.map((path) => h("li", { class: "path" }, h("bdi", null, path))),
      )
    : null;
}
