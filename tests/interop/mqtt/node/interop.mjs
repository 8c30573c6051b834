// mqtt.js through the steps of ../scenario.py: node interop.mjs <url> <version> <stem>
// Prints what it saw as one JSON object.

import { createHash } from "node:crypto";
import mqtt from "mqtt";

const [url, versionText, stem] = process.argv.slice(2);
const version = Number(versionText);
const seen = {};
const topic = (levels) => `${stem}/${levels}`;

function options(suffix, clean, more = {}) {
  return {
    clientId: stem + suffix,
    protocolVersion: version,
    protocolId: version === 3 ? "MQIsdp" : "MQTT",
    clean,
    reconnectPeriod: 0,
    ...(version === 5 && !clean ? { properties: { sessionExpiryInterval: 300 } } : {}),
    ...more,
  };
}

/** A connected client with its messages in a queue; resolves with CONNACK in `connack`. */
async function open(suffix, { clean = true, will } = {}) {
  const client = mqtt.connect(url, options(suffix, clean, will ? { will } : {}));
  const queue = [];
  const waiting = [];
  client.on("message", (name, payload, packet) => {
    const message = { topic: name, payload, packet };
    waiting.length ? waiting.shift()(message) : queue.push(message);
  });
  client.nextMessage = () =>
    queue.length ? Promise.resolve(queue.shift()) : new Promise((done) => waiting.push(done));
  client.inbox = queue;
  client.connack = await new Promise((resolve, reject) => {
    client.once("connect", resolve);
    client.once("error", reject);
  });
  return client;
}

const sub = await open("sub");
const pub = await open("pub");
const send = (levels, payload, more = {}) =>
  pub.publishAsync(topic(levels), payload, { qos: 1, ...more });
const text = async (client = sub) => (await client.nextMessage()).payload.toString();

await sub.subscribeAsync(topic("qos/+"), { qos: 2 });
seen.qos = [];
for (const [qos, name] of ["zero", "one", "two"].entries()) {
  await send(`qos/${name}`, name, { qos });
  const message = await sub.nextMessage();
  seen.qos.push([message.payload.toString(), message.packet.qos]);
}

await sub.subscribeAsync(topic("w/#"), { qos: 1 });
for (const levels of ["w/a", "x/a", "w/a/b"]) await send(levels, levels.slice(2));
seen.wildcards = [await text(), await text()];

await sub.subscribeAsync(topic("p"), { qos: 1 });
await send("p", "");
seen.empty = await text();
await send("p", Buffer.alloc(256 * 400, Buffer.from([...Array(256).keys()])));
seen.large = createHash("sha256").update((await sub.nextMessage()).payload).digest("hex");

await send("r", "kept", { retain: true });
await sub.subscribeAsync(topic("r"), { qos: 1 });
const kept = await sub.nextMessage();
seen.retained = [kept.payload.toString(), kept.packet.retain];
await send("r", "", { retain: true });
await text();
await sub.unsubscribeAsync(topic("r"));
await sub.subscribeAsync(topic("r"), { qos: 1 });
await send("r", "end");
seen["retained after removal"] = await text();

await sub.unsubscribeAsync(topic("p"));
await send("p", "nobody's");
await send("r", "end");
seen.unsubscribed = await text();

if (version === 5) {
  await sub.subscribeAsync(topic("v"), { qos: 1, properties: { subscriptionIdentifier: 42 } });
  await send("v", "x", {
    properties: {
      contentType: "text/plain",
      responseTopic: "answers/here",
      correlationData: Buffer.from([0, 1, 255]),
      userProperties: { b: ["1", "3"], a: "2", "\u00e9": "\u2603" },
    },
  });
  const found = (await sub.nextMessage()).packet.properties;
  // Its user properties are an object: equal names lose their place among the others.
  const users = Object.entries(found.userProperties).flatMap(([name, values]) =>
    [values].flat().map((value) => [name, value]),
  );
  seen.properties = [
    found.contentType,
    found.responseTopic,
    found.correlationData.toString("hex"),
    users,
  ];
  seen.identifier = [found.subscriptionIdentifier].flat();
  await send("v", "x", { properties: { messageExpiryInterval: 60 } });
  const left = (await sub.nextMessage()).packet.properties.messageExpiryInterval;
  seen.expiry = left === 59 || left === 60;

  const other = await open("sub2");
  const group = `$share/group/${topic("s")}`;
  for (const member of [sub, other]) await member.subscribeAsync(group, { qos: 1 });
  const came = [];
  const all = new Promise((done) => {
    for (const member of [sub, other]) {
      member.on("message", (name, payload) => {
        if (name === topic("s")) came.push(payload.toString());
        if (came.length === 6) done();
      });
    }
  });
  for (let n = 0; n < 6; n += 1) await send("s", String(n));
  await all;
  seen.shared = came.sort();
  sub.inbox.length = 0;
  await other.endAsync();
  await sub.unsubscribeAsync(group);

  await pub.subscribeAsync(topic("answers"), { qos: 1 });
  await sub.subscribeAsync(topic("questions"), { qos: 1 });
  await send("questions", "question", {
    properties: {
      responseTopic: topic("answers"),
      correlationData: Buffer.from("c0ffee", "hex"),
    },
  });
  const question = await sub.nextMessage();
  const { responseTopic, correlationData } = question.packet.properties;
  await sub.publishAsync(responseTopic, "answer", { qos: 1, properties: { correlationData } });
  const answer = await pub.nextMessage();
  seen["request and response"] = [
    question.payload.toString(),
    answer.payload.toString(),
    answer.packet.properties.correlationData.toString("hex"),
  ];
}

const keeper = await open("keep", { clean: false });
await keeper.subscribeAsync(topic("k"), { qos: 1 });
await keeper.endAsync();
for (let n = 0; n < 3; n += 1) await send("k", String(n), { qos: 1 + (n % 2) });
const again = await open("keep", { clean: false });
seen.session = [await text(again), await text(again), await text(again)];
seen["session present"] = [keeper.connack.sessionPresent, again.connack.sessionPresent];
await again.unsubscribeAsync(topic("k"));
await again.endAsync();

await sub.subscribeAsync(topic("will"), { qos: 1 });
const mortal = await open("mortal", {
  will: { topic: topic("will"), payload: Buffer.from("gone"), qos: 1, retain: false },
});
mortal.on("error", () => {});
mortal.stream.destroy();
seen.will = await text();

await sub.endAsync();
await pub.endAsync();
process.stdout.write(`${JSON.stringify(seen)}\n`);
