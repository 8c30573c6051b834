// List of queues.

import { byId, duration, h, number, path, query } from "./core.js";
import { PagedTable } from "./table.js";

const href = (name, group) => `/console/${path("queues", name)}${query({ group: group === "@queue" ? "" : group })}`;
const count = (state) => (one) => number(one.counts[state]);

new PagedTable(byId("list"), {
  caption: "Queues",
  filter: "Name contains",
  sort: "name",
  empty: "No such queue. headgate queues create NAME makes one.",
  url: (asked) => `queues${query(asked)}`,
  rows: (answer) => answer.queues,
  columns: [
    { name: "name", title: "Queue", sorts: true, cell: (one) => h("a", { href: href(one.name, one.group) }, one.name) },
    { name: "ready", title: "Ready", sorts: true, number: true, cell: count("ready") },
    { name: "in_flight", title: "In flight", sorts: true, number: true, cell: count("in_flight") },
    { name: "delayed", title: "Delayed", sorts: true, number: true, cell: count("delayed") },
    { name: "age", title: "Oldest", number: true, cell: (one) => duration(one.oldest_age_ms) },
    { name: "waiting", title: "Waiting receivers", number: true, cell: (one) => number(one.receivers_waiting) },
    { name: "dead", title: "Dead letters go to", cell: (one) => {
      const name = one.settings.dead_letter_topic;
      return name ? h("a", { href: href(name, "") }, name) : "";
    } },
  ],
}).load();
