// One consumer or share group: positions with lag, members, moving positions after a preview.

import { api, byId, confirmed, duration, guarded, h, isOperator, item, number, path, query, repeatedly, say, time } from "./core.js";
import { PagedTable, plainTable } from "./table.js";

const own = (...parts) => path("groups", item, ...parts);

const common = {
  partition: { name: "partition", title: "Topic, partition", sorts: true, cell: (one) => [h("a", { href: `/console/${path("topics", one.topic)}` }, one.topic), `, ${one.partition}`] },
  end: { name: "end", title: "End", number: true, cell: (one) => number(one.end) },
  lag: { name: "lag", title: "Lag, messages", sorts: true, number: true, cell: (one) => number(one.lag) },
  behind: { name: "behind", title: "Lag, time", number: true, cell: (one) => duration(one.behind_ms) },
};
const offset = (title) => ({ name: "offset", title, number: true, cell: (one) => number(one.offset) });
const columns = {
  share: [common.partition, offset("Start"), common.end, common.lag, { name: "in_flight", title: "In flight", number: true, cell: (one) => number(one.in_flight) }, common.behind],
  other: [common.partition, offset("Committed"), common.end, common.lag, common.behind, { name: "at", title: "Committed at (UTC)", cell: (one) => time(one.committed_unix_ms) }],
};
let positions = null;

const makePositions = (isShare) => new PagedTable(byId("positions"), {
  caption: "Positions",
  filter: "Topic contains",
  sort: "partition",
  empty: isShare ? "The group reads nothing." : "The group has committed nothing.",
  url: (asked) => `${own("offsets")}${query(asked)}`,
  rows: (answer) => answer.offsets,
  columns: isShare ? columns.share : columns.other,
});

const refresh = guarded(async () => {
  const group = await api(own());
  positions ??= makePositions(group.type === "share");
  byId("facts").textContent = `${group.type ?? "offsets only"} · ${group.state} · ${number(group.members.length)} members · generation ${group.generation}${group.protocol ? ` · ${group.protocol}` : ""}`;
  byId("members").replaceChildren(group.members.length
    ? plainTable("Members", ["Client", "Host", "Member"], group.members.map((one) => [one.client_id, one.client_host, one.instance_id ?? one.member_id]))
    : h("p", { class: "quiet" }, "None."));
  await positions.load();
});

function target() {
  const body = { topic: byId("topic").value.trim() };
  const to = byId("to").value, value = byId("number").value;
  if (byId("partition").value !== "") body.partition = Number(byId("partition").value);
  if (to === "time") {
    if (!byId("time").value) throw new Error("Choose a time");
    body.to_time_unix_ms = Date.parse(`${byId("time").value}Z`);
  } else if (to === "shift") body.shift_by = Number(value);
  else body.to = to === "offset" ? value : to;
  return body;
}

const effect = (one) => {
  if (one.before === null) return "new";
  const moved = one.offset - one.before;
  if (moved === 0) return "unchanged";
  return moved > 0 ? `skips ${number(moved)} messages` : `repeats ${number(-moved)} messages`;
};

const preview = guarded(async () => {
  const body = target();
  const { offsets } = await api(own("offsets"), { method: "POST", body: { ...body, dry_run: true } });
  byId("preview").replaceChildren(plainTable("Preview", ["Partition", "Before", "After", "End", "Effect"],
    offsets.slice(0, 200).map((one) => [number(one.partition), number(one.before), number(one.offset), number(one.end), effect(one)])),
  ...(offsets.length > 200 ? [h("p", {}, `and ${number(offsets.length - 200)} partitions more`)] : []));
  const button = byId("apply");
  button.hidden = false;
  button.textContent = `Move ${number(offsets.length)} positions…`;
  button.onclick = guarded(async () => {
    const sum = (sign) => offsets.reduce((total, one) => total + Math.max(0, sign * (one.offset - (one.before ?? one.offset))), 0);
    const text = `Moves ${number(offsets.length)} positions in ${body.topic}: ${number(sum(1))} messages are skipped, ${number(sum(-1))} are delivered again.`;
    if (!await confirmed({ title: `Move the positions of ${item}?`, text, action: "Move" })) return;
    await api(own("offsets"), { method: "POST", body });
    button.hidden = true;
    byId("preview").replaceChildren();
    say("The positions have moved");
    await refresh();
  });
});

function chooseTarget() {
  byId("time-field").hidden = byId("to").value !== "time";
  byId("number-field").hidden = !["offset", "shift"].includes(byId("to").value);
  byId("apply").hidden = true;
}

const forget = guarded(async () => {
  const topic = byId("forget-topic").value.trim();
  const { total } = await api(`${own("offsets")}${query({ limit: 1, contains: topic })}`);
  const text = `Forgets the positions in ${topic}, at most ${number(total)}; a consumer that comes back begins where its own setting says.`;
  if (!await confirmed({ title: `Forget ${topic} in ${item}?`, text, action: "Forget" })) return;
  await api(own("topics", topic), { method: "DELETE" });
  const left = await api(`${own("offsets")}${query({ limit: 1 })}`).catch(() => null);
  if (!left) location.href = "/console/groups";  // It was its last position.
  say(`${item} has no position in ${topic}`);
  await positions.load();
});

const remove = guarded(async () => {
  const { total } = await api(`${own("offsets")}${query({ limit: 1 })}`);
  const text = `Deletes the group and its ${number(total)} positions; consumers that come back begin where their own setting says.`;
  if (!await confirmed({ title: `Delete group ${item}?`, text, action: "Delete", name: total ? item : "" })) return;
  await api(own(), { method: "DELETE" });
  location.href = "/console/groups";
});

if (isOperator) {
  byId("reset").addEventListener("submit", (event) => { event.preventDefault(); preview(); });
  byId("reset").addEventListener("input", chooseTarget);
  byId("forget").addEventListener("submit", (event) => { event.preventDefault(); forget(); });
  byId("delete").addEventListener("click", remove);
}
repeatedly(refresh, 3000);
