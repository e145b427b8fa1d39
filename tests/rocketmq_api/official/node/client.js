// Apache's client for Node, told what to do line by line; programs.py says in which words.
"use strict";

const readline = require("node:readline");
const { Producer } = require("rocketmq-client-nodejs");

const [role, address, ...rest] = process.argv.slice(2);
const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
// Its own words would be taken for answers.
const quiet = { debug() {}, info() {}, warn() {}, error() {}, log() {}, close() {} };

async function sent(producer, asked) {
  const message = { topic: asked.topic, body: Buffer.from(asked.body), tag: asked.tag };
  if (asked.keys) message.keys = asked.keys;
  if (asked.properties) message.properties = new Map(Object.entries(asked.properties));
  if (asked.group) message.messageGroup = asked.group;
  if (asked.delay_s) message.deliveryTimestamp = new Date(Date.now() + asked.delay_s * 1000);
  if (asked.priority !== undefined) message.priority = asked.priority;
  const receipt = await producer.send(message);
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
  const producer = new Producer({ endpoints: address, topics, topic: topics, logger: quiet });
  await producer.startup();
  await obey(async (asked) => {
    if (asked.do === "send") return sent(producer, asked);
    return { id: (await producer.recallMessage(asked.topic, asked.handle)).messageId };
  });
  await producer.shutdown();
}

async function main() {
  await { producer: produce }[role](...rest);
  say({ stopped: true });
  process.exit(0);
}

main();
