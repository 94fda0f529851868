// The notes that a note links to, those that link to it, and similar ones.

import { h } from "./dom.js";
import { recordHash, recordPath } from "./recordtext.js";
import { plain } from "./words.js";

const LISTS = { links: "Links to", backlinks: "Linked from", similar: "Similar" };

/**
 * The related notes of a record as one section; null where they cannot be read.
 * The notes that the rendered `text` names become links.
 */
export async function related(app, id, text) {
  const answer = await app.api.get(recordPath("related", id)).catch(() => null);
  for (const name of text?.querySelectorAll(".file-link") ?? []) {
    const note = answer?.links.find(({ targets }) => targets.includes(name.dataset.file));
    if (note) name.replaceWith(h("a", { href: recordHash(note.id), title: note.path, dataset: { note: note.id } },
      ...name.childNodes));
  }
  if (!answer) return null;
  const names = Object.keys(LISTS).filter((name) => answer[name].length);
  return h("section", { class: "related", tabindex: "0", "aria-label": "Related notes" },
    names.map((name) => [h("h2", null, LISTS[name]), h("ul", null, answer[name].map(entry))]),
    answer.similar.length ? null : h("p", { class: "quiet" }, "No similar notes were found."));
}

function entry(note) {
  return h("li", null, h("a", { href: recordHash(note.id), title: note.path, dir: "auto" }, plain(note.title)),
    " ", h("span", { class: "quiet" }, h("bdi", null, plain(note.why))));
}
