// The fields of a record's form, and what was written into them.

import { button, h } from "./dom.js";
import { ofField } from "./moments.js";
import { endless } from "./recordtext.js";

/** The importance of a record that has none. */
export const USUAL_IMPORTANCE = 0.5;

const WEIGHTS = [
  [0.95, "vital"],
  [0.75, "important"],
  [0.55, "rather important"],
  [0.45, "ordinary"],
  [0.2, "minor"],
  [0, "hardly matters"],
];

/** Decay class → what it means; the names are the server's. */
export const DECAYS = {
  permanent: "never counts less",
  stable: "counts half after 90 days",
  active: "counts half after 14 days",
  session: "counts half after a day",
  checkpoint: "counts half after 4 hours",
};

/** 0.8 → "important (0.8)". */
export function weight(importance) {
  const value = importance ?? USUAL_IMPORTANCE;
  return `${WEIGHTS.find(([least]) => value >= least)[1]} (${Number(value.toFixed(2))})`;
}

let made = 0;

/** The fields named in `names`, filled from a record; `nodes` to show, `read()` for all, `changed()` for what differs. */
export function fields(record, names, facets = {}) {
  const group = `field-${(made += 1)}`;
  const built = names.map((name) => MAKERS[name](record, `${group}-${name}`, facets));
  const read = () => Object.assign({}, ...built.map((one) => one.read()));
  const before = read();
  const differs = ([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name]);
  const changed = () => Object.fromEntries(Object.entries(read()).filter(differs));
  return { nodes: built.map((one) => one.node), first: built[0].control, read, changed };
}

const MAKERS = {
  text: (record, id) => area(id, "Text", record.text ?? ""),
  title: (record, id) => line(id, "title", "Title", record.title ?? "", { maxlength: 1000 }),
  category: (record, id, facets) =>
    line(id, "category", "Category", record.category ?? "", { choices: facets.categories }),
  tags: (record, id, facets) => tags(id, record.tags ?? [], facets.tags),
  importance: (record, id) => slider(id, record.importance ?? USUAL_IMPORTANCE),
  decay: (record, id) => decay(id, record.decay ?? ""),
  expires: (record, id) => expires(id),
  scope: (record, id, facets) => scope(id, record.scope ?? {}, facets.scopes ?? []),
};

function labelled(id, words, control, ...more) {
  return h("div", { class: "entry" }, h("label", { for: id }, words), control, more);
}

function hint(id, words) {
  return h("div", { class: "entry-hint", id: `${id}-hint` }, words);
}

function area(id, words, value) {
  const control = h("textarea", { id, class: endless(value).trim(), rows: 6, dir: "auto", required: true,
    spellcheck: "true", value, on: { input: () => control.setAttribute("class", endless(control.value).trim()) } });
  return { node: labelled(id, words, control), control, read: () => ({ text: control.value }) };
}

function line(id, name, words, value, { choices = [], ...attributes } = {}) {
  const list = choices?.length
    ? h("datalist", { id: `${id}-list` }, choices.map((one) => h("option", { value: one }))) : null;
  const control = h("input", { id, type: "text", dir: "auto", autocomplete: "off", list: list?.id, value, ...attributes });
  const read = () => ({ [name]: control.value.trim() || (name === "title" ? "" : null) });
  return { node: labelled(id, words, control, list), control, read };
}

function tags(id, value, known = []) {
  const control = h("input", { id, type: "text", dir: "auto", autocomplete: "off", value: value.join(", "),
    "aria-describedby": `${id}-hint` });
  const words = () => [...new Set(control.value.split(",").map((one) => one.trim()).filter(Boolean))];
  const add = (tag) => {
    if (!words().includes(tag)) control.value = [...words(), tag].join(", ");
    control.focus();
  };
  const offered = known.slice(0, 8).map((tag) =>
    button(h("bdi", null, tag), () => add(tag), { class: "chip", "aria-label": `Add the tag ${tag}` }));
  const node = labelled(id, "Tags", control, hint(id, "separated by commas"),
    offered.length ? h("div", { class: "chips" }, offered) : null);
  return { node, control, read: () => ({ tags: words() }) };
}

function slider(id, value) {
  const words = h("output", { class: "slider-words", for: id }, weight(value));
  const describe = () => {
    words.textContent = weight(Number(control.value));
    control.setAttribute("aria-valuetext", words.textContent);
  };
  const control = h("input", { id, type: "range", min: 0, max: 1, step: 0.05, on: { input: describe } });
  control.value = value;
  describe();
  const node = labelled(id, "Importance", h("div", { class: "slider" }, control, words));
  return { node, control, read: () => ({ importance: Number(control.value) }) };
}

function decay(id, value) {
  const control = h("select", { id },
    h("option", { value: "" }, "none: as the settings say"),
    Object.entries(DECAYS).map(([name, words]) => h("option", { value: name }, `${name}: ${words}`)));
  control.value = value;
  return { node: labelled(id, "Decay", control), control, read: () => ({ decay: control.value || null }) };
}

function expires(id) {
  const control = h("input", { id, type: "datetime-local", "aria-describedby": `${id}-hint` });
  const node = labelled(id, "Expires", control, hint(id, "after this it is no longer found; empty means never"));
  return { node, control, read: () => ({ expires_at: ofField(control.value) }) };
}

function scope(id, value, known) {
  const parts = ["user", "agent", "session"].map((name) => {
    const choices = [...new Set(known.map((one) => one[name]).filter(Boolean))];
    return [name, line(`${id}-${name}`, name, name[0].toUpperCase() + name.slice(1), value[name] ?? "", { choices })];
  });
  const written = () => parts.map(([name, one]) => [name, one.control.value.trim()]).filter(([, text]) => text);
  const node = h("fieldset", { class: "entry scope-fields" },
    h("legend", null, "Scope"),
    h("p", { class: "entry-hint" }, "who may see it; all empty is everyone"),
    parts.map(([, one]) => one.node));
  return { node, control: parts[0][1].control, read: () => ({ scope: Object.fromEntries(written()) }) };
}
