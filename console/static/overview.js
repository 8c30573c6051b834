// Overview: live charts, warnings, and the largest of each kind.

import { Chart } from "./chart.js";
import { api, byId, bytes, duration, guarded, h, number, path, repeatedly, role, short } from "./core.js";
import { plainTable } from "./table.js";

const SPAN_MS = 900000;
let samples = [];

const perSecond = (name) => (sample) => {
  const before = samples[samples.indexOf(sample) - 1];
  if (!before) return null;
  return Math.max(0, (sample[name] - before[name]) * 1000 / (sample.at_unix_ms - before.at_unix_ms));
};
const queued = (state) => (sample) => sample.queues?.[state] ?? null;
const total = (values) => Object.values(values).reduce((sum, one) => sum + one, 0);

const charts = [
  { title: "Records in, per second", format: short, series: [{ name: "appended", value: perSecond("records_in") }] },
  { title: "Bytes per second", format: bytes, series: [{ name: "appended", value: perSecond("bytes_in") }, { name: "read", value: perSecond("bytes_out") }] },
  { title: "Backlog, messages", format: short, series: [
    { name: "lag of groups", value: (one) => one.lag },
    { name: "ready in queues", value: queued("ready") },
    { name: "in flight", value: queued("in_flight") },
    { name: "delayed", value: queued("delayed") },
  ] },
  { title: "Memory", format: bytes, series: [{ name: "resident", value: (one) => one.rss_bytes }, { name: "not durable yet", value: (one) => one.undurable_bytes }] },
  { title: "Connections", format: short, series: [{ name: "open", value: (one) => total(one.connections) }] },
  { title: "Lateness of the event loop", format: duration, series: [{ name: "lateness", value: (one) => one.loop_lag_ms }] },
].map((description) => new Chart(byId("charts"), description));

const refreshCharts = guarded(async () => {
  const answer = await api(`live?since=${samples.at(-1)?.at_unix_ms ?? 0}`);
  if (answer.samples.length && samples.length && answer.samples[0].at_unix_ms - samples.at(-1).at_unix_ms > 5 * answer.every_ms) samples = [];
  samples.push(...answer.samples);
  const start = (samples.at(-1)?.at_unix_ms ?? 0) - SPAN_MS;
  samples = samples.filter((one) => one.at_unix_ms >= start);
  for (const chart of charts) chart.draw(samples, Math.max(30000, (samples.at(-1)?.at_unix_ms ?? 0) - (samples[0]?.at_unix_ms ?? 0)));
});

function card(title, value) {
  return h("div", { class: "card" }, h("dt", {}, title), h("dd", {}, value));
}

const link = (page, name) => h("a", { href: `/console/${path(page, name)}` }, name);

function showWarnings(warnings) {
  const shown = warnings.map((one) => {
    const leads = one.page && (one.page !== "config" || role === "admin");
    return h("li", {}, "⚠ ", leads ? h("a", { href: `/console/${one.page}` }, one.text) : one.text);
  });
  byId("warnings").replaceChildren(...(shown.length ? shown : [h("li", { class: "quiet" }, "None.")]));
}

const refreshFacts = guarded(async () => {
  const [facts, node] = await Promise.all([api("overview"), api("node")]);
  showWarnings(facts.warnings);
  const counts = facts.counts;
  byId("numbers").replaceChildren(
    card("Topics", number(counts.topics)), card("Partitions", number(counts.partitions)),
    card("Queues", number(counts.queues)), card("Groups", number(counts.groups)),
    card("Delayed messages", number(counts.delayed)), card("Storage", node.storage),
    card("Login", node.authentication_required ? "required" : "not required"),
  );
  byId("topics").replaceChildren(plainTable("Largest topics", ["Topic", "Size"], facts.topics.map((one) => [link("topics", one.name), bytes(one.bytes)])));
  byId("groups").replaceChildren(plainTable("Groups furthest behind", ["Group", "Lag"], facts.groups.map((one) => [link("groups", one.name), number(one.lag)])));
  byId("queues").replaceChildren(plainTable("Longest queues", ["Queue", "Ready", "In flight"], facts.queues.map((one) => [link("queues", one.name), number(one.ready), number(one.in_flight)])));
  byId("endpoints").replaceChildren(plainTable("Endpoints", ["Name", "Address", "To try it"], node.endpoints.map((one) => [one.name, one.url, h("code", {}, one.try_it)])));
});

repeatedly(refreshCharts, 2000);
repeatedly(refreshFacts, 10000);
