// The controls of one ranking. They are built once and then updated, so that a slider keeps the pointer.

import { button, h, replace } from "./dom.js";
import { applies, GROUPS, KNOBS } from "./knobs.js";
import { turn } from "./state.js";

let serial = 0;

/** The controls of one ranking (`side` is one, a or b): `element` and `update()`. */
export function controls(view, side, { title = "Ranking" } = {}) {
  const prefix = `knob-${++serial}`;
  const defaults = view.app.settings.search;
  const knobs = KNOBS.map((knob) => {
    const undo = button("↺", () => set(knob.name, defaults[knob.name]), { class: "undo",
      "aria-label": `Reset ${knob.label}`, title: "Reset to the default" });
    return { knob, undo, ...makers[knob.kind](knob, { id: `${prefix}-${knob.name}`, set, view, undo }) };
  });
  const reset = button("Reset all", () => view.change(() => (view.state.knobs[side] = {})), { class: "link" });
  const others = h("div", { class: "others" });
  const element = h("div", { class: "controls" },
    h("div", { class: "controls-head" }, h("h2", null, title), reset),
    GROUPS.map((group) => h("fieldset", null, h("legend", null, group.title),
      group.controls.map((knob) => knobs.find((made) => made.knob === knob).element))),
    others);

  function set(name, value, { wait = false } = {}) {
    view.change(() => turn(view.state, side, name, value, defaults), { wait });
  }

  function update() {
    const changed = view.state.knobs[side];
    const now = { ...defaults, ...changed };
    for (const made of knobs) {
      const active = applies(made.knob, now);
      made.update(now[made.knob.name], now);
      made.element.classList.toggle("inactive", !active);
      made.element.classList.toggle("changed", made.knob.name in changed);
      for (const field of made.element.querySelectorAll("input, select")) field.disabled = !active;
      made.undo.hidden = !(made.knob.name in changed);
    }
    const count = Object.keys(changed).length;
    reset.hidden = count === 0;
    reset.textContent = count > 1 ? `Reset all ${count}` : "Reset";
    replace(others, Object.keys(changed).filter((name) => !KNOBS.some((knob) => knob.name === name)).map((name) =>
      button(`${name} ${changed[name]} ✕`, () => set(name, defaults[name]), { class: "chip" })));
  }

  update();
  return { element, update };
}

function frame(knob, { id, undo }, ...fields) {
  const label = h("label", { for: id, title: knob.about || null }, knob.label);
  return h("div", { class: `knob ${knob.kind}`, dataset: { knob: knob.name } }, label, undo, ...fields);
}

const makers = { // kind → the element of a knob, and what shows a value in it
  radios(knob, context) {
    const radios = knob.choices.map(({ value, label, about }) => h("label", { title: about },
      h("input", { type: "radio", name: context.id, value, on: { change: () => context.set(knob.name, value) } }),
      h("span", null, label)));
    const about = h("p", { class: "about" });
    const element = h("div", { class: "knob radios", dataset: { knob: knob.name }, role: "radiogroup",
      "aria-label": knob.label }, h("div", { class: "segments" }, radios), context.undo, about);
    const update = (value) => {
      for (const radio of element.querySelectorAll("input")) radio.checked = radio.value === value;
      about.textContent = knob.choices.find((choice) => choice.value === value)?.about ?? "";
    };
    return { element, update };
  },

  choice(knob, context) {
    const field = h("select", { id: context.id, on: { change: () => context.set(knob.name, field.value) } },
      knob.choices.map(({ value, label, about }) => h("option", { value, title: about }, label)));
    return { element: frame(knob, context, field), update: (value) => (field.value = value) };
  },

  text(knob, context) {
    const field = h("input", { type: "text", id: context.id, placeholder: knob.example || null,
      on: { change: () => context.set(knob.name, field.value.trim() || null) } });
    const update = (value) => {
      if (document.activeElement !== field) field.value = value ?? "";
    };
    return { element: frame(knob, context, field), update };
  },

  switch(knob, context) {
    const field = h("input", { type: "checkbox", id: context.id, role: "switch",
      on: { change: () => context.set(knob.name, field.checked || (knob.optional ? null : false)) } });
    return { element: frame(knob, context, field), update: (value) => (field.checked = value === true) };
  },

  number(knob, context) {
    const least = knob.low;
    const read = (text, wait) => {
      const value = text.trim() === "" ? null : Number(text);
      if (value === null ? !knob.optional : !Number.isFinite(value) || value < least) return;
      context.set(knob.name, knob.whole && value !== null ? Math.round(value) : value, { wait });
    };
    const field = h("input", { type: "number", id: context.id, min: least, step: "any", inputmode: "decimal",
      placeholder: knob.optional ? "off" : null, on: { input: () => read(field.value, true) } });
    const slider = h("input", { type: "range", min: least, max: knob.high, step: knob.step, "aria-label": knob.label,
      on: { input: () => read(slider.value, true) } });
    const update = (value) => {
      if (document.activeElement !== field || Number(field.value) !== value) field.value = value ?? "";
      if (document.activeElement !== slider || Number(slider.value) !== value) slider.value = value ?? least;
      slider.style.setProperty("--at", `${(100 * (Math.min(slider.value, knob.high) - least)) / (knob.high - least)}%`);
    };
    return { element: frame(knob, context, field, slider), update };
  },

  names(knob, context) {
    const list = h("div", { class: "toggles" });
    const element = h("div", { class: "knob names", dataset: { knob: knob.name }, role: "group",
      "aria-label": knob.label }, h("span", { class: "label" }, knob.label), context.undo, list);
    const update = (value) => {
      const names = context.view.facets[knob.name] ?? [];
      const on = value ?? names;
      replace(list, names.map((name) => button(name, () => choose(names, on, name), { class: "toggle",
        "aria-pressed": String(on.includes(name)), disabled: on.length === 1 && on[0] === name })));
    };
    const choose = (names, on, name) => {
      const next = names.filter((one) => (one === name ? !on.includes(one) : on.includes(one)));
      context.set(knob.name, next.length === names.length ? null : next);
      list.querySelectorAll("button")[names.indexOf(name)]?.focus();
    };
    return { element, update };
  },
};
