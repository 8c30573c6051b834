// One topic: messages, partitions, configs, sending and deleting.

import { api, byId, bytes, confirmed, guarded, h, isOperator, item, number, path, query, say, tabs, time } from "./core.js";
import { rowsOf } from "./records.js";
import { PagedTable, plainTable } from "./table.js";

const SHOWN_MAX = 500;
const own = (...parts) => path("topics", item, ...parts);

// --- messages

let search = null;

function terms() {
  const found = { browse: true };
  const partition = byId("partition").value, key = byId("key").value, header = byId("header").value;
  if (partition !== "") found.partition = Number(partition);
  if (key !== "") found.key = key;
  if (byId("contains").value !== "") found.contains = byId("contains").value;
  if (header !== "") {
    const at = header.indexOf("=");
    if (at < 1) throw new Error("Header: name=value");
    found.headers = { [header.slice(0, at)]: header.slice(at + 1) };
  }
  return found;
}

function start() {
  const found = terms(), from = byId("from").value;
  if (from === "newest") {
    const asks = found.key !== undefined || found.contains || found.headers;
    found.newest = asks ? 100000 : 50;
  }
  if (from === "offset") found.offset_min = Number(byId("offset").value);
  if (from === "time") {
    if (!byId("time").value) throw new Error("Choose a time");
    found.timestamp_unix_ms_min = Date.parse(`${byId("time").value}Z`);
  }
  return found;
}

function showProgress() {
  const state = { running: "reading…", stopped: "stopped", part: "there is more", done: "all read" }[search.state];
  const lost = search.undecodable ? `; ${number(search.undecodable)} batches cannot be decoded` : "";
  const at = search.next ? `, up to partition ${search.next.partition}, offset ${search.next.offset < 0 ? "start" : number(search.next.offset)}` : "";
  byId("progress").textContent = `${number(search.hits)} found in ${bytes(search.read)} read${at}${lost}: ${state}`;
  byId("more").hidden = !["part", "stopped"].includes(search.state);
  byId("stop").hidden = search.state !== "running";
}

function show(matches) {
  const newest = search.body.newest !== undefined;
  if (newest) search.all = [...search.all, ...matches].sort((a, b) => b.timestamp_unix_ms - a.timestamp_unix_ms || b.offset - a.offset).slice(0, SHOWN_MAX);
  const rows = (newest ? search.all : matches).flatMap((one) => rowsOf(one));
  if (newest) byId("found").replaceChildren(...rows);
  else byId("found").append(...rows);
}

/** Search on, step by step, until there are enough hits, the end, or a stop. */
async function run() {
  const mine = search, wanted = mine.hits + (mine.body.newest === undefined ? 50 : SHOWN_MAX);
  mine.state = "running";
  mine.abort = new AbortController();
  try {
    do {
      showProgress();
      const body = { ...mine.body, limit: Math.max(1, wanted - mine.hits), ...(mine.next ? { next: mine.next } : {}) };
      const step = await api(own("find"), { method: "POST", body, signal: mine.abort.signal });
      if (mine !== search) return;
      mine.hits += step.matches.length;
      mine.read += step.read_bytes;
      mine.undecodable += step.undecodable_count;
      mine.next = step.next;
      show(step.matches);
    } while (mine.next && mine.hits < wanted);
    mine.state = mine.next ? "part" : "done";
  } catch (error) {
    mine.state = "stopped";
    if (error.name !== "AbortError") throw error;
  } finally {
    if (mine === search) showProgress();
  }
}

const begin = guarded(async () => {
  stopFollowing();
  search?.abort?.abort();
  search = { body: start(), hits: 0, read: 0, undecodable: 0, next: null, all: [] };
  byId("found").replaceChildren();
  await run();
});

// --- following

let following = null;

function stopFollowing() {
  clearTimeout(following?.timer);
  following = null;
  byId("follow").setAttribute("aria-pressed", "false");
  byId("follow").textContent = "Follow";
}

const follow = guarded(async () => {
  if (following) return stopFollowing();
  search?.abort?.abort();
  const { browse, ...rest } = terms();
  const mine = following = { positions: {}, seen: 0 };
  byId("follow").setAttribute("aria-pressed", "true");
  byId("follow").textContent = "Stop following";
  byId("found").replaceChildren();
  const poll = async () => {
    const answer = await api(own("follow"), { method: "POST", body: { ...rest, positions: mine.positions } });
    if (mine !== following) return;
    mine.positions = answer.positions;
    mine.seen += answer.matches.length;
    byId("found").prepend(...answer.matches.reverse().flatMap((one) => rowsOf(one)));
    while (byId("found").rows.length > 2 * SHOWN_MAX) byId("found").lastChild.remove();
    const part = answer.is_whole ? "" : " of the first 256 partitions";
    byId("progress").textContent = `following${part}: ${number(mine.seen)} came`;
    mine.timer = setTimeout(guarded(poll), 1000);
  };
  try { await poll(); } catch (error) { stopFollowing(); throw error; }
  return undefined;
});

function chooseFrom() {
  byId("offset-field").hidden = byId("from").value !== "offset";
  byId("time-field").hidden = byId("from").value !== "time";
}

byId("from").addEventListener("change", chooseFrom);
byId("search").addEventListener("submit", (event) => { event.preventDefault(); begin(); });
byId("more").addEventListener("click", guarded(run));
byId("stop").addEventListener("click", () => search.abort.abort());
byId("follow").addEventListener("click", follow);

// --- partitions and configs

const partitions = new PagedTable(byId("partitions"), {
  caption: "Partitions",
  sort: "number",
  url: ({ limit, offset, sort }) => `${own("partitions")}${query({ limit, offset, sort })}`,
  rows: (answer) => answer.partitions,
  columns: [
    { name: "number", title: "Partition", sorts: true, cell: (one) => number(one.number) },
    { name: "start", title: "First offset", number: true, cell: (one) => number(one.start) },
    { name: "end", title: "Next offset", number: true, cell: (one) => number(one.end) },
    { name: "records", title: "Records", sorts: true, number: true, cell: (one) => number(one.records) },
    { name: "bytes", title: "Size", sorts: true, number: true, cell: (one) => bytes(one.bytes) },
    { name: "owner", title: "Node", number: true, cell: (one) => one.owner ?? "none" },
    { name: "holders", title: "Held by", cell: (one) => one.holders.join(", ") },
  ],
});

const showTopic = guarded(async () => {
  const topic = await api(`${own()}?details=false`);
  byId("facts").textContent = `${number(topic.partitions)} partitions${topic.is_internal ? " · the node's own" : ""} · ${topic.uuid}`;
  byId("config").replaceChildren(plainTable("Configs", ["Config", "Value", "Origin"],
    topic.configs.sort((a, b) => a.is_default - b.is_default).map((one) => [h("code", {}, one.name), one.value ?? "", one.is_default ? "default" : "set here"])));
});

// --- sending and deleting

function headersOf(text) {
  return text.split("\n").filter(Boolean).map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`Headers: name=value, not ${line}`);
    return { name: line.slice(0, at), value: line.slice(at + 1) };
  });
}

const send = guarded(async () => {
  const body = { value: byId("new-value").value, headers: headersOf(byId("new-headers").value) };
  if (byId("new-key").value !== "") body.key = byId("new-key").value;
  if (byId("new-partition").value !== "") body.partition = Number(byId("new-partition").value);
  const sent = await api(own("records"), { method: "POST", body });
  byId("sent").textContent = `At partition ${sent.partition}, offset ${number(sent.offset)}; ${time(Date.now())}`;
});

const remove = guarded(async () => {
  const { topics } = await api(`topics${query({ limit: 1000, contains: item })}`);
  const topic = topics.find((one) => one.name === item);
  const lost = topic ? `${number(topic.records)} records (${bytes(topic.bytes)}) in ${number(topic.partitions)} partitions` : "its messages";
  const text = `Deletes ${lost}, the committed offsets of all groups in it${topic?.is_queue ? ", and its queue" : ""}. This cannot be undone.`;
  if (!await confirmed({ title: `Delete topic ${item}?`, text, action: "Delete", name: topic?.records > 0 ? item : "" })) return;
  await api(own(), { method: "DELETE" });
  say(`${item} is deleted`);
  location.href = "/console/topics";
});

if (isOperator) {
  byId("new").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  byId("delete").addEventListener("click", remove);
  byId("loss").textContent = "All its messages and the offsets that groups have committed in it.";
}

const given = new URLSearchParams(location.search);
for (const name of ["from", "offset", "partition", "key", "contains", "header", "time"]) {
  if (given.has(name)) byId(name).value = given.get(name);
}
chooseFrom();
tabs(document.querySelector("[role=tablist]"), (tab) => { if (tab === "partitions") partitions.load(); });
showTopic();
begin();
