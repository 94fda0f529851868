// What others change while the page is looked at: it waits at the server, and tells the views (`recollect:changed`).

const WAIT_S = 25;
const MARGIN_MS = 15000;
const REST_MS = 1000;
const MOST_REST_MS = 30000;

/** Waits for changes for as long as the page is there: while it is visible, and more and more patiently while the
 * server does not answer. One who is refused asks again when the page is next looked at. */
export async function follow(api) {
  let after = null;
  let rest = REST_MS;
  for (;;) {
    await shown();
    try {
      const { seq, changed } = await ask(api, after);
      after = seq;
      rest = REST_MS;
      if (changed) {
        await unwritten();
        window.dispatchEvent(new Event("recollect:changed"));
        await pause(REST_MS); // many changes in a row are shown once a second
      }
    } catch (error) {
      if (document.hidden) continue;
      if (error.status >= 400 && error.status < 500) await hidden();
      else await pause(rest);
      rest = Math.min(rest * 2, MOST_REST_MS);
    }
  }
}

/** One question; whoever looks elsewhere is not kept waiting for. */
async function ask(api, after) {
  const leaving = new AbortController();
  const left = () => document.hidden && leaving.abort();
  document.addEventListener("visibilitychange", left);
  try {
    const wait = after === null ? 0 : WAIT_S;
    const timeout = wait * 1000 + MARGIN_MS;
    return await api.get("/v1/changes", { after, wait }, { signal: leaving.signal, timeout });
  } finally {
    document.removeEventListener("visibilitychange", left);
  }
}

/** Until nobody is in the middle of writing something. */
async function unwritten() {
  while (writing(document.activeElement)) await pause(REST_MS);
}

function writing(at) {
  return Boolean(at?.closest?.("form.sheet")) && "defaultValue" in at && at.value !== at.defaultValue;
}

function shown() {
  return seen(() => !document.hidden);
}

function hidden() {
  return seen(() => document.hidden);
}

function seen(holds) {
  if (holds()) return Promise.resolve();
  return new Promise((met) => {
    const look = () => {
      if (!holds()) return;
      document.removeEventListener("visibilitychange", look);
      met();
    };
    document.addEventListener("visibilitychange", look);
  });
}

function pause(ms) {
  return new Promise((over) => setTimeout(over, ms));
}
