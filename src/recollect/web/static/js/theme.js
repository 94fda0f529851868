// Runs before the page is painted, so that a chosen scheme does not flash; the switch itself is in main.js.
"use strict";
{
  const chosen = localStorage.getItem("recollect.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
