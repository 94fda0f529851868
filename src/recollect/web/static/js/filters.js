// The filters of the search, with choices from the store, and a chip for each filter that is set.

import { button, h, replace } from "./dom.js";
import { FILTERS } from "./knobs.js";
import { narrow } from "./state.js";
import { clip } from "./words.js";

const FEW = 24;
const SCOPE = ["user", "agent", "session"];
/** Filters that only the owner can set. */
const OWNERS = ["any_scope", ...SCOPE];

/** The filters: `element` (a panel that opens), `chips` (what is set), `update()`, `toggle()`. */
export function filters(view) {
  const chips = h("div", { class: "filter-chips" });
  const body = h("div", { class: "filter-body" });
  const count = h("span", { class: "badge", hidden: true });
  const opener = button(["Filters", count], () => toggle(), { "aria-expanded": "false", "aria-controls": "filters",
    title: "Filters (f)" });
  const element = h("section", { class: "panel filters", id: "filters", "aria-label": "Filters", hidden: true }, body);
  const set = (name, value, { wait = false } = {}) => view.change(() => narrow(view.state, name, value), { wait });
  let shown = null;

  function toggle(open = element.hidden) {
    element.hidden = !open;
    opener.setAttribute("aria-expanded", String(open));
    if (open) element.querySelector("input, select, button")?.focus();
  }

  function update() {
    const now = view.state.filters;
    const names = Object.keys(now);
    count.hidden = names.length === 0;
    count.textContent = names.length;
    replace(chips, names.flatMap((name) => [now[name]].flat().map((value) => chip(name, value))),
      names.length > 1 ? button("Clear all", view.unfilter, { class: "link" }) : null);
    if (shown !== view.facets) build();
    for (const field of fields) field.update(now[field.name]);
  }

  function chip(name, value) {
    const label = FILTERS.find((filter) => filter.name === name).label.replace(/ \(.*/, "").toLowerCase();
    const words = value === true ? label : `${label}: ${value}`;
    const without = () => (Array.isArray(view.state.filters[name])
      ? set(name, view.state.filters[name].filter((one) => one !== value)) : set(name, null));
    return button([h("bdi", null, words), h("span", { "aria-hidden": "true" }, "✕")], without,
      { class: "chip set", "aria-label": `Remove the filter ${words}` });
  }

  let fields = [];

  function build() {
    shown = view.facets;
    const owner = view.app.settings.caller.owner;
    fields = FILTERS.filter(({ name }) => owner || !OWNERS.includes(name)).map((filter) =>
      makers[filter.kind](filter, known(filter.name, view.facets), view, set));
    replace(body, fields.map((field) => field.element));
  }

  return { element, button: opener, chips, update, toggle };
}

/** The values in the store that a filter can choose from. */
function known(name, { categories, tags, roots, scopes }) {
  if (SCOPE.includes(name)) return [...new Set((scopes ?? []).map((scope) => scope[name]).filter(Boolean))];
  return { category: categories, tags, path: roots }[name] ?? [];
}

const makers = { // kind → the name and the element of a filter, and what shows a value in it
  /** Chips to press, where there are few; a field with suggestions where there are many. */
  names({ name, label }, choices, view, set) {
    const chosen = () => view.state.filters[name] ?? [];
    const flip = (value) =>
      set(name, chosen().includes(value) ? chosen().filter((one) => one !== value) : [...chosen(), value]);
    const buttons = choices.slice(0, FEW).map((value) => button(h("bdi", null, clip(value)), () => flip(value),
      { class: "toggle", dataset: { value } }));
    const add = (value) => chosen().includes(value) || flip(value);
    const update = (value = []) => {
      for (const one of buttons) one.setAttribute("aria-pressed", String(value.includes(one.dataset.value)));
    };
    return { name, update, element: h("div", { class: "filter wide", role: "group", "aria-label": label },
      h("span", { class: "label" }, label),
      h("div", { class: "toggles" }, buttons.length ? buttons : h("span", { class: "quiet" }, "none yet")),
      choices.length > FEW ? adder(name, label, choices, add) : null) };
  },

  text({ name, label, example }, choices, view, set) {
    const id = `filter-${name}`;
    const field = h("input", { type: "text", id, placeholder: example, spellcheck: "false", autocomplete: "off",
      list: choices.length ? `${id}-list` : null, on: { change: () => set(name, field.value.trim()) } });
    const update = (value) => {
      if (document.activeElement !== field) field.value = value ?? "";
    };
    return labelled(name, label, field, update, choices.length ? options(`${id}-list`, choices) : null);
  },

  choice({ name, label, choices }, _, view, set) {
    const field = h("select", { id: `filter-${name}`, on: { change: () => set(name, field.value) } },
      [{ value: "", label: "any" }, ...choices].map((choice) => h("option", { value: choice.value }, choice.label)));
    return labelled(name, label, field, (value) => (field.value = value ?? ""));
  },

  switch({ name, label }, _, view, set) {
    const field = h("input", { type: "checkbox", id: `filter-${name}`, role: "switch",
      on: { change: () => set(name, field.checked) } });
    const made = labelled(name, label, field, (value) => (field.checked = value === true));
    made.element.classList.add("inline");
    return made;
  },
};

function adder(name, label, choices, add) {
  const field = h("input", { type: "text", list: `more-${name}`, placeholder: "another…",
    "aria-label": `Another of ${label}`, on: { change: () => {
      if (field.value.trim()) add(field.value.trim());
      field.value = "";
    } } });
  return [field, options(`more-${name}`, choices)];
}

function options(id, values) {
  return h("datalist", { id }, values.slice(0, 500).map((value) => h("option", { value })));
}

function labelled(name, label, field, update, ...more) {
  return { name, update, element: h("div", { class: "filter" }, h("label", { for: field.id }, label), field, more) };
}
