// Elements without markup: a text becomes a text node, never HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element; props: class, dataset, on: {event: handler}, style: {property: value}, attributes and booleans. */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  append(element, children);
  return element;
}

/** A button that does one thing. */
export function button(words, click, props) {
  return h("button", { type: "button", class: "button", on: { click: () => click() }, ...props }, words);
}

/** A section with a title of its own. */
export function card(name, title, ...inside) {
  return h("section", { class: "card", "aria-labelledby": `${name}-title` },
    h("h2", { id: `${name}-title` }, title), inside);
}

/** A part that is folded until it is opened. */
export function folded(title, inside, props) {
  return h("details", { class: "figures", ...props }, h("summary", null, title), inside);
}

/** An element of a drawing. */
export function svg(tag, attrs, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  append(element, children);
  return element;
}

/** Empties `root` and fills it anew; returns it. */
export function replace(root, ...nodes) {
  root.replaceChildren();
  append(root, nodes);
  return root;
}

/** Returns a function that puts the focus back inside `root` after it was filled anew: on the same result or link. */
export function focused(root) {
  const at = root.contains(document.activeElement) ? document.activeElement : null;
  const result = at?.closest("[data-id]")?.dataset.id;
  const href = at?.getAttribute("href");
  return () => {
    const place = result
      ? root.querySelector(`[data-id="${CSS.escape(result)}"] .result-title`)
      : href && root.querySelector(`a[href="${CSS.escape(href)}"]`);
    if (place && !root.contains(document.activeElement)) place.focus({ preventScroll: true });
  };
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.appendChild(child);
    else if (child !== null && child !== undefined && child !== false) {
      element.appendChild(document.createTextNode(String(child)));
    }
  }
}

function set(element, name, value) {
  if (value === null || value === undefined) return;
  if (name === "class") element.setAttribute("class", value);
  else if (name === "dataset") Object.assign(element.dataset, value);
  else if (name === "on") Object.entries(value).forEach((pair) => element.addEventListener(...pair));
  else if (name === "style") Object.entries(value).forEach((pair) => element.style.setProperty(...pair));
  else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
  else if (typeof value === "boolean" && !name.startsWith("aria-")) element.toggleAttribute(name, value);
  else element.setAttribute(name, String(value));
}
