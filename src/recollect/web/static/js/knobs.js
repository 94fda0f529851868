// The controls of the search page, as the server declares them in /v1/settings.

/** Groups of search options, all of them in one list, and the filters. `install` fills them before a view is built. */
export let GROUPS = [];
export let KNOBS = [];
export let FILTERS = [];

export function install({ groups, filters }) {
  GROUPS = groups;
  KNOBS = groups.flatMap((group) => group.controls);
  FILTERS = filters;
}

/** Whether an option has an effect with what else is chosen. */
export function applies({ needs }, now) {
  if (!needs) return true;
  const value = now[needs.name];
  return Array.isArray(value) || value === null ? !value || needs.values.some((one) => value.includes(one))
    : needs.values.includes(value);
}

/** An option's value from the text in an address; undefined where it is not a value. */
export function parseValue(name, text) {
  const kind = named(name)?.kind;
  if (kind === "names") return text.split(",").filter(Boolean);
  if (kind === "switch") return text === "true";
  if (kind !== "number") return text;
  const number = Number(text);
  return text.trim() !== "" && Number.isFinite(number) ? number : undefined;
}

/** The chosen options in a few words, for the head of a ranking: "RRF, k 60". */
export function summary(now) {
  const name = named("fusion").choices.find((choice) => choice.value === now.fusion)?.label ?? now.fusion;
  const alone = now.sources?.length === 1;
  const reads = (option) => applies(named(option), now);
  const parts = [alone ? `${now.sources[0]} alone` : reads("rrf_k") ? `${name}, k ${now.rrf_k}` : name];
  if (!alone && now.text_weight !== now.vector_weight) parts.push(`keyword ${now.text_weight}, vector ${now.vector_weight}`);
  if (!alone && reads("normalisation") && now.normalisation !== "none") parts.push(now.normalisation);
  if (now.mmr) parts.push(`MMR ${now.mmr_lambda}`);
  if (now.rerank) parts.push("rerank");
  return parts.join(" · ");
}

function named(name) {
  return KNOBS.find((knob) => knob.name === name);
}
