// The reading pane: the note of a result, opened at the place, with what is around it.

import { api, hasToken } from "./api.js";
import { h, replace } from "./dom.js";
import { rendered } from "./markdown.js";
import { errorText } from "./notice.js";
import { recordHash, recordPath } from "./recordtext.js";
import { related } from "./related.js";
import { placeOf, titleOf } from "./words.js";

/** `element`, `show(result, matched)`, `clear()`; while nothing is shown the element is hidden. */
export function readingPane(app) {
  const body = h("div", { class: "reading-body", tabindex: "0", role: "region", "aria-label": "The note" });
  const head = h("div", { class: "reading-head" });
  const foot = h("div");
  const element = h("aside", { class: "reading", "aria-label": "Reading", hidden: true }, head, body, foot);
  let wanted = null;
  body.addEventListener("click", open);

  /** Shows the note that a link in the text names. With a key held, the browser opens its page in a new tab. */
  async function open(event) {
    const id = event.target.closest("a")?.dataset.note;
    if (!id || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    await show(await app.api.get(recordPath("records", id)));
    body.focus();
  }

  async function show(result, matched = []) {
    if (wanted === result.id) return;
    wanted = result.id;
    const content = await note(app, result, matched);
    if (wanted !== result.id) return; // another was chosen meanwhile
    replace(head, h("a", { class: "reading-title", href: recordHash(result.id), dir: "auto" }, titleOf(result)),
      h("p", { class: "quiet" }, h("bdi", null, placeOf(result))), opener(result));
    replace(body, content);
    replace(foot);
    element.hidden = false;
    reveal(body);
    const top = body.scrollTop;
    const notes = await related(app, result.id, body.querySelector(".prose"));
    if (wanted !== result.id) return;
    replace(foot, notes);
    if (body.scrollTop === top) reveal(body); // the related notes leave it less room
  }

  function clear() {
    wanted = null;
    element.hidden = true;
  }

  return { element, show, clear };
}

/** Scrolls `body`, and only it, to the record's own part of the note, or to the match if that is too far below. */
export function reveal(body) {
  if (!body) return;
  const topOf = (element) => element.getBoundingClientRect().top - body.getBoundingClientRect().top + body.scrollTop;
  const [mine, match] = [body.querySelector(".mine"), body.querySelector(".mine mark")];
  const isFar = match && topOf(match) > topOf(mine) + body.clientHeight * 0.8;
  body.scrollTop = mine ? topOf(isFar ? match : mine) - 24 : 0;
}

/** The note of a record as elements, or why it cannot be read. */
export async function note(app, record, matched = []) {
  try {
    const { nodes, lines, freshness } = await app.api.get(recordPath("reading", record.id));
    const image = async (name) => {
      const { media_type: kind, base64 } = await app.api.get(recordPath("image", record.id), { name });
      return `data:${kind};base64,${base64}`;
    };
    const old = freshness && freshness !== "fresh"
      ? h("p", { class: "note" }, { changed: "The file has changed since it was indexed.",
        missing: "The file is no longer there; this is what was indexed.",
        unreadable: "The file cannot be read now; this is what was indexed." }[freshness] ?? freshness) : null;
    return [old, h("div", { class: "record-text prose", dir: "auto" }, rendered(nodes, { lines, matched, image }))];
  } catch (error) {
    return h("p", { class: "note" }, errorText(error));
  }
}

/** Links that open the file where one writes: programs that registered these addresses answer them. */
export function opener(record) {
  if (record.kind !== "chunk" || !record.path) return null;
  const line = record.lines ? `:${record.lines[0]}` : "";
  const markdown = /\.(md|markdown)$/i.test(record.path);
  return h("p", { class: "openers" },
    /\.pdf$/i.test(record.path) ? pdfLink(record)
      : h("a", { href: `vscode://file${encodeURI(record.path)}${line}` }, "Open in editor"),
    markdown ? h("a", { href: `obsidian://open?path=${encodeURIComponent(record.path)}` }, "Open in Obsidian") : null);
}

/** A link that opens a PDF at the record's page. With a token the file is fetched first: a link does not send it. */
function pdfLink(record) {
  const page = record.place?.match(/^pages? (\d+)/)?.[1];
  const fragment = page ? `#page=${page}` : "";
  const path = recordPath("pdf", record.id);
  const fetched = async (event) => {
    if (!hasToken()) return;
    event.preventDefault();
    const link = h("a", { href: URL.createObjectURL(await api.get(path)) + fragment, target: "_blank", rel: "noopener" });
    link.click();
  };
  const text = page ? `Open page ${page} of the PDF` : "Open the PDF";
  return h("a", { href: path + fragment, target: "_blank", rel: "noopener", on: { click: fetched } }, text);
}
