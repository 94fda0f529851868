// Requests to the server, in JSON. After a refusal the user is asked for a token, and the request is sent again.

import { button, h } from "./dom.js";
import { phrase } from "./notice.js";

const KEY = "recollect.token";
const TIMEOUT_MS = 60000;
const listeners = [];
let asking = null;

/** Calls the listener after each request: whether the server was reached. */
export function onReach(listener) {
  listeners.push(listener);
}

/** A refusal of the server, or a request that did not reach it (`code` "unreachable", `status` 0). */
class ApiError extends Error {
  constructor({ status = 0, code = "unreachable", message, hint = "", requestId = "" }) {
    super(message);
    this.name = "ApiError";
    Object.assign(this, { status, code, hint, requestId });
  }
}

/** Whether requests need a token, which a plain link does not send. */
export const hasToken = () => sessionStorage.getItem(KEY) !== null;

export const api = {
  get: (path, query, options) => ask("GET", path + search(query), undefined, options),
  post: (path, body, options) => ask("POST", path, body ?? {}, options),
  patch: (path, body, options) => ask("PATCH", path, body ?? {}, options),
  delete: (path, options) => ask("DELETE", path, undefined, options),
};

function search(query) {
  const pairs = Object.entries(query ?? {}).flatMap(([name, value]) =>
    [value].flat().filter((one) => one !== null && one !== undefined && one !== "").map((one) => [name, String(one)]),
  );
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

async function ask(method, path, body, { signal, timeout = TIMEOUT_MS } = {}) {
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    const answer = await send(method, path, body, token, { signal, timeout });
    if (answer.status !== 401) return read(answer);
    if (sessionStorage.getItem(KEY) !== token) continue; // another request has asked for it meanwhile
    const typed = await askToken(token !== null);
    if (typed === null) return read(answer);
    sessionStorage.setItem(KEY, typed);
  }
}

async function send(method, path, body, token, { signal, timeout }) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  const limit = AbortSignal.timeout(timeout);
  try {
    const answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    for (const listener of listeners) listener(true);
    return answer;
  } catch (error) {
    if (signal?.aborted) throw error;
    if (limit.aborted) throw new ApiError({ code: "timeout", message: "The server took longer than a minute." });
    for (const listener of listeners) listener(false);
    throw new ApiError({ message: "The server is not reachable.", hint: "Is `recollect serve` still running?" });
  }
}

async function read(answer) {
  if (answer.ok && answer.headers.get("Content-Type") === "application/pdf") return answer.blob();
  const text = await answer.text();
  let body;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    body = undefined;
  }
  if (answer.ok && body !== undefined) return body;
  const error = body?.error ?? {};
  throw new ApiError({
    status: answer.status,
    code: error.code ?? "unknown",
    message: error.message ?? `The server answered ${answer.status}.`,
    hint: error.hint ?? "",
    requestId: error.request_id ?? answer.headers.get("X-Request-Id") ?? "",
  });
}


/** The token that is typed into a dialog, or null when it is closed; requests refused at once share one dialog. */
function askToken(refused) {
  asking ??= showDialog(refused).finally(() => {
    asking = null;
  });
  return asking;
}

function showDialog(refused) {
  return new Promise((done) => {
    const field = h("input", { type: "password", id: "token", name: "token", autocomplete: "off", spellcheck: "false",
      required: true });
    const close = (value) => {
      dialog.remove();
      done(value);
    };
    const submit = (event) => {
      event.preventDefault();
      const token = field.value.replace(/[^\x21-\x7e]/g, ""); // a header can hold no invisible characters
      if (token) close(token);
    };
    const cancel = button("Cancel", () => close(null));
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "token-title", on: { close: () => close(null) } },
      h("form", { on: { submit } },
        h("h2", { id: "token-title" }, "This server requires a token"),
        h("p", { class: "quiet" }, phrase(refused
          ? "The token was refused. Enter another one."
          : "`recollect token add NAME` makes one on the server. It is kept until this tab is closed.")),
        h("label", { for: "token" }, "Token"), field,
        h("div", { class: "dialog-buttons" }, cancel,
          h("button", { type: "submit", class: "button primary" }, "Use token"))));
    document.body.append(dialog);
    dialog.showModal();
    field.focus();
  });
}
