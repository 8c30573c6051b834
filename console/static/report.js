// The last report of a Spark job, as the job left it in the data directory.

import { api, byId, bytes, duration, guarded, h, number, time } from "./core.js";
import { plainTable } from "./table.js";

const load = guarded(async () => {
  const { report } = await api("report");
  byId("empty").hidden = report !== null;
  byId("found").hidden = report === null;
  if (report === null) return;
  const total = report.total;
  byId("source").textContent = `Job ${report.job}, ended ${time(report.ended_unix_ms)} UTC after ${duration(report.took_ms)}; ${report.source}`;
  const card = (title, text) => h("div", { class: "card" }, h("dt", {}, title), h("dd", {}, text));
  byId("cards").replaceChildren(
    card("Records", number(total.records)), card("Decoded", bytes(total.decoded_bytes)),
    card("As stored", bytes(total.stored_bytes)), card("Topics", number(report.topic_count)),
    card("Late, p99", duration(total.late_ms.p99)), card("Overdue, p99", duration(total.overdue_ms.p99)));
  const faults = byId("faults");
  faults.textContent = total.undecodable
    ? `⚠ ${number(total.undecodable)} batches cannot be decoded, and are counted in nothing.` : "No faults: all batches could be decoded.";
  faults.classList.toggle("problem", total.undecodable > 0);
  byId("by-topic").replaceChildren(plainTable("Topics", ["Topic", "Protocol", "Records", "Decoded", "Late, p99", "Overdue, p99", "Faults"],
    report.by_topic.map((one) => [
      h("a", { href: `/console/topics/${encodeURIComponent(one.topic)}` }, one.topic), one.protocol, number(one.records),
      bytes(one.decoded_bytes), duration(one.late_ms.p99), duration(one.overdue_ms.p99), number(one.undecodable),
    ])));
  const left = report.row_count - report.by_topic.length;
  byId("more").textContent = left > 0 ? `${number(left)} smaller ones are left out; headgate pipeline report --json has them.` : "";
});

load();
