// The time line of facts: day by day, newest first, with what superseded each.

import { button, h, replace } from "./dom.js";
import { nameOf, recordHash } from "./recordtext.js";
import { clip, timeOf } from "./words.js";

const PAGE = 100;

/** Fills `root` with the facts that the caller may see. */
export async function show(root, _params, app) {
  const list = h("div", { class: "days" });
  const foot = h("div", { class: "actions" });
  const records = [];
  const any_scope = app.settings.caller.owner || null;

  async function more() {
    const query = { kind: "fact", superseded: true, limit: PAGE + 1, offset: records.length, any_scope };
    const { records: next } = await app.api.get("/v1/records", query);
    records.push(...next.slice(0, PAGE));
    const names = new Map(records.map((record) => [record.id, nameOf(record, 80)]));
    replace(list, days(records).map(([day, facts]) => dayOf(day, facts, names)));
    replace(foot, next.length > PAGE ? button("Show older facts", more) : null);
  }

  replace(root, h("h1", null, "Facts over time"), list, foot);
  await more();
  if (!records.length) replace(list, h("p", { class: "quiet" }, "No facts are stored yet."));
}

function days(records) {
  const sorted = [...records].sort((one, other) => timeOf(other).localeCompare(timeOf(one)));
  return [...Map.groupBy(sorted, (record) => timeOf(record).slice(0, 10))];
}

function dayOf(day, facts, names) {
  return h("section", { class: "day", "aria-label": day }, h("h2", { class: "overline" }, h("time", { datetime: day }, day)),
    h("ul", null, facts.map((fact) => h("li", { class: fact.superseded_by ? "fact past" : "fact" },
      h("a", { href: recordHash(fact.id), dir: "auto" }, nameOf(fact, 200)),
      h("span", { class: "short-id mono quiet", title: `The id for commands: ${fact.id}` }, h("bdi", null, clip(fact.short_id))),
      fact.superseded_by ? h("p", { class: "quiet" }, "→ ", h("a", { href: recordHash(fact.superseded_by), dir: "auto" },
        names.get(fact.superseded_by) ?? "a newer record")) : null))));
}
