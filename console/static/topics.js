// List of topics.

import { api, byId, bytes, guarded, h, isOperator, number, path, query } from "./core.js";
import { PagedTable } from "./table.js";

const list = new PagedTable(byId("list"), {
  caption: "Topics",
  filter: "Name contains",
  sort: "name",
  empty: "No such topic.",
  url: (asked) => `topics${query(asked)}`,
  rows: (answer) => answer.topics,
  columns: [
    { name: "name", title: "Topic", sorts: true, cell: (one) => h("a", { href: `/console/${path("topics", one.name)}` }, one.name) },
    { name: "partitions", title: "Partitions", sorts: true, number: true, cell: (one) => number(one.partitions) },
    { name: "records", title: "Records", sorts: true, number: true, cell: (one) => number(one.records) },
    { name: "bytes", title: "Size", sorts: true, number: true, cell: (one) => bytes(one.bytes) },
    { name: "queue", title: "Queue", cell: (one) => (one.is_queue ? h("a", { href: `/console/${path("queues", one.name)}` }, "queue") : "") },
  ],
});
list.load();

if (isOperator) {
  byId("new").addEventListener("submit", guarded(async (event) => {
    event.preventDefault();
    const name = byId("new-name").value;
    await api("topics", { method: "POST", body: { name, partitions: Number(byId("new-partitions").value) } });
    location.href = `/console/${path("topics", name)}`;
  }));
}
