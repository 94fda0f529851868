// Recollect in OpenCode: recalls at each prompt, and stores a session when its answer is complete.
// `recollect hook install opencode` writes this file, with the two commands below, and replaces it.

import { spawn } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const RECALL = [];
const CAPTURE = [];

/** What the command of the recall hook answers; nothing if it cannot be run or answers nothing. */
function recalled(asked) {
  return new Promise((resolve) => {
    const child = spawn(RECALL[0], RECALL.slice(1), { stdio: ["pipe", "pipe", "ignore"], timeout: 5000 });
    let answer = "";
    child.stdout.on("data", (text) => { answer += text; });
    child.on("error", () => resolve(""));
    child.on("close", () => {
      try { resolve(JSON.parse(answer).hookSpecificOutput.additionalContext); } catch { resolve(""); }
    });
    child.stdin.on("error", () => {});
    child.stdin.end(JSON.stringify(asked));
  });
}

/**
 * Store a session, in a process that goes on when OpenCode ends; `opencode run` ends soon, so nothing is awaited once
 * the session is read. A session of a subagent has a parent.
 */
async function capture(client, id) {
  const [info, messages] = await Promise.all([client.session.get({ path: { id } }), client.session.messages({ path: { id } })]);
  if (!messages.data || info.data?.parentID) return;
  const file = join(mkdtempSync(join(tmpdir(), "recollect-")), "session.json");
  writeFileSync(file, JSON.stringify({ info: info.data, messages: messages.data }), { mode: 0o600 });
  const words = [...CAPTURE.slice(1), "--remove", `--transcript=${file}`];
  spawn(CAPTURE[0], words, { detached: true, stdio: "ignore" }).on("error", () => {}).unref();
}

export const Recollect = async ({ client }) => ({
  "chat.message": async ({ sessionID }, { parts }) => {
    const [first, ...others] = parts.filter((part) => part.type === "text" && !part.synthetic);
    if (!first || !RECALL.length) return;
    const prompt = [first, ...others].map((part) => part.text).join("\n");
    const text = await recalled({ hook_event_name: "UserPromptSubmit", session_id: sessionID, prompt });
    if (text) parts.push({ ...first, id: `${first.id.slice(0, -3)}zzz`, text, synthetic: true });
  },
  event: async ({ event }) => {
    const id = event.properties?.sessionID;
    if (event.type === "session.idle" && CAPTURE.length) await capture(client, id);
    if (event.type === "session.compacted" && RECALL.length) {
      await recalled({ hook_event_name: "SessionStart", session_id: id, source: "compact" });
    }
  },
});
