// A drawing that came as text: taken apart and built again from what a plot needs, so that nothing in it can act.

const SVG = "http://www.w3.org/2000/svg";
const ELEMENTS = new Set([
  "svg",
  "g",
  "defs",
  "clipPath",
  "path",
  "rect",
  "circle",
  "ellipse",
  "line",
  "polyline",
  "polygon",
  "use",
  "text",
  "tspan",
  "title",
  "desc",
]);
const STYLES =
  /^(fill|stroke|opacity|color|font|text-anchor|dominant-baseline|white-space|clip|paint-order)(-[a-z-]+)?$/;

/** The drawing as an element of this page, or null where the text is none. */
export function plot(text) {
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
  return inside(value);
}

function inside(value) {
  return !/url\(\s*(?!["']?#)/i.test(value);
}

/** Set one by one, the parts of a style are allowed. */
function dress(element, style) {
  for (const part of style.split(";")) {
    const at = part.indexOf(":");
    const [name, value] = [part.slice(0, at).trim(), part.slice(at + 1).trim()];
    if (STYLES.test(name) && inside(value)) element.style.setProperty(name, value);
  }
}
