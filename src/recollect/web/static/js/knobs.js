// Every setting of a search that can be turned on the page: what it is called, its range, and when it matters.

const scores = ["weighted", "combmnz"];

export const FUSIONS = [
  ["blend", "Blend", "How far each score stands out of its list, question by question"],
  ["rrf", "RRF", "Σ w / (k + rank): ranks only"],
  ["weighted", "Weighted", "Σ w · normalised score"],
  ["combmnz", "CombMNZ", "The weighted sum, times how many sources agree"],
  ["borda", "Borda", "Points for every place above the last"],
];

/** Groups of knobs. `on(values)` says whether one matters with what else is chosen. */
export const GROUPS = [
  {
    title: "Fusion",
    knobs: [
      { name: "fusion", label: "Method", kind: "fusion" },
      { name: "rrf_k", label: "k", kind: "number", max: 200, step: 1, on: (now) => now.fusion === "rrf",
        about: "RRF’s constant: the smaller, the more the first places count" },
      { name: "normalisation", label: "Normalisation", kind: "choice", options: ["none", "minmax", "zscore", "dbsf"],
        on: (now) => scores.includes(now.fusion), about: "Of scores, for weighted and CombMNZ" },
      { name: "text_weight", label: "Keyword weight", kind: "number", max: 2, step: 0.05,
        on: (now) => asked(now, "keyword") },
      { name: "vector_weight", label: "Vector weight", kind: "number", max: 2, step: 0.05,
        on: (now) => asked(now, "vector") },
    ],
  },
  {
    title: "Sources and depth",
    knobs: [
      { name: "sources", label: "Sources", kind: "sources" },
      { name: "fetch_k", label: "Depth", kind: "number", min: 1, max: 500, step: 1, whole: true,
        about: "fetch_k: how deep each source is read" },
      { name: "limit", label: "Results", kind: "number", min: 1, max: 50, step: 1, whole: true,
        about: "limit: how many are shown" },
      { name: "min_score", label: "Least score", kind: "number", max: 1, step: 0.01, about: "min_score" },
    ],
  },
  {
    title: "After fusion",
    knobs: [
      { name: "decay", label: "Decay with age", kind: "switch" },
      { name: "half_life_days", label: "Half-life, days", kind: "number", min: 1, max: 365, step: 1, optional: true,
        on: (now) => now.decay, about: "For records without a decay class; empty: they do not decay" },
      { name: "importance_weight", label: "Importance", kind: "number", max: 1, step: 0.05,
        about: "importance_weight: how far importance moves a score" },
      { name: "prefer_newer", label: "Prefer the newer", kind: "switch",
        about: "Of two facts that say nearly the same, the newer first" },
      { name: "mmr", label: "Diversity (MMR)", kind: "switch" },
      { name: "mmr_lambda", label: "λ", kind: "number", max: 1, step: 0.05, on: (now) => now.mmr,
        about: "1 is all relevance, 0 is all diversity" },
      { name: "rerank", label: "Rerank", kind: "switch", about: "A model reads the first results again" },
      { name: "confidence", label: "Confidence", kind: "switch",
        about: "How far each stands out from what unrelated questions find" },
      { name: "min_confidence", label: "Least confidence", kind: "number", max: 1, step: 0.01,
        on: (now) => now.confidence || now.min_confidence > 0 },
    ],
  },
];

export const KNOBS = GROUPS.flatMap((group) => group.knobs);

const KINDS = Object.fromEntries(KNOBS.map((knob) => [knob.name, knob.kind]));

/** A setting's value from the words of an address; undefined where they mean nothing. */
export function parseValue(name, text) {
  if (name === "sources") return text.split(",").filter(Boolean);
  if (KINDS[name] === "switch") return text === "true";
  if (KINDS[name] !== "number") return text;
  const number = Number(text);
  return text.trim() !== "" && Number.isFinite(number) ? number : undefined;
}

/** What is chosen in a few words, for the head of a ranking: "RRF, k 60". */
export function summary(now) {
  const name = FUSIONS.find(([value]) => value === now.fusion)?.[1] ?? now.fusion;
  const alone = now.sources?.length === 1;
  const parts = [alone ? `${now.sources[0]} alone` : now.fusion === "rrf" ? `${name}, k ${now.rrf_k}` : name];
  if (!alone && now.text_weight !== now.vector_weight) parts.push(`keyword ${now.text_weight}, vector ${now.vector_weight}`);
  if (!alone && scores.includes(now.fusion) && now.normalisation !== "none") parts.push(now.normalisation);
  if (now.mmr) parts.push(`MMR ${now.mmr_lambda}`);
  if (now.rerank) parts.push("rerank");
  return parts.join(" · ");
}

function asked(now, source) {
  return !now.sources || now.sources.includes(source);
}
