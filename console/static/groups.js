// List of consumer and share groups.

import { byId, h, number, path, query } from "./core.js";
import { PagedTable } from "./table.js";

new PagedTable(byId("list"), {
  caption: "Groups",
  filter: "Name contains",
  sort: "name",
  empty: "No such group.",
  url: (asked) => `groups${query(asked)}`,
  rows: (answer) => answer.groups,
  columns: [
    { name: "name", title: "Group", sorts: true, cell: (one) => h("a", { href: `/console/${path("groups", one.group_id)}` }, one.group_id) },
    { name: "type", title: "Type", cell: (one) => one.type ?? "offsets only" },
    { name: "state", title: "State", cell: (one) => one.state },
    { name: "members", title: "Members", sorts: true, number: true, cell: (one) => number(one.members) },
    { name: "positions", title: "Partitions", number: true, cell: (one) => number(one.positions) },
    { name: "lag", title: "Lag, messages", sorts: true, number: true, cell: (one) => number(one.lag) },
    { name: "in_flight", title: "In flight", number: true, cell: (one) => number(one.in_flight) },
  ],
}).load();
