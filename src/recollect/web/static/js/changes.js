// Changes by others while the page is shown: it waits for them at the server, and tells the views (`recollect:changed`).

const WAIT_S = 25;
const MARGIN_MS = 15000;
const REST_MS = 1000;
const MOST_REST_MS = 30000;

/** Waits for changes while the page is visible, and longer and longer while the server does not answer. After a refusal
 * it asks again when the page is next shown. */
export async function follow(api) {
  let after = null;
  let rest = REST_MS;
  for (;;) {
    await until(false);
    try {
      const { seq, changed } = await ask(api, after);
      after = seq;
      rest = REST_MS;
      if (changed) {
        while (isWriting(document.activeElement)) await pause(REST_MS);
        window.dispatchEvent(new Event("recollect:changed"));
        await pause(REST_MS); // many changes in a row are shown once a second
      }
    } catch (error) {
      if (document.hidden) continue;
      if (error.status >= 400 && error.status < 500) await until(true);
      else await pause(rest);
      rest = Math.min(rest * 2, MOST_REST_MS);
    }
  }
}

/** Asks once; the question is dropped when the page is hidden. */
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

/** Whether the reader is in the middle of writing something. */
function isWriting(at) {
  return Boolean(at?.closest?.("form.sheet")) && "defaultValue" in at && at.value !== at.defaultValue;
}

/** Waits until the page is hidden, or until it is shown. */
function until(hidden) {
  if (document.hidden === hidden) return Promise.resolve();
  return new Promise((changed) => document.addEventListener("visibilitychange", changed, { once: true }));
}

function pause(ms) {
  return new Promise((over) => setTimeout(over, ms));
}
