// Markdown as elements: the server sends nested lists, and only the tags and attributes below are made of them.

import { h } from "./dom.js";
import { marked } from "./words.js";

const TAGS = new Set(["p", "h1", "h2", "h3", "h4", "h5", "h6", "em", "strong", "s", "code", "pre", "ul", "ol", "li",
  "blockquote", "table", "thead", "tbody", "tr", "th", "td", "hr", "br"]);

/** The elements of `nodes`. `lines` are the record's own, which are marked; `image(src)` gives an address or null. */
export function rendered(nodes, { lines = null, matched = [], image = async () => null } = {}) {
  const how = { lines, matched, image, open: [] };
  return nodes.map((node) => element(node, how));
}

/** A heading's level on the page, where the record's name is the first: no level is left out, equal ones stay equal. */
function headingOf(tag, how) {
  how.open = [...how.open.filter((above) => above < tag), tag];
  return `h${Math.min(6, how.open.length + 1)}`;
}

function element(node, how) {
  if (typeof node === "string") return marked(node, how.matched);
  const [tag, { lines, href, file, src, alt, start, align }, children] = node;
  const inside = () => children.map((child) => element(child, how));
  if (tag === "a") {
    if (!href) return h("span", { class: "file-link", title: file, dataset: { file } }, inside());
    return h("a", { href, rel: "noopener noreferrer", target: "_blank" }, inside());
  }
  if (tag === "img") return picture(src, alt, how);
  if (!TAGS.has(tag)) return inside();
  const name = /^h[1-6]$/.test(tag) ? headingOf(tag, how) : tag;
  const mine = how.lines && lines && lines[1] >= how.lines[0] && lines[0] <= how.lines[1];
  const made = h(name, { class: mine ? "mine" : null, start, style: align ? { "text-align": align } : {} }, inside());
  return tag === "table" || tag === "pre" ? h("div", { class: "scroll", tabindex: "0", role: "group",
    "aria-label": tag === "table" ? "Table" : "Code" }, made) : made;
}

/** An image of the indexed folder; any other is only named, so that a note makes the page ask nobody else. */
function picture(src, alt, { image }) {
  const place = h("span", { class: "image" }, `[${alt || src}]`);
  if (!/^[a-z][a-z0-9+.-]*:|^\/\//i.test(src)) {
    image(src).then((address) => address && place.replaceWith(h("img", { src: address, alt: alt || src })), () => {});
  }
  return place;
}
