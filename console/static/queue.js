// One queue: counts, messages without taking them, dead letters and redrives, settings.

import { api, byId, confirmed, duration, guarded, h, isOperator, item, number, path, query, repeatedly, say, tabs, time } from "./core.js";
import { rowsOf } from "./records.js";
import { plainTable } from "./table.js";

const group = new URLSearchParams(location.search).get("group") ?? "";
const own = (kind, ...parts) => (values = {}) => `${path(kind, item, ...parts)}${query({ group, ...values })}`;
const queueUrl = own("queues"), messagesUrl = own("queues", "messages");
const plural = (count) => `${number(count)} message${count === 1 ? "" : "s"}`;
let facts = null;

// --- counts

function card(title, value) {
  return h("div", { class: "card" }, h("dt", {}, title), h("dd", {}, value));
}

const refresh = guarded(async () => {
  facts = await api(queueUrl());
  byId("counts").replaceChildren(
    card("Ready", number(facts.counts.ready)), card("In flight", number(facts.counts.in_flight)),
    card("Delayed", number(facts.counts.delayed)), card("Oldest", duration(facts.oldest_age_ms)),
    card("Waiting receivers", number(facts.receivers_waiting)),
  );
  const dead = facts.settings.dead_letter_topic;
  byId("facts").replaceChildren(
    `${number(facts.partitions)} partition${facts.partitions === 1 ? "" : "s"} · order ${facts.settings.order}`,
    ...(dead ? [" · dead letters go to ", h("a", { href: `/console/${path("queues", dead)}` }, dead)] : []),
    " · ", h("a", { href: `/console/${path("topics", item)}` }, "its topic"),
  );
  if (isOperator) byId("loss").textContent = facts.owns_topic ? "Its topic goes with it." : "Its topic stays, with its messages.";
});

function showSettings() {
  const rows = Object.entries(facts.settings).map(([name, value]) => [h("code", {}, name), String(value ?? "")]);
  const tags = Object.entries(facts.tags).map(([name, value]) => [h("code", {}, `tag ${name}`), value]);
  byId("settings").replaceChildren(plainTable("Settings", ["Setting", "Value"], [...rows, ...tags]));
}

// --- messages

let next = null, shown = 0;

const look = guarded(async (goesOn) => {
  if (!goesOn) { next = null; shown = 0; byId("found").replaceChildren(); }
  const answer = await api(messagesUrl({ limit: 50, ...(next ?? {}) }));
  const cells = [(one) => one.state, (one) => duration(one.age_ms)];
  byId("found").append(...answer.messages.flatMap((one) => rowsOf(one, { cells })));
  next = answer.next;
  shown += answer.messages.length;
  byId("progress").textContent = `${number(shown)} of ${number(answer.total)} shown`;
  byId("more").hidden = !next;
});

// --- dead letters

const showReasons = guarded(async () => {
  const answer = await api(own("dlq", "reasons")());
  const rows = answer.reasons.map((one) => [one.reason || "no reason: not a dead letter", one.source || "unknown", number(one.count)]);
  byId("reasons").replaceChildren(rows.length ? plainTable("Dead letters by reason", ["Reason", "From", "Count"], rows) : h("p", {}, "None."));
  const part = answer.looked_at < answer.total ? ` Looked at the first ${number(answer.looked_at)} of ${number(answer.total)}.` : "";
  byId("sources").textContent = (answer.sources.length ? `Dead letters of ${answer.sources.join(", ")} come here.` : "No queue sends its dead letters here.") + part;
});

const preview = guarded(async () => {
  const destination = byId("destination").value.trim();
  const answer = await api(own("dlq", "redrive-preview")({ destination }));
  const moved = answer.moves.reduce((sum, one) => sum + one.count, 0);
  const lines = [
    ...answer.moves.map((one) => h("li", {}, `${plural(one.count)} to ${one.destination}`)),
    ...answer.stays.map((one) => h("li", {}, `${plural(one.count)} stay: ${one.why}`)),
  ];
  const part = answer.looked_at < answer.total ? h("p", {}, `Looked at the first ${number(answer.looked_at)} of ${number(answer.total)}; a redrive moves all.`) : null;
  byId("preview").replaceChildren(h("ul", {}, lines.length ? lines : h("li", {}, "There is nothing to move.")), ...(part ? [part] : []));
  const button = byId("begin");
  button.hidden = !moved;
  button.textContent = `Redrive ${plural(answer.looked_at < answer.total ? answer.total : moved)}…`;
  button.onclick = () => begin(destination, answer, moved);
});

const begin = guarded(async (destination, answer, moved) => {
  const count = answer.looked_at < answer.total ? `up to ${plural(answer.total)}` : plural(moved);
  const text = `Moves ${count} from ${item} to ${destination || "where each came from"}, as new messages without attempts. It can be cancelled; what has moved stays moved.`;
  if (!await confirmed({ title: `Redrive ${item}?`, text, action: "Redrive" })) return;
  const body = {};
  if (destination) body.destination = destination;
  if (byId("rate").value) body.rate_per_s = Number(byId("rate").value);
  await api(own("dlq", "redrives")(), { method: "POST", body });
  byId("begin").hidden = true;
  byId("preview").replaceChildren();
  await showRedrives();
});

const cancel = guarded(async () => {
  await api(own("dlq", "redrives", "cancel")(), { method: "POST" });
  await showRedrives();
});

async function showRedrives() {
  const { redrives } = await api(own("dlq", "redrives")());
  const rows = redrives.map((one) => [
    one.status,
    [h("progress", { max: Math.max(1, one.total_at_start), value: one.moved, "aria-label": "Moved" }), ` ${number(one.moved)} of ${number(one.total_at_start)}`],
    number(one.skipped), one.failure ?? "", time(one.started_unix_ms),
    one.status === "RUNNING" && isOperator ? h("button", { type: "button", onclick: cancel }, "Cancel") : "",
  ]);
  byId("redrives").replaceChildren(rows.length ? plainTable("Redrives", ["Status", "Moved", "Stayed", "Failure", "Begun (UTC)", "Action"], rows) : h("p", { class: "quiet" }, "None since the start."));
  return redrives.some((one) => ["RUNNING", "CANCELLING"].includes(one.status));
}

// --- purge and delete

const all = () => Object.values(facts.counts).reduce((sum, one) => sum + one, 0);

const purge = guarded(async () => {
  await refresh();
  const text = `Drops ${plural(all())}, of them ${number(facts.counts.in_flight)} in flight. This cannot be undone.`;
  if (!await confirmed({ title: `Purge queue ${item}?`, text, action: "Purge", name: all() ? item : "" })) return;
  await api(own("queues", "purge")(), { method: "POST" });
  say(`${item} is purged`);
  await Promise.all([refresh(), look(false)]);
});

const remove = guarded(async () => {
  await refresh();
  const text = `Deletes the queue with ${plural(all())}${facts.owns_topic ? " and its topic" : "; its topic stays"}. This cannot be undone.`;
  if (!await confirmed({ title: `Delete queue ${item}?`, text, action: "Delete", name: all() ? item : "" })) return;
  await api(queueUrl(), { method: "DELETE" });
  location.href = "/console/queues";
});

byId("refresh").addEventListener("click", () => look(false));
byId("more").addEventListener("click", () => look(true));
if (isOperator) {
  byId("redrive").addEventListener("submit", (event) => { event.preventDefault(); preview(); });
  byId("purge").addEventListener("click", purge);
  byId("delete").addEventListener("click", remove);
}
let tab = "";
tabs(document.querySelector("[role=tablist]"), (chosen) => {
  tab = chosen;
  if (tab === "dead") showReasons();
  if (tab === "settings") refresh().then(showSettings);
});
repeatedly(refresh, 2000);
repeatedly(guarded(async () => { if (tab === "dead" && await showRedrives() === false) await showReasons(); }), 2000);
look(false);
