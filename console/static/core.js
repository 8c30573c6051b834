// Calls of the REST interface, elements, texts of numbers, and questions before a change.

const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";

export const role = meta("role");
export const item = meta("item");
export const isOperator = role === "operator" || role === "admin";
export const byId = (id) => document.getElementById(id);

/** Call `/v1/<path>`; throws an Error with the node's words. */
export async function api(path, { method = "GET", body, signal } = {}) {
  const headers = method === "GET" ? {} : { "X-CSRF-Token": meta("csrf-token") };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(`/v1/${path}`, {
    method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (answer.status === 204) return null;
  const content = await answer.json().catch(() => ({ message: answer.statusText }));
  if (answer.ok) return content;
  if (answer.status === 401) location.reload();
  throw new Error(content.message || content.error);
}

/** Return an element; children that are not elements become text, never HTML. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((one) => one !== null && one !== undefined));
  return element;
}

/** Show a line at the foot of the page, which screen readers read out. */
export function say(text) {
  const status = byId("status");
  status.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { status.textContent = ""; }, 8000);
}

/** Run a handler, and say what fails. */
export const guarded = (handler) => async (...given) => {
  try { return await handler(...given); } catch (error) {
    if (error.name !== "AbortError") say(error.message);
    return undefined;
  }
};

export const path = (...parts) => parts.map(encodeURIComponent).join("/");
export const query = (values) => {
  const found = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return found.length ? `?${new URLSearchParams(found)}` : "";
};

const whole = new Intl.NumberFormat("en");
export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));
const scaled = (value, base, units) => {
  let at = 0;
  while (Math.abs(value) >= base && at < units.length - 1) { value /= base; at += 1; }
  const digits = at === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)}${units[at]}`;
};
export const bytes = (value) => (value === null || value === undefined ? "–" : scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]));
export const short = (value) => (value === null || value === undefined ? "–" : scaled(value, 1000, ["", "k", "M", "G"]));
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  for (const [unit, size] of [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]]) {
    if (ms >= size) return `${(ms / size).toFixed(ms / size < 10 ? 1 : 0)} ${unit}`;
  }
  return `${Math.round(ms)} ms`;
}
export const time = (unixMs) => {
  if (unixMs === null || unixMs === undefined || unixMs < 0) return "–";
  return new Date(unixMs).toISOString().replace("T", " ").replace("Z", "");
};

/** Show or hide elements with `data-role="operator"` or `"admin"` by the user's role. */
export function applyRole(root = document) {
  for (const element of root.querySelectorAll("[data-role]")) {
    element.hidden = !(role === "admin" || element.dataset.role === role);
  }
}

/** Ask before a change that cannot be undone; with `name`, it is to be typed. Resolves to a boolean. */
export function confirmed({ title, text, action, name = "" }) {
  const dialog = byId("confirm"), typing = byId("confirm-typing"), typed = byId("confirm-name");
  const yes = byId("confirm-yes");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  yes.textContent = action;
  typing.hidden = !name;
  typing.querySelector("label").textContent = `Type ${name} to go on: `;
  typed.value = "";
  yes.disabled = Boolean(name);
  typed.oninput = () => { yes.disabled = typed.value !== name; };
  return new Promise((resolve) => {
    dialog.returnValue = "cancel";
    dialog.onclose = () => resolve(dialog.returnValue === "yes");
    dialog.showModal();
  });
}

/** Make a set of tabs of `<div class="tabs">` buttons; the chosen one is in the URL's hash. */
export function tabs(list, onShow = () => {}) {
  const buttons = [...list.querySelectorAll("button")];
  const show = (button, focus = false) => {
    for (const one of buttons) {
      const chosen = one === button;
      one.setAttribute("aria-selected", chosen);
      one.tabIndex = chosen ? 0 : -1;
      byId(one.getAttribute("aria-controls")).hidden = !chosen;
    }
    if (focus) button.focus();
    history.replaceState(null, "", `${location.search}#${button.dataset.tab}`);
    onShow(button.dataset.tab);
  };
  const visible = () => buttons.filter((one) => !one.hidden);
  for (const button of buttons) {
    button.addEventListener("click", () => show(button));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const all = visible();
      show(all[(all.indexOf(button) + step + all.length) % all.length], true);
    });
  }
  show(visible().find((one) => `#${one.dataset.tab}` === location.hash) ?? visible()[0]);
}

/** Call `work` now and then again, `ms` after it has ended, while the page is seen. */
export function repeatedly(work, ms) {
  let timer = null, running = false;
  const run = async () => {
    clearTimeout(timer);
    if (document.hidden || running) return;
    running = true;
    try { await work(); } finally { running = false; }
    timer = setTimeout(run, ms);
  };
  document.addEventListener("visibilitychange", run);
  run();
}
