// The start of the page: it fetches the settings, shows the view of the address, and waits for a lost server.

import { api, onReach } from "./api.js";
import { follow } from "./changes.js";
import { h, replace } from "./dom.js";
import { listen, palette, showKeys } from "./keys.js";
import { install } from "./knobs.js";
import { failure } from "./notice.js";
import { start } from "./router.js";
import { attempt, toast } from "./toast.js";

const RETRY_MS = 1500;
const THEMES = ["auto", "light", "dark"];
const root = document.getElementById("main");
const searchLink = document.querySelector('nav a[data-view="search"]');
const banner = document.getElementById("banner");

const app = {
  api,
  settings: null,
  attempt,
  toast,
  go: (hash) => {
    location.hash = hash;
  },
  fail: (place, error, again) => replace(place, failure(error, again)),
};

function highlight(view) {
  for (const link of document.querySelectorAll("nav a[data-view]")) {
    link.ariaCurrent = link.dataset.view === view ? "page" : null;
  }
}

/** "Search" in the navigation leads to the last search. */
function remember() {
  if (location.hash.startsWith("#/search")) searchLink.href = location.hash;
}

function toSearch() {
  const field = document.getElementById("q");
  if (!field) return app.go(searchLink.hash);
  field.focus();
  field.select();
}

function themeSwitch() {
  const button = document.getElementById("theme");
  const chosen = () => localStorage.getItem("recollect.theme") ?? "auto";
  const paint = () => {
    const theme = chosen();
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
    button.setAttribute("aria-label", `Colours: ${theme}`);
    button.title = `Colours: ${theme}`;
  };
  button.addEventListener("click", () => {
    localStorage.setItem("recollect.theme", THEMES[(THEMES.indexOf(chosen()) + 1) % THEMES.length]);
    paint();
  });
  paint();
}

/** The commands of the palette: the views, and the buttons of the view that is shown. */
function commands() {
  const views = [...document.querySelectorAll("nav a[data-view]")].map((link) =>
    [`Go to ${link.textContent}`, () => app.go(link.hash)]);
  const tools = [...root.querySelectorAll(".tools > .button:not([hidden])")].map((tool) =>
    [tool.title || tool.textContent, () => tool.click()]);
  return [...tools, ...views, ["Change the colours", () => document.getElementById("theme").click()],
    ["Show all keys", showKeys]];
}

function openPalette(event) {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  palette(commands(), (words) => app.go(`#/search?${new URLSearchParams({ q: words })}`));
}

/** Shows a banner while the server cannot be reached, and sends the event `recollect:back` when it can. */
function watch() {
  let waiting = null;
  onReach((reached) => {
    if (reached && waiting) {
      clearInterval(waiting);
      waiting = null;
      replace(banner);
      banner.hidden = true;
      window.dispatchEvent(new Event("recollect:back"));
    } else if (!reached && !waiting) {
      const spinner = h("span", { class: "spinner", "aria-hidden": "true" });
      replace(banner, spinner, "The server is not reachable, retrying…");
      banner.hidden = false;
      waiting = setInterval(() => api.get("/healthz").catch(() => {}), RETRY_MS);
    }
  });
}

async function settled() {
  for (;;) {
    try {
      return await api.get("/v1/settings");
    } catch (error) {
      if (error.code !== "unreachable") {
        await new Promise((again) => app.fail(root, error, again));
      } else await new Promise((back) => window.addEventListener("recollect:back", back, { once: true }));
    }
  }
}

async function begin() {
  themeSwitch();
  watch();
  document.getElementById("keys").addEventListener("click", showKeys);
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    root.focus();
  });
  listen({ "?": showKeys, "/": toSearch });
  document.addEventListener("keydown", openPalette);
  app.settings = await settled();
  install(app.settings.controls);
  follow(api);
  await start(root, app, (view) => {
    remember();
    highlight(view);
  });
  window.addEventListener("recollect:address", remember);
}

begin();
