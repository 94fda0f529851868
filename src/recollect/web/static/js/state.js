// The state of the search view, and its address: the hash holds everything that was chosen.

import { FILTERS, KNOBS, parseValue } from "./knobs.js";

const SCOPE = ["user", "agent", "session"];
const SIDES = { one: "", a: "a.", b: "b." };

/** The state of an address. `knobs` holds the options that differ from the defaults: of one ranking, and of two. */
export function fromQuery(query, defaults) {
  const state = { q: query.get("q") ?? "", filters: {}, compare: query.has("compare"), knobs: { one: {}, a: {}, b: {} },
    why: query.get("why") };
  for (const { name, kind } of FILTERS) {
    const values = query.getAll(name).filter(Boolean);
    if (values.length) state.filters[name] = kind === "names" ? values : kind === "switch" ? true : values[0];
  }
  for (const [side, prefix] of Object.entries(SIDES)) {
    for (const { name } of KNOBS) {
      const value = query.has(prefix + name) ? parseValue(name, query.get(prefix + name)) : undefined;
      if (value !== undefined) turn(state, side, name, value, defaults);
    }
  }
  return state;
}

/** The address of a state. */
export function toHash(state) {
  const pairs = state.q ? [["q", state.q]] : [];
  for (const [name, value] of Object.entries(state.filters)) for (const one of [value].flat()) pairs.push([name, one]);
  if (state.compare) pairs.push(["compare", "1"]);
  for (const [side, prefix] of Object.entries(SIDES)) {
    if (side !== "one" && !state.compare) continue;
    for (const [name, value] of Object.entries(state.knobs[side])) pairs.push([prefix + name, value]);
  }
  if (state.why !== null) pairs.push(["why", state.why]);
  const query = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]));
  return pairs.length ? `#/search?${query}` : "#/search";
}

/** What is sent to the server: the question, what was changed, and the filters. */
export function request(state, side) {
  const { user, agent, session, ...filters } = state.filters;
  const scope = Object.fromEntries(Object.entries({ user, agent, session }).filter(([, value]) => value));
  return { query: state.q, ...state.knobs[side], ...filters, ...(Object.keys(scope).length ? { scope } : {}) };
}

/** Sets an option; a value that equals the default is removed. */
export function turn(state, side, name, value, defaults) {
  const same = JSON.stringify(value ?? null) === JSON.stringify(defaults[name] ?? null);
  if (same) delete state.knobs[side][name];
  else state.knobs[side][name] = value;
}

/** Sets a filter; an empty value removes it. */
export function narrow(state, name, value) {
  if (value === null || value === undefined || value === "" || value === false || value.length === 0) {
    delete state.filters[name];
  } else state.filters[name] = value;
}

/** Applies the change that `why-not` advises: options of search, some of them filters. */
export function apply(state, side, change, defaults) {
  for (const [name, value] of Object.entries(change)) {
    if (name === "scope") for (const part of SCOPE) narrow(state, part, value?.[part]);
    else if (FILTERS.some((filter) => filter.name === name)) narrow(state, name, value);
    else turn(state, side, name, value, defaults);
  }
}

/** Begins or ends the comparison. It begins with the user's ranking against RRF, unless two were chosen before. */
export function toggleCompare(state, defaults) {
  state.compare = !state.compare;
  const { one, a, b } = state.knobs;
  if (!state.compare || Object.keys(a).length || Object.keys(b).length) return;
  state.knobs.a = { ...one };
  const other = (one.fusion ?? defaults.fusion) === "rrf" ? "blend" : "rrf";
  state.knobs.b = { ...one, fusion: other };
}
