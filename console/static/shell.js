// Keyboard, theme and help: on every page.

import { applyRole, byId } from "./core.js";

let awaitsPage = false;

function isTyping(target) {
  return target.isContentEditable || ["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName);
}

function moveRow(step) {
  const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.offsetParent);
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.classList.contains("current"));
  rows[at]?.classList.remove("current");
  const next = rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
  next.classList.add("current");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a, button")?.focus();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (awaitsPage) {
    awaitsPage = false;
    document.querySelector(`.pages a[data-key="${CSS.escape(event.key)}"]`)?.click();
    return;
  }
  const action = {
    "/": () => byId("jump-text").focus(),
    "?": () => byId("help").showModal(),
    g: () => { awaitsPage = true; },
    j: () => moveRow(1),
    k: () => moveRow(-1),
  }[event.key];
  if (action) { event.preventDefault(); action(); }
}

function switchTheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (isDark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
}

document.addEventListener("keydown", onKey);
byId("theme").addEventListener("click", switchTheme);
byId("keys").addEventListener("click", () => byId("help").showModal());
applyRole();
