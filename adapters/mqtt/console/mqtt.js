// MQTT: sessions, subscriptions, retained messages, who would get a topic, and "Try it".

import { api, byId, bytes, confirmed, duration, guarded, h, isOperator, number, query, say, tabs, time } from "/console/static/core.js";
import { bytesOf, previewOf } from "/console/static/records.js";
import { PagedTable, plainTable } from "/console/static/table.js";
import { showTry } from "/console/static/mqtt/mqtt_try.js";

const view = (name, values = {}) => `adapters/mqtt/${name}${query(values)}`;
const paged = (name) => ({ limit, offset, contains }) => view(name, { limit, offset, contains });
const rows = (answer) => answer.rows;

const disconnect = (one) => guarded(async () => {
  const text = `Ends the connection of ${one.client_id} (${one.user ?? "no user"}, ${one.host}). Its session ${one.expiry_s ? `stays for ${duration(one.expiry_s * 1000)}` : `and its ${number(one.subscriptions)} subscriptions end`}; the client may come back at once.`;
  if (!await confirmed({ title: `Disconnect ${one.client_id}?`, text, action: "Disconnect" })) return;
  await api("adapters/mqtt/disconnect", { method: "POST", body: { values: { client_id: one.client_id } } });
  say(`${one.client_id} is disconnected`);
  await sessions.load();
});

const sessions = new PagedTable(byId("sessions"), {
  caption: "Sessions",
  filter: "Client identifier contains",
  empty: "No session.",
  url: paged("sessions"),
  rows,
  columns: [
    { name: "client", title: "Client", cell: (one) => one.client_id },
    { name: "state", title: "State", cell: (one) => (one.is_connected ? `connected, ${one.version}` : `away since ${time(one.disconnected_unix_ms)}`) },
    { name: "user", title: "User", cell: (one) => one.user ?? "" },
    { name: "host", title: "Address", cell: (one) => one.host },
    { name: "subscriptions", title: "Subscriptions", number: true, cell: (one) => number(one.subscriptions) },
    { name: "in_flight", title: "In flight", number: true, cell: (one) => number(one.in_flight) },
    { name: "behind", title: "Partitions behind", number: true, cell: (one) => number(one.partitions_behind) },
    { name: "unwritten", title: "Unwritten", number: true, cell: (one) => bytes(one.unwritten_bytes) },
    { name: "expiry", title: "Session expiry", number: true, cell: (one) => (one.expiry_s ? duration(one.expiry_s * 1000) : "with the connection") },
    ...(isOperator ? [{ name: "action", title: "Action", cell: (one) => (one.is_connected ? h("button", { type: "button", onclick: disconnect(one), "aria-label": `Disconnect ${one.client_id}` }, "Disconnect…") : "") }] : []),
  ],
});

const subscriptions = new PagedTable(byId("subscriptions"), {
  caption: "Subscriptions",
  filter: "Filter or client contains",
  empty: "No subscription.",
  url: paged("subscriptions"),
  rows,
  columns: [
    { name: "filter", title: "Filter", cell: (one) => h("code", {}, one.filter) },
    { name: "client", title: "Client", cell: (one) => one.client_id },
    { name: "qos", title: "QoS", number: true, cell: (one) => one.qos },
    { name: "group", title: "Shared by", cell: (one) => one.group ?? "" },
    { name: "options", title: "Options", cell: (one) => [one.no_local ? "no local" : "", one.retain_as_published ? "retain as published" : "", one.identifier ? `identifier ${one.identifier}` : ""].filter(Boolean).join(", ") },
  ],
});

let next = null;

const showRetained = guarded(async (goesOn) => {
  if (!goesOn) byId("retained-rows").replaceChildren();
  const answer = await api(view("retained", { filter: byId("filter").value, limit: 50, after: goesOn ? next : "" }));
  next = answer.next;
  byId("retained-rows").append(...answer.rows.map((one) => h("tr", {},
    h("th", { scope: "row" }, one.topic), h("td", {}, String(one.qos)), h("td", {}, one.publisher),
    h("td", {}, one.expires_at_unix_ms ? time(one.expires_at_unix_ms) : "never"),
    h("td", { class: "number" }, bytes(bytesOf(one, "value").length)),
    h("td", { class: "mono" }, h("span", { class: "preview" }, previewOf(one, "value"))))));
  byId("retained-count").textContent = `${number(byId("retained-rows").rows.length)} shown; ${number(answer.total)} retained in all, ${bytes(answer.bytes)}`;
  byId("more").hidden = next === null;
});

const ask = guarded(async () => {
  const topic = byId("topic").value;
  const answer = await api(view("receivers", { topic, limit: 200 }));
  const lines = answer.rows.map((one) => [
    one.group ? `one of the ${number(one.members)} members of ${one.group}` : one.client_id,
    h("code", {}, one.filter), String(one.qos), one.is_connected ? "now" : "when it connects",
  ]);
  byId("answer").replaceChildren(
    h("p", {}, `${number(answer.total)} would get ${topic}. It is kept in the topic ${answer.log_topic}${answer.has_retained ? ", and has a retained message" : ""}. Rules may still deny single clients.`),
    ...(lines.length ? [plainTable("Receivers", ["Receiver", "By the filter", "QoS at most", "When"], lines)] : []),
  );
});

byId("retained-search").addEventListener("submit", (event) => { event.preventDefault(); showRetained(false); });
byId("more").addEventListener("click", () => showRetained(true));
byId("ask").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
tabs(document.querySelector("[role=tablist]"), (tab) => {
  if (tab === "sessions") sessions.load();
  if (tab === "subscriptions") subscriptions.load();
  if (tab === "retained") showRetained(false);
  if (tab === "try") showTry();
});
