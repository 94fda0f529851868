// What became of a record: its chain of supersession, oldest above, and under "this one" all that happened to it.

import { h } from "./dom.js";
import { USUAL_IMPORTANCE } from "./fields.js";
import { moment } from "./moments.js";
import { nameOf, recordHash, recordPath } from "./recordtext.js";

const AROUND = 10;
const LONGEST = 1200;

const SAID = {
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
  const records = await Promise.all(near.map((id) => (id === record.id ? record : fetchOne(id, api))));
  const rest = chain.length - near.length;
  return h(
    "section",
    { class: "card", "aria-labelledby": "history-title" },
    h("h2", { id: "history-title" }, "History"),
    rest
      ? h("p", { class: "quiet" }, `The chain has ${chain.length} records; the ${near.length} nearest are shown.`)
      : null,
    h(
      "ol",
      { class: "timeline" },
      near.map((id, place) => stop(id, records[place], record, history)),
    ),
  );
}

async function fetchOne(id, api) {
  try {
    return await api.get(recordPath("records", id));
  } catch {
    return null;
  }
}

function stop(id, found, record, history) {
  const mine = id === record.id;
  const gone = h("span", { class: "quiet" }, "a record that is forgotten, or not yours to see");
  const name = found ? h("a", { href: recordHash(id), dir: "auto" }, nameOf({ text: found.text }, 160)) : gone;
  return h(
    "li",
    { class: mine ? "stop stop-here" : "stop", "aria-current": mine ? "true" : null },
    mine
      ? h("div", { class: "stop-head" }, h("span", { class: "badge" }, "this one"))
      : h("div", { class: "stop-head" }, name),
    found && !mine
      ? h(
          "div",
          { class: "stop-time quiet" },
          found.superseded_at
            ? ["held until ", moment(found.superseded_at)]
            : ["holds since ", moment(found.happened_at ?? found.created_at)],
        )
      : null,
    mine ? h("ol", { class: "events" }, lines(record, history.events)) : null,
  );
}

/** The events, oldest first; an edit's "after" is what the next edit found, or what holds now. */
function lines(record, events) {
  const now = { importance: USUAL_IMPORTANCE, ...record };
  const told = events.filter(({ action }) => action !== "undo"); // what an undo did stands right before it
  const rows = told.reverse().map((event) => {
    const before = event.detail?.before ?? {};
    const changes = Object.entries(before).map(([name, old]) => {
      const pair = [name, old, now[name]];
      now[name] = old;
      return pair;
    });
    return h(
      "li",
      { class: "event" },
      h("span", { class: "event-what" }, said(event)),
      " ",
      moment(event.at),
      changes.length ? h("dl", { class: "changes" }, changes.map(change)) : null,
    );
  });
  return rows.reverse();
}

function said({ action, detail }) {
  if (action === "supersede" && detail?.by)
    return ["Superseded by ", h("a", { href: recordHash(detail.by) }, "a newer record")];
  if (action === "supersedes" && detail?.id)
    return ["Supersedes ", h("a", { href: recordHash(detail.id) }, "an older record")];
  if (action === "restore" && detail?.undid === "supersede") return "Current again";
  return SAID[action] ?? action;
}

function change([name, before, after]) {
  return [
    h("dt", null, name.replace("_", " ")),
    h(
      "dd",
      null,
      h("del", { dir: "auto" }, shown(before)),
      h("span", { class: "arrow", role: "img", "aria-label": "became" }, "→"),
      h("ins", { dir: "auto" }, shown(after)),
    ),
  ];
}

function shown(value) {
  if (value === null || value === undefined || value === "" || value.length === 0) return "nothing";
  const words = Array.isArray(value) ? value.join(", ") : String(value);
  return words.length > LONGEST ? `${words.slice(0, LONGEST)}…` : words;
}
