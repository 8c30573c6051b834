// @aws-sdk/client-sqs through the steps of scenario.py: interop.mjs url region key secret stem.
//
// Prints what it saw as one JSON object.

import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import * as sqs from "@aws-sdk/client-sqs";

const [url, region, accessKeyId, secretAccessKey, stem] = process.argv.slice(2);
const client = new sqs.SQSClient({
  endpoint: url,
  region,
  credentials: { accessKeyId, secretAccessKey },
  maxAttempts: 1,
});
const COME_MS_MAX = 15_000;
const AT_ONCE_MS_MAX = 5000;
const MIB = 1 << 20;
const UNICODE = "\t\n\r \u00e9\u2603\u{1f600} <&>\"' \ufffd \ue000 end";
const ATTRIBUTES = {
  text: { DataType: "String", StringValue: "\u00e9\u2603 text" },
  number: { DataType: "Number", StringValue: "-1.5e10" },
  bytes: { DataType: "Binary", BinaryValue: Uint8Array.from({ length: 256 }, (_, n) => n) },
  "custom.text": { DataType: "String.uuid", StringValue: "f81d4fae" },
  "custom.number": { DataType: "Number.int", StringValue: "7" },
  "custom.bytes": { DataType: "Binary.png", BinaryValue: Buffer.from("\x89PNG", "latin1") },
};

const call = (action, params) => client.send(new sqs[`${action}Command`](params));

async function made(name, Attributes = {}) {
  return (await call("CreateQueue", { QueueName: name, Attributes })).QueueUrl;
}

async function attribute(QueueUrl, name) {
  const found = await call("GetQueueAttributes", { QueueUrl, AttributeNames: [name] });
  return found.Attributes[name];
}

const send = (QueueUrl, MessageBody, more = {}) =>
  call("SendMessage", { QueueUrl, MessageBody, ...more });

async function look(QueueUrl, more = {}) {
  const found = await call("ReceiveMessage", {
    QueueUrl,
    MaxNumberOfMessages: 10,
    WaitTimeSeconds: 0,
    MessageSystemAttributeNames: ["All"],
    MessageAttributeNames: ["All"],
    ...more,
  });
  return found.Messages ?? [];
}

async function take(QueueUrl, count = 1, more = {}) {
  const deadline = Date.now() + COME_MS_MAX;
  const came = [];
  while (came.length < count && Date.now() < deadline) {
    const MaxNumberOfMessages = Math.min(10, count - came.length);
    came.push(...(await look(QueueUrl, { MaxNumberOfMessages, WaitTimeSeconds: 2, ...more })));
  }
  if (came.length !== count) {
    throw new Error(`${came.length} of ${count} messages came to ${QueueUrl}`);
  }
  return came;
}

async function remove(QueueUrl, ...messages) {
  for (const { ReceiptHandle } of messages) {
    await call("DeleteMessage", { QueueUrl, ReceiptHandle });
  }
}

const release = (QueueUrl, { ReceiptHandle }) =>
  call("ChangeMessageVisibility", { QueueUrl, ReceiptHandle, VisibilityTimeout: 0 });

const bodies = (messages) => messages.map(({ Body }) => Body);

async function counts(QueueUrl) {
  const names = ["", "NotVisible", "Delayed"].map((state) => `ApproximateNumberOfMessages${state}`);
  const found = await call("GetQueueAttributes", { QueueUrl, AttributeNames: names });
  return names.map((name) => Number(found.Attributes[name]));
}

async function refused(action, params) {
  try {
    await call(action, params);
  } catch (error) {
    const code = error.Error?.Code ?? error.Code ?? error.name;
    return code.replace("AWS.SimpleQueueService.", "");
  }
  return "accepted";
}

const md5 = (text) => createHash("md5").update(text).digest("hex");

function sized(bytes) {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

function attributesMd5(attributes) {
  const digest = createHash("md5");
  for (const name of Object.keys(attributes).sort()) {
    const { DataType, StringValue, BinaryValue } = attributes[name];
    digest.update(sized(Buffer.from(name))).update(sized(Buffer.from(DataType)));
    digest.update(Buffer.from([BinaryValue ? 2 : 1]));
    digest.update(sized(Buffer.from(BinaryValue ?? StringValue)));
  }
  return digest.digest("hex");
}

// Blobs are arrays of bytes of different classes: plain values compare.
function plain(attributes) {
  return Object.fromEntries(
    Object.entries(attributes).map(([name, { DataType, StringValue, BinaryValue }]) => [
      name,
      [DataType, BinaryValue ? Buffer.from(BinaryValue).toString("hex") : StringValue],
    ]),
  );
}

async function standard(name) {
  const queue = await made(name);
  const found = (await call("GetQueueUrl", { QueueName: name })).QueueUrl;
  const sent = await send(queue, UNICODE);
  const [message] = await take(queue);
  const seen = [
    found === queue,
    message.Body === UNICODE,
    message.MessageId === sent.MessageId,
    [sent.MD5OfMessageBody, message.MD5OfBody].every((one) => one === md5(UNICODE)),
  ];
  await remove(queue, message);
  return [...seen, await look(queue), await counts(queue)];
}

async function longPolling(name) {
  const queue = await made(name);
  const latencies = [];
  for (let round = 0; round < 4; round++) {
    const waiting = look(queue, { WaitTimeSeconds: 20 });
    for (let n = 0; n < 5; n++) {
      await attribute(queue, "QueueArn");
    }
    const began = performance.now();
    await send(queue, "wakes");
    const [message] = await waiting;
    latencies.push(performance.now() - began);
    await remove(queue, message);
  }
  const began = performance.now();
  const empty = await look(queue, { WaitTimeSeconds: 1 });
  const waited = performance.now() - began;
  const isAtOnce = Math.min(...latencies) < AT_ONCE_MS_MAX;
  return [isAtOnce, empty.length === 0, waited > 900 && waited < 20000];
}

async function visibility(name) {
  const queue = await made(name);
  await send(queue, "one");
  const [first] = await take(queue, 1, { VisibilityTimeout: 60 });
  const hidden = await look(queue);
  const inFlight = await counts(queue);
  await release(queue, first);
  const [again] = await take(queue, 1, { VisibilityTimeout: 60 });
  const received = [first, again].map((one) => Number(one.Attributes.ApproximateReceiveCount));
  const isNewHandle = again.ReceiptHandle !== first.ReceiptHandle;
  await remove(queue, again);
  return [hidden, inFlight, received, isNewHandle, await counts(queue)];
}

async function deadLetters(name) {
  const dead = await made(`${name}-dead`);
  const deadLetterTargetArn = await attribute(dead, "QueueArn");
  const policy = JSON.stringify({ deadLetterTargetArn, maxReceiveCount: "2" });
  const queue = await made(name, { RedrivePolicy: policy });
  const sent = await send(queue, "dies", { MessageAttributes: ATTRIBUTES });
  for (let n = 0; n < 2; n++) {
    await release(queue, (await take(queue))[0]);
  }
  if ((await look(queue)).length) {
    throw new Error("it is not dead");
  }
  const [letter] = await take(dead);
  const sources = await call("ListDeadLetterSourceQueues", { QueueUrl: dead });
  return [
    letter.Body,
    letter.MessageId === sent.MessageId,
    isDeepStrictEqual(plain(letter.MessageAttributes), plain(ATTRIBUTES)),
    letter.Attributes.DeadLetterQueueSourceArn === (await attribute(queue, "QueueArn")),
    isDeepStrictEqual(sources.queueUrls, [queue]),
    await counts(queue),
  ];
}

function outcome(answer) {
  const failed = (answer.Failed ?? []).map((one) => [one.Id, one.Code, one.SenderFault]);
  return [(answer.Successful ?? []).map(({ Id }) => Id).sort(), failed.sort()];
}

async function batches(name) {
  const queue = await made(name);
  const entries = Array.from({ length: 8 }, (_, n) => ({ Id: `e${n}`, MessageBody: `${n}` }));
  entries.push({ Id: "delayed", MessageBody: "d", DelaySeconds: 901 });
  entries.push({ Id: "illegal", MessageBody: "\ufffe" });
  const sent = await call("SendMessageBatch", { QueueUrl: queue, Entries: entries });
  const came = await take(queue, 8);
  const handles = came.map(({ ReceiptHandle }) => ReceiptHandle);
  const changed = await call("ChangeMessageVisibilityBatch", {
    QueueUrl: queue,
    Entries: [...handles.slice(0, 2), "forged"].map((ReceiptHandle, n) => ({
      Id: `c${n}`,
      ReceiptHandle,
      VisibilityTimeout: 60,
    })),
  });
  const deleted = await call("DeleteMessageBatch", {
    QueueUrl: queue,
    Entries: [...handles, "forged"].map((ReceiptHandle, n) => ({ Id: `d${n}`, ReceiptHandle })),
  });
  const seen = [sent, changed, deleted].map(outcome);
  return [...seen, bodies(came).sort(), await counts(queue)];
}

async function messageAttributes(name) {
  const queue = await made(name);
  const sent = await send(queue, "x", { MessageAttributes: ATTRIBUTES });
  const back = { VisibilityTimeout: 0 };
  const [every] = await take(queue, 1, back);
  const names = ["custom.*", "text"];
  const [some] = await take(queue, 1, { MessageAttributeNames: names, ...back });
  const bare = (await call("ReceiveMessage", { QueueUrl: queue, ...back })).Messages[0];
  const right = attributesMd5(ATTRIBUTES);
  return [
    sent.MD5OfMessageAttributes === right,
    isDeepStrictEqual(plain(every.MessageAttributes), plain(ATTRIBUTES)),
    every.MD5OfMessageAttributes === right,
    Object.keys(some.MessageAttributes).sort(),
    some.MD5OfMessageAttributes === attributesMd5(some.MessageAttributes),
    Object.keys(bare).sort(),
  ];
}

async function oneMebibyte(name) {
  const queue = await made(name);
  const large = "x".repeat(MIB);
  await send(queue, large);
  const [message] = await take(queue);
  await remove(queue, message);
  const half = large.slice(0, MIB / 2);
  const entries = ["h0", "h1"].map((Id) => ({ Id, MessageBody: half }));
  const both = await call("SendMessageBatch", { QueueUrl: queue, Entries: entries });
  entries[1].MessageBody += "+";
  return [
    message.Body === large,
    both.Successful.length,
    await refused("SendMessage", { QueueUrl: queue, MessageBody: `${large}+` }),
    await refused("SendMessageBatch", { QueueUrl: queue, Entries: entries }),
  ];
}

async function tags(name) {
  const created = await call("CreateQueue", { QueueName: name, tags: { a: "1", b: "2" } });
  const given = { QueueUrl: created.QueueUrl };
  const found = async () => (await call("ListQueueTags", given)).Tags;
  const seen = [await found()];
  await call("TagQueue", { ...given, Tags: { b: "3", c: "\u00e9" } });
  seen.push(await found());
  await call("UntagQueue", { ...given, TagKeys: ["a", "c", "none"] });
  return [...seen, await found()];
}

const fifoMade = (name) => made(`${name}.fifo`, { FifoQueue: "true" });

const put = (queue, group, body, id = `${group}-${body}`) =>
  send(queue, body, { MessageGroupId: group, MessageDeduplicationId: id });

async function fifo(name) {
  const queue = await fifoMade(name);
  const numbers = [];
  for (let n = 0; n < 3; n++) {
    for (const group of ["a", "b"]) {
      numbers.push(BigInt((await put(queue, group, `${n}`)).SequenceNumber));
    }
  }
  const first = await look(queue, { MaxNumberOfMessages: 1 });
  const others = await take(queue, 3);
  const locked = await look(queue);
  await remove(queue, ...first);
  const rest = await take(queue, 2);
  await remove(queue, ...others, ...rest);
  const found = first[0].Attributes;
  return [
    numbers.every((number, n) => n === 0 || number > numbers[n - 1]),
    bodies(first),
    bodies(others),
    locked,
    bodies(rest),
    [found.MessageGroupId, found.MessageDeduplicationId],
    BigInt(found.SequenceNumber) === numbers[0],
    await counts(queue),
  ];
}

async function deduplication(name) {
  const queue = await fifoMade(name);
  const sent = [await put(queue, "g", "one", "same"), await put(queue, "g", "two", "same")];
  const [message] = await take(queue);
  await remove(queue, message);
  sent.push(await put(queue, "g", "three", "same"));
  await put(queue, "g", "four", "other");
  const distinct = (member) => new Set(sent.map((one) => one[member])).size;
  const left = bodies(await take(queue));
  return [message.Body, distinct("MessageId"), distinct("SequenceNumber"), left];
}

async function deletedQueue(name) {
  const queue = await made(name);
  await call("DeleteQueue", { QueueUrl: queue });
  return [
    await refused("SendMessage", { QueueUrl: queue, MessageBody: "x" }),
    await refused("GetQueueUrl", { QueueName: name }),
    await refused("CreateQueue", { QueueName: name }),
  ];
}

const STEPS = {
  standard,
  "long polling": longPolling,
  visibility,
  "dead letters": deadLetters,
  batches,
  "message attributes": messageAttributes,
  "one mebibyte": oneMebibyte,
  tags,
  fifo,
  deduplication,
  "deleted queue": deletedQueue,
};
const seen = {};
for (const [step, run] of Object.entries(STEPS)) {
  try {
    seen[step] = await run(`${stem}-${step.replaceAll(" ", "-")}`);
  } catch (error) {
    seen[step] = `${error.name}: ${error.message}`;
  }
}
process.stdout.write(`${JSON.stringify(seen)}\n`);
