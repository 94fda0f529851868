// What is known of a record beside its text.

import { h } from "./dom.js";
import { DECAYS, weight } from "./fields.js";
import { moment } from "./moments.js";

/** Category, tags, scope, weight, times and source; what is not set is left out. */
export function known(record) {
  const scope = Object.entries(record.scope ?? {});
  const rows = [
    ["Category", record.category && h("bdi", null, record.category)],
    [
      "Tags",
      record.tags?.length
        ? h(
            "span",
            { class: "chips" },
            record.tags.map((tag) => h("bdi", { class: "record-tag" }, tag)),
          )
        : null,
    ],
    [
      "Scope",
      scope.length ? scope.map(([part, name], at) => [at ? ", " : "", `${part} `, h("bdi", null, name)]) : "everyone",
    ],
    ["Importance", weight(record.importance)],
    ["Decay", record.decay ? `${record.decay}: ${DECAYS[record.decay] ?? ""}` : null],
    ["Happened", moment(record.happened_at)],
    ["Stored", moment(record.created_at)],
    ["Edited", moment(record.edited_at)],
    ["Expires", moment(record.expires_at)],
    ["Superseded", moment(record.superseded_at)],
    ["Written by", [record.origin, record.author ? [": ", h("bdi", null, record.author)] : ""]],
    ["Source", record.source && h("bdi", null, record.source)],
    ["File", record.path && [h("bdi", null, record.path), record.place ? `, ${record.place}` : record.lines ? `, lines ${record.lines.join("–")}` : ""]],
    ["Short id", record.short_id && record.short_id !== record.id && h("code", null, record.short_id)],
    ["Id", h("code", { class: "id" }, record.id)],
  ];
  return h(
    "section",
    { class: "card", "aria-labelledby": "about-title" },
    h("h2", { id: "about-title" }, "Details"),
    h(
      "dl",
      { class: "known" },
      rows.filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", { dir: "auto" }, value)]),
    ),
  );
}
