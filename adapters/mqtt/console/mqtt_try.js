// "Try it": subscribe and publish from the browser, at the node's MQTT over WebSocket.

import { api, byId, guarded, h, number, query, time } from "/console/static/core.js";
import { hexOf } from "/console/static/records.js";
import { MqttClient } from "/console/static/mqtt/mqtt_client.js";

const ROWS_MAX = 200;
const KEPT_BYTES = 4096; // of a payload
const PREVIEW_CHARS = 120;
const fatal = new TextDecoder("utf-8", { fatal: true });
const url = byId("try").dataset.url;

let client = null, waiting = [], seen = 0;

const say = (text, isProblem = false) => {
  byId("try-state").textContent = text;
  byId("try-state").classList.toggle("problem", isProblem);
};

/** Run a handler, and show what fails where this tab shows its state. */
const shown = (handler) => async (event) => {
  event.preventDefault();
  try { await handler(event); } catch (error) { say(error.message, true); }
};

/** Return why the listener would not serve this page, in its own words, or null. */
async function refusal() {
  const listener = url ? new URL(url) : null;
  const answer = await api(`adapters/mqtt/websocket${query({ origin: location.origin, host: listener?.host })}`);
  if (!answer.is_on) return "MQTT over WebSocket is off: set adapters.mqtt.websocket.enabled = true in the config, and restart the node.";
  if (!url) return "Open the console by a name or an IPv4 address: a page's policy cannot name another one.";
  if (answer.refusal) return `The listener refuses this page (${location.origin}): ${answer.refusal}.`;
  if (location.protocol === "https:" && listener.protocol === "ws:") return "The listener has no TLS, and a page that came by https may not open it: set adapters.mqtt.websocket.tls_cert and tls_key.";
  return null;
}

function setOpen(isOpen) {
  byId("try-work").hidden = !isOpen;
  byId("try-open").hidden = isOpen;
  byId("try-close").hidden = !isOpen;
  for (const input of byId("try-connect").querySelectorAll("input, select")) input.disabled = isOpen;
}

const closed = guarded(async (why, one) => {
  if (client !== one) return;
  client = null;
  setOpen(false);
  byId("try-filters").replaceChildren();
  say(one.wasAccepted ? why : `${why} Nothing answers MQTT at ${url}: is the listener's address reachable from this machine, its certificate trusted, and may this page (${location.origin}) connect?`, why !== "Disconnected.");
});

const connect = shown(async () => {
  if (client) return;
  const why = await refusal();
  if (why) { say(why, true); return; }
  say(`Connecting to ${url}`);
  const one = new MqttClient({
    url,
    version: Number(byId("try-version").value),
    clientId: byId("try-client").value,
    user: byId("try-user").value,
    password: byId("try-password").value,
    onMessage: receive,
    onClosed: (words) => closed(words, one),
  });
  client = one;
  byId("try-open").disabled = true;
  try {
    const assigned = await one.connected;
    setOpen(true);
    say(`Connected to ${url} as ${assigned ?? byId("try-client").value}`);
    byId("try-filter").focus();
  } catch { /* `closed` has told. */ } finally { byId("try-open").disabled = false; }
});

const subscribe = shown(async () => {
  const filter = byId("try-filter").value, one = client;
  const granted = await one.subscribe(filter, Number(byId("try-filter-qos").value));
  if (client !== one) return;
  const old = [...byId("try-filters").children].find((entry) => entry.dataset.filter === filter);
  const entry = h("li", { "data-filter": filter }, h("code", {}, filter), ` QoS ${granted} `, h("button", { type: "button", "aria-label": `Unsubscribe ${filter}`, onclick: shown(async () => {
    await one.unsubscribe(filter);
    entry.remove();
    byId("try-filter").focus();
    say(`No longer subscribed to ${filter}`);
  }) }, "Unsubscribe"));
  if (old) old.replaceWith(entry); else byId("try-filters").append(entry);
  say(`Subscribed to ${filter}`);
});

function payload() {
  const text = byId("try-payload").value;
  if (!byId("try-hex").checked) return new TextEncoder().encode(text);
  const digits = text.replace(/\s+/g, "");
  if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error("Payload: two hexadecimal digits a byte");
  return Uint8Array.from(digits.match(/../g) ?? [], (one) => parseInt(one, 16));
}

const publish = shown(async () => {
  const topic = byId("try-topic").value, qos = Number(byId("try-qos").value), data = payload();
  await client.publish(topic, data, { qos, retain: byId("try-retain").checked });
  say(`${qos ? "Acknowledged" : "Sent"}: ${number(data.length)} bytes to ${topic}`);
});

/** Keep a message for the next picture; of a flood only as many as are shown. */
function receive({ topic, payload: data, qos, retained, dup }) {
  seen += 1;
  if (!waiting.length) setTimeout(draw, 100);
  waiting.push({ topic, data: data.slice(0, KEPT_BYTES), size: data.length, qos, retained, dup, at: Date.now() });
  if (waiting.length > ROWS_MAX) waiting.shift();
}

function textOf(one) {
  try { return one.size > KEPT_BYTES ? null : fatal.decode(one.data); } catch { return null; }
}

function row(one) {
  const text = textOf(one);
  const hex = [...one.data.subarray(0, 32)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const line = text === null ? `hex ${hex}` : text.slice(0, PREVIEW_CHARS);
  const more = one.size > KEPT_BYTES ? `\n… ${number(one.size - KEPT_BYTES)} bytes more` : "";
  return h("tr", {},
    h("td", { class: "mono" }, time(one.at)), h("th", { scope: "row" }, one.topic), h("td", {}, String(one.qos)),
    h("td", {}, [one.retained ? "retained" : "", one.dup ? "sent again" : ""].filter(Boolean).join(", ")),
    h("td", { class: "number" }, number(one.size)),
    h("td", {}, h("details", {}, h("summary", { class: "mono" }, h("span", { class: "preview" }, line || "(empty)")),
      text ? h("pre", { tabindex: "0" }, text) : null,
      h("pre", { tabindex: "0" }, hexOf(one.data) + more))));
}

function draw() {
  const fresh = waiting.reverse().map(row), rows = byId("try-rows");
  waiting = [];
  rows.prepend(...fresh);
  while (rows.rows.length > ROWS_MAX) rows.lastChild.remove();
  count();
}

function count() {
  const there = byId("try-rows").rows.length;
  byId("try-count").textContent = seen ? `${number(seen)} received${seen > there ? `, the newest ${number(there)} shown` : ""}` : "Nothing received yet.";
}

/** Say what the tab needs before somebody types; called when it is opened. */
export const showTry = guarded(async () => {
  if (client) return;
  const why = await refusal();
  byId("try-open").disabled = Boolean(why);
  say(why ?? `Not connected. ${url}`, Boolean(why));
});

byId("try-client").value = `console-${[...crypto.getRandomValues(new Uint8Array(4))].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
byId("try-connect").addEventListener("submit", connect);
byId("try-close").addEventListener("click", () => { client?.disconnect(); byId("try-open").focus(); });
byId("try-subscribe").addEventListener("submit", subscribe);
byId("try-publish").addEventListener("submit", publish);
byId("try-clear").addEventListener("click", () => { seen = 0; waiting = []; byId("try-rows").replaceChildren(); count(); });
