// The routing tester: where a message would go, and why. It publishes nothing.

import { api, byId, duration, guarded, h, number, query } from "/console/static/core.js";
import { plainTable } from "/console/static/table.js";

const FIELDS = {
  exchange: "route-exchange", key: "route-key", headers: "route-headers", message_id: "route-message-id",
  correlation_id: "route-correlation-id", timestamp: "route-timestamp",
};
let vhostOf = () => "/", hasShown = false;

const asked = () => Object.fromEntries(Object.entries(FIELDS).map(([name, id]) => [name, byId(id).value]));

const queueName = (one) => {
  const name = vhostOf() === "/" ? h("a", { href: `/console/${one.kind === "queue" ? "queues" : "topics"}/${encodeURIComponent(one.topic)}` }, one.name) : one.name;
  return h("li", {}, `${one.kind} `, name);
};

function verdict(answer) {
  const noun = answer.queues.every((one) => one.kind === "queue") ? "queue" : "destination";
  const count = `${number(answer.total)} ${noun}${answer.total === 1 ? "" : "s"}`;
  if (answer.delay_ms) {
    const then = answer.total ? `goes to ${count}` : "is dropped";
    return `The message waits ${duration(answer.delay_ms)}; then, by the bindings as they are now, it ${then}.`;
  }
  if (answer.total) return `The message goes to ${count}.`;
  return "Unroutable: the message goes nowhere. A mandatory publish comes back with 312 NO_ROUTE; any other is confirmed, and dropped.";
}

const destination = (one) => (one.exchange === undefined ? `queue ${one.queue}` : `exchange ${one.exchange}`);

function wayTo(step) {
  if (step.from === null) return "published to";
  return step.is_alternate ? `alternate exchange of ${step.from}` : `bound to ${step.from}`;
}

function showStep(step, index) {
  const lines = step.bindings.map((one) => [
    one.matches ? h("strong", {}, "yes") : "no", destination(one), h("code", {}, one.routing_key),
    Object.keys(one.arguments).length ? h("code", {}, JSON.stringify(one.arguments)) : "–", one.reason,
  ]);
  const name = `${index + 1}. ${step.exchange}${step.type ? `, ${step.type}` : ""}`;
  return [
    h("h3", {}, name),
    h("p", {}, h("span", { class: "quiet" }, `${wayTo(step)}: `), step.outcome),
    lines.length ? plainTable(`Bindings of ${step.exchange}`, ["Matches", "Leads to", "Key or pattern", "Arguments", "Why"], lines) : null,
    step.bindings_left_out ? h("p", { class: "quiet" }, `and ${number(step.bindings_left_out)} bindings more`) : null,
  ];
}

const ask = guarded(async () => {
  const values = asked();
  const vhost = vhostOf();
  history.replaceState(null, "", `/console/amqp${query({ vhost, ...values })}#route`);
  const { key, ...rest } = values;
  let answer;
  try {
    answer = await api(`adapters/amqp/route${query({ vhost, routing_key: key, ...rest })}`);
  } catch (error) {
    byId("route-answer").replaceChildren(h("p", { class: "problem" }, error.message));
    return;
  }
  byId("route-answer").replaceChildren(
    h("h2", {}, "Answer"),
    h("p", { class: answer.total || answer.delay_ms ? null : "problem" }, verdict(answer)),
    h("ul", { class: "legend" }, answer.queues.map(queueName)),
    ...(answer.total > answer.queues.length ? [h("p", { class: "quiet" }, `and ${number(answer.total - answer.queues.length)} more`)] : []),
    h("h2", {}, "Exchanges on its way"),
    ...answer.steps.flatMap(showStep).filter(Boolean),
    ...(answer.steps_left_out ? [h("p", { class: "quiet" }, `and ${number(answer.steps_left_out)} exchanges more`)] : []),
  );
});

/** Show the tester; the first time it takes a message of the page's URL, and asks about it. */
export function showRoute(vhost) {
  vhostOf = vhost;
  if (hasShown) return;
  hasShown = true;
  const given = new URLSearchParams(location.search);
  for (const [name, id] of Object.entries(FIELDS)) byId(id).value = given.get(name) ?? "";
  byId("route-form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  if (given.has("key") || given.has("headers")) ask();
}
