// The history of a record: its chain of supersession, oldest above, and under "this one" every change to it.

import { card, h } from "./dom.js";
import { USUAL_IMPORTANCE } from "./fields.js";
import { moment } from "./moments.js";
import { nameOf, recordHash, recordPath } from "./recordtext.js";

const AROUND = 10;
const LONGEST = 1200;

const ACTIONS = {
  add: "Stored",
  update: "Edited",
  supersede: "Superseded",
  supersedes: "Superseded another",
  forget: "Forgotten",
  restore: "Restored",
  purge: "Wiped",
};

/** The chain and the events of a record, or null where there is nothing but that it was stored. */
export async function timeline(record, history, api) {
  const chain = history.chain?.length ? history.chain : [record.id];
  if (chain.length < 2 && history.events.length < 2) return null;
  const at = Math.max(0, chain.indexOf(record.id));
  const near = chain.slice(Math.max(0, at - AROUND), at + AROUND + 1);
  const fetchOne = (id) => (id === record.id ? record : api.get(recordPath("records", id)).catch(() => null));
  const records = await Promise.all(near.map(fetchOne));
  return card("history", "History",
    chain.length > near.length
      ? h("p", { class: "quiet" }, `The chain has ${chain.length} records; the ${near.length} nearest are shown.`) : null,
    h("ol", { class: "timeline" }, near.map((id, place) =>
      id === record.id ? current(record, history.events) : another(id, records[place]))));
}

/** The record whose page this is. */
function current(record, events) {
  return h("li", { class: "stop stop-here", "aria-current": "true" },
    h("div", { class: "stop-head" }, h("span", { class: "badge" }, "this one")),
    h("ol", { class: "events" }, lines(record, events)));
}

/** Another record of the chain; null is one that cannot be read. */
function another(id, record) {
  if (!record) {
    const gone = h("span", { class: "quiet" }, "a record that is forgotten, or not yours to see");
    return h("li", { class: "stop" }, h("div", { class: "stop-head" }, gone));
  }
  const time = record.superseded_at ? ["held until ", moment(record.superseded_at)]
    : ["holds since ", moment(record.happened_at ?? record.created_at)];
  return h("li", { class: "stop" },
    h("div", { class: "stop-head" },
      h("a", { href: recordHash(id), dir: "auto" }, nameOf({ text: record.text }, 160))),
    h("div", { class: "stop-time quiet" }, time));
}

/** The events, oldest first; an edit's "after" is what the next edit found, or what holds now. */
function lines(record, events) {
  const now = { importance: USUAL_IMPORTANCE, ...record };
  const listed = events.filter(({ action }) => action !== "undo"); // what an undo did stands right before it
  const rows = listed.reverse().map((event) => {
    const changes = Object.entries(event.detail?.before ?? {}).map(([name, old]) => {
      const after = now[name];
      now[name] = old;
      return change(name, old, after);
    });
    return h("li", { class: "event" },
      h("span", { class: "event-what" }, description(event)), " ", moment(event.at),
      changes.length ? h("dl", { class: "changes" }, changes) : null);
  });
  return rows.reverse();
}

function description({ action, detail }) {
  if (action === "supersede" && detail?.by)
    return ["Superseded by ", h("a", { href: recordHash(detail.by) }, "a newer record")];
  if (action === "supersedes" && detail?.id)
    return ["Supersedes ", h("a", { href: recordHash(detail.id) }, "an older record")];
  if (action === "restore" && detail?.undid === "supersede") return "Current again";
  return ACTIONS[action] ?? action;
}

function change(name, before, after) {
  return [h("dt", null, name.replace("_", " ")), h("dd", null,
    h("del", { dir: "auto" }, shown(before)),
    h("span", { class: "arrow", role: "img", "aria-label": "became" }, "→"),
    h("ins", { dir: "auto" }, shown(after)))];
}

function shown(value) {
  if (value === null || value === undefined || value === "" || value.length === 0) return "nothing";
  const words = Array.isArray(value) ? value.join(", ") : String(value);
  return words.length > LONGEST ? `${words.slice(0, LONGEST)}…` : words;
}
