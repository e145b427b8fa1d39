// Apache's client for Node, told what to do line by line; the same words as the one for Python.
"use strict";

const readline = require("node:readline");
const { Producer } = require("rocketmq-client-nodejs");

const [address, ...topics] = process.argv.slice(2);
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

async function main() {
  const producer = new Producer({ endpoints: address, topics, topic: topics, logger: quiet });
  await producer.startup();
  say({ started: true });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    if (asked.do === "stop") break;
    try {
      if (asked.do === "send") say(await sent(producer, asked));
      else say({ id: (await producer.recallMessage(asked.topic, asked.handle)).messageId });
    } catch (error) {
      say({ error: String(error) });
    }
  }
  await producer.shutdown();
  say({ stopped: true });
  process.exit(0);
}

main();
