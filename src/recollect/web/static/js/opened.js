// The file of a chunk, open at its lines.

import { h } from "./dom.js";
import { recordPath } from "./recordtext.js";

const LONGEST = 2000;

const FRESHNESS = {
  changed: "The file has changed since it was indexed: the lines may have moved. Index again to follow it.",
  missing: "The file is no longer there; this is what was indexed of it.",
  unknown: "The file was not indexed on this machine, so it is not known whether it has changed.",
};

/** The lines around a chunk with its own marked; null where there is no file, words where it cannot be read. */
export async function openFile(record, api) {
  if (record.kind !== "chunk" || !record.path) return null;
  let file;
  try {
    file = await api.get(recordPath("file", record.id));
  } catch (error) {
    return panel(record.path, h("p", { class: "note" }, [error.message, error.hint].filter(Boolean).join(" ")));
  }
  const warning = FRESHNESS[file.freshness];
  return panel(
    file.path,
    warning ? h("p", { class: "note", dataset: { freshness: file.freshness } }, warning) : null,
    file.text ? listing(file) : null,
  );
}

function panel(path, ...inside) {
  return h(
    "section",
    { class: "card", "aria-labelledby": "file-title" },
    h("h2", { id: "file-title" }, "In its file"),
    h("p", { class: "path" }, h("bdi", null, path)),
    inside,
  );
}

function listing(file) {
  const [first, last] = file.lines;
  const rows = file.text.split(/\r\n|\r|\n/);
  if (rows.at(-1) === "") rows.pop();
  const shownLast = file.first_line + rows.length - 1;
  const said = `Lines ${file.first_line}–${shownLast} of ${file.total_lines}; the chunk is ${first === last ? `line ${first}` : `lines ${first}–${last}`}.`;
  const body = h(
    "div",
    {
      class: "code",
      tabindex: "0",
      role: "region",
      "aria-label": `${file.path}, lines ${file.first_line} to ${shownLast}`,
    },
    h(
      "ol",
      { class: "code-lines", start: file.first_line },
      rows.map((text, at) => line(text, file.first_line + at, first, last)),
    ),
  );
  requestAnimationFrame(() => reveal(body));
  return [file.freshness === "missing" ? null : h("p", { class: "quiet" }, said), body];
}

function line(text, number, first, last) {
  const inside = number >= first && number <= last;
  const cut = text.length > LONGEST ? `${text.slice(0, LONGEST)}… (${text.length} characters)` : text;
  return h(
    "li",
    { class: inside ? "code-line code-mine" : "code-line", value: number, dataset: { line: number } },
    h("span", { class: "code-number", "aria-hidden": "true" }, number),
    inside
      ? h("mark", { class: "code-text", dir: "auto" }, cut || " ")
      : h("span", { class: "code-text", dir: "auto" }, cut || " "),
  );
}

/** Scrolls the listing, and only the listing, so that the chunk stands near its top. */
function reveal(body) {
  const mine = body.querySelector(".code-mine");
  if (mine) body.scrollTop = mine.offsetTop - body.clientHeight / 4;
}
