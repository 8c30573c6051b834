// amqplib: prints what it sees, a line for each step. Arguments: port, stem of names.
import amqp from 'amqplib';

const [port, stem] = process.argv.slice(2);
const say = (name, value) => console.log(`> ${name} ${value}`);

const connection = await amqp.connect(`amqp://guest:guest@127.0.0.1:${port}`);
const channel = await connection.createConfirmChannel();
const queue = `${stem}-q`;
await channel.assertExchange(stem, 'topic');
await channel.assertQueue(queue);
await channel.bindQueue(queue, stem, 'a.#');
channel.publish(stem, 'a.b', Buffer.from('hello'), {
  contentType: 'text/plain', correlationId: 'c1', replyTo: 'r1', messageId: 'm1', priority: 7,
  headers: { text: 'a', number: 5 },
});
await channel.waitForConfirms();
say('confirmed', 1);

const returned = new Promise((resolve) => channel.once('return', resolve));
channel.publish(stem, 'nowhere', Buffer.from('lost'), { mandatory: true });
await channel.waitForConfirms();
const { replyCode, replyText } = (await returned).fields;
say('returned', `${replyCode} ${replyText}`);

let got = await channel.get(queue);
say('body', got.content.toString());
say('headers', `${got.properties.headers.text},${got.properties.headers.number}`);
const { contentType, correlationId, replyTo, messageId, priority } = got.properties;
say('properties', [contentType, correlationId, replyTo, messageId, priority].join('|'));
channel.nack(got);
got = await channel.get(queue);
say('redelivered', got.fields.redelivered);
channel.ack(got);

// direct reply-to
const server = await connection.createChannel();
const rpc = `${stem}-rpc`;
await server.assertQueue(rpc, { exclusive: true, durable: false });
await server.consume(rpc, (question) => {
  server.sendToQueue(question.properties.replyTo, Buffer.from('pong'), {
    correlationId: question.properties.correlationId,
  });
}, { noAck: true });
const client = await connection.createChannel();
const answer = await new Promise((resolve) => {
  client.consume('amq.rabbitmq.reply-to', resolve, { noAck: true }).then(() => {
    client.sendToQueue(rpc, Buffer.from('ping'), {
      replyTo: 'amq.rabbitmq.reply-to', correlationId: '7',
    });
  });
});
say('reply', `${answer.content} ${answer.properties.correlationId}`);

// a stream
const stream = `${stem}-stream`;
const reader = await connection.createConfirmChannel();
await reader.assertQueue(stream, { arguments: { 'x-queue-type': 'stream' } });
for (let number = 0; number < 3; number += 1) reader.sendToQueue(stream, Buffer.from(`s${number}`));
await reader.waitForConfirms();
await reader.prefetch(2);
const seen = [];
await new Promise((resolve) => {
  reader.consume(stream, (message) => {
    if (message === null) return; // it was deleted
    seen.push(`${message.properties.headers['x-stream-offset']}=${message.content}`);
    reader.ack(message);
    if (seen.length === 3) resolve();
  }, { arguments: { 'x-stream-offset': 'first' } });
});
say('stream', seen.join(','));
await reader.deleteQueue(stream);

// a fault closes its channel only
const doomed = await connection.createChannel();
doomed.on('error', () => {});
try {
  await doomed.checkQueue('there-is-none');
  say('fault', 'none');
} catch (error) {
  say('fault', error.code);
}
await channel.deleteQueue(queue);
await channel.deleteExchange(stem);
await connection.close();
