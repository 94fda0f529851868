// What a page of another site tries against a server of this machine. Each attempt ends with {kind, read}: whether the
// page learnt anything but that the attempt failed.
const PATHS = [
  "/v1/status", "/v1/records", "/v1/facets", "/v1/settings", "/v1/changes?wait=0", "/v1/history/zqsecret", "/v1/index",
  "/v1/records/zqsecret", "/v1/file/zqsecret", "/metrics", "/healthz", "/openapi.json", "/mcp", "/v1/search",
];
const WRITES = [
  ["POST", "/v1/records", { text: "written by evil" }],
  ["POST", "/v1/forget", { ids: ["zqsecret"] }],
  ["POST", "/v1/undo", { id: "zqsecret" }],
  ["POST", "/v1/supersede", { id: "zqsecret", text: "written by evil" }],
  ["POST", "/v1/index", { paths: ["/"] }],
  ["POST", "/v1/search", { query: "zqsecret" }],
  ["POST", "/v1/recall", { query: "zqsecret" }],
  ["DELETE", "/v1/records/zqsecret", undefined],
  ["PATCH", "/v1/records/zqsecret", { text: "written by evil" }],
  ["POST", "/mcp", { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "memory_store", arguments: { text: "written by evil" } } }],
];
const TYPES = ["text/plain", "application/json", "application/x-www-form-urlencoded", "multipart/form-data", ""];
const pick = (list, n) => list[n % list.length];
const later = (made) => new Promise((resolve) => setTimeout(() => resolve(made), 3000));

function element(name, property, address) {
  return new Promise((resolve) => {
    const made = document.createElement(name);
    made.onload = () => resolve(name !== "iframe" || readable(made));
    made.onerror = () => resolve(false);
    made[property] = address;
    if (name === "link") made.rel = "stylesheet";
    document.body.append(made);
    later(false).then(resolve);
  });
}

function readable(frame) {
  try {
    return (frame.contentDocument?.body?.textContent ?? "").includes("zqsecret");
  } catch {
    return false;
  }
}

function form(target, method, path, body) {
  const made = document.createElement("form");
  Object.assign(made, { method: method === "GET" ? "get" : "post", action: target + path, target: "sink" });
  made.enctype = "text/plain";
  const field = document.createElement("input");
  // The equals sign of the field ends up inside a string, and the body is JSON.
  const text = JSON.stringify({ ...(body ?? {}), pad: "" });
  [field.name, field.value] = [text.slice(0, -2), '"}'];
  made.append(field);
  document.body.append(made);
  made.submit();
  return false;
}

async function fetched(address, options) {
  try {
    const answer = await fetch(address, options);
    if (answer.type === "opaque" || answer.type === "opaqueredirect") return false;
    await answer.text();
    return true;
  } catch {
    return false;
  }
}

function socket(address) {
  return new Promise((resolve) => {
    try {
      const made = new WebSocket(address.replace("http", "ws"));
      made.onopen = () => resolve(true);
      made.onerror = () => resolve(false);
    } catch {
      resolve(false);
    }
  });
}

function events(address) {
  return new Promise((resolve) => {
    const made = new EventSource(address);
    made.onopen = () => resolve(true);
    made.onerror = () => (made.close(), resolve(false));
  });
}

function asked(address, method, body) {
  return new Promise((resolve) => {
    const made = new XMLHttpRequest();
    made.open(method, address);
    made.withCredentials = true;
    made.onload = () => resolve(made.responseText.length > 0);
    made.onerror = () => resolve(false);
    made.send(body === undefined ? null : JSON.stringify(body));
  });
}

/** The attempts by number. */
const KINDS = {
  read: (target, n) => fetched(target + pick(PATHS, n), { mode: pick(["cors", "no-cors"], n >> 2), credentials: "include" }),
  write: (target, n) => {
    const [method, path, body] = pick(WRITES, n);
    const headers = pick(TYPES, n >> 1) ? { "Content-Type": pick(TYPES, n >> 1) } : {};
    const simple = ["GET", "POST"].includes(method);
    const mode = simple && n % 3 ? "no-cors" : "cors";
    return fetched(target + path, { method, mode, headers, body: JSON.stringify(body), keepalive: n % 5 === 0 });
  },
  xhr: (target, n) => asked(target + pick(WRITES, n)[1], pick(WRITES, n)[0], pick(WRITES, n)[2]),
  image: (target, n) => element("img", "src", target + pick(PATHS, n)),
  script: (target, n) => element("script", "src", target + pick(PATHS, n)),
  style: (target, n) => element("link", "href", target + pick(PATHS, n)),
  frame: (target, n) => element("iframe", "src", target + pick(["/", ...PATHS], n)),
  form: (target, n) => form(target, ...pick(WRITES.slice(0, 7), n)),
  socket: (target, n) => socket(target + pick(["/", "/mcp", "/v1/changes"], n)),
  events: (target, n) => events(target + pick(["/mcp", "/v1/changes", "/v1/status"], n)),
  beacon: (target, n) => (navigator.sendBeacon(target + pick(WRITES, n)[1], JSON.stringify(pick(WRITES, n)[2])), false),
};
const CHEAP = ["read", "write", "write", "xhr", "read", "write"];

/** Runs `count` attempts, eight at once; every kind occurs, the cheap ones most. */
window.attack = async (target, count) => {
  const results = [];
  let next = 0;
  const names = Object.keys(KINDS);
  async function work() {
    while (next < count) {
      const n = next++;
      const kind = n < 12 * names.length ? names[n % names.length] : pick(CHEAP, n);
      results.push([kind, await KINDS[kind](target, n)]);
    }
  }
  await Promise.all(Array.from({ length: 8 }, work));
  return results;
};
