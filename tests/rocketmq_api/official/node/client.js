// Apache's client for Node, told what to do line by line; programs.py says in which words.
"use strict";

const readline = require("node:readline");
const {
  ConsumeResult,
  FilterExpression,
  Producer,
  PushConsumer,
  SimpleConsumer,
} = require("rocketmq-client-nodejs");

const AWAIT_MS = 5000;

const [role, address, ...rest] = process.argv.slice(2);
const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
const sslEnabled = Boolean(process.env.OFFICIAL_TLS);
const { TEST_ACCESS_KEY: accessKey, TEST_SECRET_KEY: accessSecret } = process.env;
const sessionCredentials = accessKey ? { accessKey, accessSecret } : undefined;
// Its own words would be taken for answers.
const quiet = { debug() {}, info() {}, warn() {}, error() {}, log() {}, close() {} };
const CONNECTION = { endpoints: address, sslEnabled, sessionCredentials, logger: quiet };

async function sent(producer, asked) {
  const message = { topic: asked.topic, body: Buffer.from(asked.body), tag: asked.tag };
  if (asked.keys) message.keys = asked.keys;
  if (asked.properties) message.properties = new Map(Object.entries(asked.properties));
  if (asked.group) message.messageGroup = asked.group;
  if (asked.delay_s) message.deliveryTimestamp = new Date(Date.now() + asked.delay_s * 1000);
  if (asked.priority !== undefined) message.priority = asked.priority;
  const transaction = asked.end && producer.beginTransaction();
  const receipt = await producer.send(message, transaction);
  if (asked.end === "commit") await transaction.commit();
  if (asked.end === "rollback") await transaction.rollback();
  return {
    id: receipt.messageId,
    transaction: receipt.transactionId,
    handle: receipt.recallHandle,
  };
}

// Answers line by line until it is told to stop.
async function obey(role) {
  say({ started: true });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    if (asked.do === "stop") return;
    try {
      say(await role(asked));
    } catch (error) {
      say({ error: String(error) });
    }
  }
}

async function produce(...topics) {
  const RESOLUTIONS = { commit: 1, rollback: 2 }; // which the library does not export
  const checker = {
    check: async (message) => RESOLUTIONS[message.properties.get("answer")] ?? null,
  };
  const names = { topics, topic: topics };
  const producer = new Producer({ ...CONNECTION, ...names, checker });
  await producer.startup();
  await obey(async (asked) => {
    if (asked.do === "send") return sent(producer, asked);
    return { id: (await producer.recallMessage(asked.topic, asked.handle)).messageId };
  });
  await producer.shutdown();
}

function seen(message) {
  return {
    id: message.messageId,
    topic: message.topic,
    body: message.body.toString(),
    tag: message.tag,
    keys: message.keys,
    properties: Object.fromEntries(message.properties),
    group: message.messageGroup,
    attempt: message.deliveryAttempt,
  };
}

function filter(tags) {
  const SQL = 2; // FilterType, which the library does not export
  return tags.startsWith("sql:")
    ? new FilterExpression(tags.slice(4), SQL)
    : new FilterExpression(tags);
}

function options(group, topics) {
  const pairs = topics.map((topic) => topic.split(/=(.*)/s));
  return {
    ...CONNECTION,
    consumerGroup: group,
    subscriptions: new Map(
      pairs.map(([topic, tags]) => [topic, filter(tags || "*")]),
    ),
  };
}

async function receive(group, ...topics) {
  const consumer = new SimpleConsumer({ ...options(group, topics), awaitDuration: AWAIT_MS });
  await consumer.startup();
  const held = new Map();
  await obey(async (asked) => {
    if (asked.do === "receive") {
      const messages = await consumer.receive(asked.max, asked.invisible_s * 1000);
      for (const message of messages) held.set(message.messageId, message);
      return { messages: messages.map(seen) };
    }
    const message = held.get(asked.id);
    if (asked.do === "ack") await consumer.ack(message);
    else await consumer.changeInvisibleDuration(message, asked.invisible_s * 1000);
    return { id: asked.id };
  });
  await consumer.shutdown();
}

async function listen(group, ...topics) {
  const calls = new Map();
  const messageListener = {
    async consume(message) {
      const call = (calls.get(message.messageId) ?? 0) + 1;
      calls.set(message.messageId, call);
      say({ message: seen(message) });
      const property = (name) => Number(message.properties.get(name) ?? 0);
      await new Promise((done) => setTimeout(done, property("takes_s") * 1000));
      const fails = property("fails");
      return call <= fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
  const consumer = new PushConsumer({ ...options(group, topics), messageListener });
  await consumer.startup();
  await obey(async () => ({}));
  await consumer.shutdown();
}

async function main() {
  await { producer: produce, simple: receive, push: listen }[role](...rest);
  say({ stopped: true });
  process.exit(0);
}

main();
