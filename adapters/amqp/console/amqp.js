// AMQP: exchanges, queues, bindings, connections and channels; amqp_route.js has the routing tester.

import { api, byId, bytes, confirmed, guarded, h, number, query, role, say, tabs, time } from "/console/static/core.js";
import { PagedTable } from "/console/static/table.js";
import { showRoute } from "/console/static/amqp/amqp_route.js";

const given = new URLSearchParams(location.search);
const vhost = () => byId("vhost").value;
const view = (name, values) => `adapters/amqp/${name}${query(values)}`;
const paged = (name, more = () => ({})) => (asked) => view(name, { ...asked, vhost: vhost(), ...more() });
const rows = (answer) => answer.rows;
const page = (tab, values) => `/console/amqp${query(values)}#${tab}`;
const words = (...some) => some.filter(Boolean).join(", ");
const bindingsOf = (kind, name, at) => page("bindings", { vhost: at, [kind]: name });

const exchanges = new PagedTable(byId("exchanges"), {
  caption: "Exchanges",
  filter: "Name contains",
  prefix: "exchanges-",
  sort: "name",
  empty: "No such exchange.",
  url: paged("exchanges"),
  rows,
  columns: [
    { name: "name", title: "Exchange", sorts: true, cell: (one) => h("a", { href: bindingsOf("exchange", one.name, one.vhost) }, one.name) },
    { name: "vhost", title: "Vhost", cell: (one) => one.vhost },
    { name: "type", title: "Type", sorts: true, cell: (one) => one.type },
    { name: "flags", title: "Flags", cell: (one) => words(one.durable ? "durable" : "transient", one.auto_delete && "auto-delete", one.internal && "internal") },
    { name: "alternate", title: "Alternate exchange", cell: (one) => (one.alternate === null ? "–" : h("a", { href: bindingsOf("exchange", one.alternate, one.vhost) }, one.alternate)) },
    { name: "bindings", title: "Bindings from it", number: true, sorts: true, cell: (one) => number(one.bindings_from) },
    { name: "to", title: "Bindings to it", number: true, cell: (one) => number(one.bindings_to) },
    { name: "try", title: "Route", cell: (one) => (one.internal ? "" : h("a", { href: page("route", { vhost: one.vhost, exchange: one.name }), "aria-label": `Where would a message of ${one.name} go?` }, "try")) },
  ],
});

const queues = new PagedTable(byId("queues"), {
  caption: "Queues",
  filter: "Name contains",
  prefix: "queues-",
  sort: "name",
  empty: "No such queue.",
  url: paged("queues"),
  rows,
  columns: [
    { name: "name", title: "Queue", sorts: true, cell: (one) => h("a", { href: bindingsOf("queue", one.name, one.vhost) }, one.name) },
    { name: "vhost", title: "Vhost", cell: (one) => one.vhost },
    { name: "type", title: "Type", cell: (one) => one.type },
    { name: "flags", title: "Flags", cell: (one) => words(one.durable ? "durable" : "transient", one.exclusive && "exclusive", one.auto_delete && "auto-delete") },
    { name: "bindings", title: "Bindings", number: true, sorts: true, cell: (one) => number(one.bindings) },
    { name: "consumers", title: "Consumers", number: true, cell: (one) => number(one.consumers) },
    { name: "ready", title: "Ready", number: true, sorts: true, cell: (one) => number(one.ready) },
    { name: "unacked", title: "Unacked", number: true, sorts: true, cell: (one) => number(one.unacked) },
    { name: "topic", title: "Topic", cell: (one) => (one.vhost === "/" ? h("a", { href: `/console/topics/${encodeURIComponent(one.topic)}` }, one.topic) : one.topic) },
  ],
});

// --- bindings

const shownName = () => byId("bindings-name").value.trim();
const shownVhost = () => vhost() || "/";
const isExchange = () => byId("bindings-of").value === "exchange";

const end = (kind, name) => h("a", { href: bindingsOf(kind, name, shownVhost()) }, name);
const bindingColumns = (first) => {
  const source = { name: "source", title: "From exchange", sorts: true, cell: (one) => end("exchange", one.source || "amq.default") };
  const destination = { name: "destination", title: "To", sorts: true, cell: (one) => [`${one.destination_type} `, end(one.destination_type, one.destination)] };
  return [
    first === "source" ? source : destination,
    { name: "routing_key", title: "Key or pattern", sorts: true, cell: (one) => h("code", {}, one.routing_key) },
    { name: "arguments", title: "Arguments", cell: (one) => (Object.keys(one.arguments).length ? h("code", {}, JSON.stringify(one.arguments)) : "–") },
  ];
};
const bindingTable = (root, { caption, first, empty, ends }) => new PagedTable(byId(root), {
  caption,
  empty,
  prefix: `${root}-`,
  sort: first,
  url: (asked) => view("bindings", { ...asked, vhost: shownVhost(), ...ends() }),
  rows,
  columns: bindingColumns(first),
});
const from = bindingTable("bindings-from-list", {
  caption: "Bindings from the exchange", first: "destination", empty: "No binding leads on from it.",
  ends: () => ({ from_exchange: shownName() }),
});
const to = bindingTable("bindings-to-list", {
  caption: "Bindings that lead to it", first: "source", empty: "No binding leads to it.",
  ends: () => (isExchange() ? { to_exchange: shownName() } : { to_queue: shownName() }),
});

async function showBindings() {
  if (!shownName()) return;
  byId("bindings-from").hidden = !isExchange();
  byId("bindings-to").hidden = false;
  await Promise.all([isExchange() ? from.load() : null, to.load()]);
}

byId("bindings-form").addEventListener("submit", (event) => {
  event.preventDefault();
  history.replaceState(null, "", bindingsOf(byId("bindings-of").value, shownName(), vhost()));
  showBindings();
});

// --- connections and channels

const peer = (one) => one.name.split(" -> ")[0]; // what is behind the arrow is the node's own address

const close = (one) => guarded(async () => {
  const text = `Ends the connection of ${one.user} from ${one.name}: ${number(one.channels)} channels close, and ${number(one.unacked)} messages without an acknowledgement return to their queues. The client may come back at once.`;
  if (!await confirmed({ title: `Close the connection of ${one.user}?`, text, action: "Close" })) return;
  await api("adapters/amqp/close-connection", { method: "POST", body: { values: { name: one.name } } });
  say("The connection is closed");
  await connections.load();
});

const connections = new PagedTable(byId("connections"), {
  caption: "Connections",
  filter: "Name, user or vhost contains",
  prefix: "connections-",
  sort: "name",
  empty: "No connection.",
  url: paged("connections"),
  rows,
  columns: [
    { name: "name", title: "Connection", sorts: true, cell: (one) => [peer(one), one.client_name ? h("div", { class: "quiet" }, one.client_name) : ""] },
    { name: "user", title: "User", sorts: true, cell: (one) => one.user },
    { name: "vhost", title: "Vhost", sorts: true, cell: (one) => one.vhost },
    { name: "client", title: "Client", cell: (one) => words(one.client, one.is_tls && "TLS") },
    { name: "state", title: "State", sorts: true, cell: (one) => (one.is_blocked ? h("span", { class: "problem" }, one.state) : one.state) },
    { name: "channels", title: "Channels", number: true, sorts: true, cell: (one) => number(one.channels) },
    { name: "unacked", title: "Unacked", number: true, sorts: true, cell: (one) => number(one.unacked) },
    { name: "received", title: "Received", number: true, cell: (one) => bytes(one.received_bytes) },
    { name: "sent", title: "Sent", number: true, cell: (one) => bytes(one.sent_bytes) },
    { name: "since", title: "Since (UTC)", cell: (one) => time(one.connected_unix_ms).slice(0, 19) },
    ...(role === "admin" ? [{ name: "action", title: "Action", cell: (one) => h("button", { type: "button", onclick: close(one), "aria-label": `Close ${one.name}` }, "Close…") }] : []),
  ],
});

const channels = new PagedTable(byId("channels"), {
  caption: "Channels",
  filter: "Name, user or vhost contains",
  prefix: "channels-",
  sort: "name",
  empty: "No channel.",
  url: paged("channels"),
  rows,
  columns: [
    { name: "name", title: "Channel", sorts: true, cell: (one) => `${peer(one)} (${one.number})` },
    { name: "user", title: "User", sorts: true, cell: (one) => one.user },
    { name: "vhost", title: "Vhost", cell: (one) => one.vhost },
    { name: "mode", title: "Mode", cell: (one) => words(one.unconfirmed !== null && "confirms", one.is_transactional && "transactions") || "–" },
    { name: "prefetch", title: "Prefetch", number: true, sorts: true, cell: (one) => words(one.prefetch ? number(one.prefetch) : "no limit", one.channel_prefetch && `${number(one.channel_prefetch)} in all`) },
    { name: "consumers", title: "Consumers", number: true, sorts: true, cell: (one) => number(one.consumers) },
    { name: "queues", title: "Of the queues", cell: (one) => one.queues.join(", ") },
    { name: "unacked", title: "Unacked", number: true, sorts: true, cell: (one) => number(one.unacked) },
    { name: "unconfirmed", title: "Unconfirmed", number: true, cell: (one) => number(one.unconfirmed) },
    { name: "state", title: "State", cell: (one) => (one.is_blocked ? h("span", { class: "problem" }, "blocked") : "running") },
  ],
});

// --- the page

const shown = { exchanges: () => exchanges.load(), queues: () => queues.load(), bindings: showBindings, route: () => showRoute(shownVhost), connections: () => connections.load(), channels: () => channels.load() };

const start = guarded(async () => {
  const names = (await api("adapters/amqp/vhosts")).rows;
  byId("vhost").append(...names.map((name) => h("option", {}, name)));
  byId("vhost").value = names.includes(given.get("vhost")) ? given.get("vhost") : "";
  byId("vhost-form").hidden = names.length < 2;
  byId("bindings-of").value = given.has("queue") ? "queue" : "exchange";
  byId("bindings-name").value = given.get("queue") ?? given.get("exchange") ?? "";
  tabs(document.querySelector("[role=tablist]"), (tab) => shown[tab]());
  const found = await api(view("exchanges", { limit: 200, vhost: vhost() }));
  byId("exchange-names").append(...[...new Set(found.rows.map((one) => one.name))].map((name) => h("option", { value: name })));
});

byId("vhost-form").addEventListener("submit", (event) => event.preventDefault());
byId("vhost").addEventListener("change", () => { location.search = query({ vhost: vhost() }); });
start();
