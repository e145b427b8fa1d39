// grpc-js as a client of aerobee.grpc_core's server: the cases, one line each.
// Messages are bytes; the methods are those of tests/support/grpc_core_server.py.
//
//   node client.js ADDRESS [CA CERTIFICATE KEY]
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const { once } = require('node:events');
const grpc = require('@grpc/grpc-js');

const MIB = 1 << 20;
const { status } = grpc;
const same = (bytes) => bytes;
const path = (name) => `/test.Echo/${name}`;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const inAMinute = () => ({ deadline: Date.now() + 60_000 });

class Cases {
  constructor(address, credentials, further) {
    this.options = {
      'grpc.max_receive_message_length': 32 * MIB,
      'grpc.max_send_message_length': 32 * MIB,
      ...further,
    };
    this.address = address;
    this.credentials = credentials;
    this.client = new grpc.Client(address, credentials, this.options);
  }

  start(name, request, metadata = new grpc.Metadata(), options = inAMinute(), client = this.client) {
    const call = {};
    call.answer = new Promise((resolve, reject) => {
      call.surface = client.makeUnaryRequest(
        path(name), same, same, request, metadata, options,
        (error, answer) => (error ? reject(error) : resolve(answer)),
      );
    });
    return call;
  }

  call(name, request, ...rest) {
    return this.start(name, Buffer.from(request), ...rest).answer;
  }

  answers(name, request, options = inAMinute()) {
    return this.client.makeServerStreamRequest(
      path(name), same, same, Buffer.from(request), new grpc.Metadata(), options,
    );
  }

  chat(options = inAMinute()) {
    return this.client.makeBidiStreamRequest(path('Chat'), same, same, new grpc.Metadata(), options);
  }

  async fails(name, code, options) {
    await assert.rejects(this.call(name, '', new grpc.Metadata(), options), { code });
  }

  async sizes() {
    for (const name of ['Echo', 'Later', 'Task']) {
      for (const size of [0, 1, 16_379, 16_380, 70_000, 5 * MIB]) {
        const request = Buffer.alloc(size, 'x');
        assert((await this.call(name, request)).equals(request), `${name} of ${size} bytes`);
      }
    }
  }

  async large_answers() {
    const calls = Array.from({ length: 8 }, () => this.call('Large', '3000000'));
    for (const answer of await Promise.all(calls)) assert.equal(answer.length, 3_000_000);
  }

  async many_calls() {
    const one = async (number) => {
      assert.equal((await this.call('Task', String(number))).toString(), String(number));
    };
    await Promise.all(Array.from({ length: 5_000 }, (_, number) => one(number)));
  }

  // 2,000 streams open at once.
  async many_streams() {
    const calls = Array.from({ length: 2_000 }, () => this.chat());
    const say = async (call, text) => {
      const answered = once(call, 'data');
      call.write(Buffer.from(text));
      assert.equal((await answered)[0].toString(), text);
    };
    await Promise.all(calls.map((call, number) => say(call, String(number))));
    await Promise.all(calls.map((call) => say(call, 'again')));
    await Promise.all(calls.map((call) => {
      const ended = once(call, 'end');
      call.end();
      return ended;
    }));
  }

  async counts(request, count, size, beforeReading = async () => {}) {
    const call = this.answers('Count', request);
    let number = 0;
    const expected = 'x'.repeat(size);
    for await (const answer of call) {
      if (number === 0) await beforeReading();
      assert.equal(answer.toString(), `${number}${expected}`);
      number += 1;
    }
    assert.equal(number, count);
  }

  async stream_of_answers() {
    await this.counts('0', 0, 0);
    await this.counts('1000,500', 1_000, 500);
  }

  async slow_reader() {
    await this.counts('400,20000', 400, 20_000, async () => {
      await pause(300);
      await this.call('Echo', 'meanwhile');
    });
  }

  async stream_of_requests() {
    const answer = await new Promise((resolve, reject) => {
      const call = this.client.makeClientStreamRequest(
        path('Sum'), same, same, new grpc.Metadata(), inAMinute(),
        (error, total) => (error ? reject(error) : resolve(total)),
      );
      for (let size = 0; size < 300; size += 1) call.write(Buffer.alloc(size));
      call.end();
    });
    assert.equal(answer.toString(), '44850');
  }

  async both_stream() {
    const call = this.chat();
    for (let number = 0; number < 200; number += 1) {
      const answered = once(call, 'data');
      call.write(Buffer.from(String(number)));
      assert.equal((await answered)[0].toString(), String(number));
    }
    const [ended, told] = [once(call, 'end'), once(call, 'status')];
    call.end();
    await ended;
    assert.equal((await told)[0].code, status.OK);
  }

  async gzip() {
    const client = new grpc.Client(this.address, this.credentials, {
      ...this.options,
      'grpc.default_compression_algorithm': grpc.compressionAlgorithms.gzip,
    });
    for (const size of [10, 100_000]) {
      const request = Buffer.alloc(size, 'x');
      const call = this.start('Squeezed', request, new grpc.Metadata(), inAMinute(), client);
      assert((await call.answer).equals(request));
    }
    client.close();
  }

  async errors() {
    const error = await this.call('Fail', '').then(assert.fail, (failed) => failed);
    assert.equal(error.code, status.FAILED_PRECONDITION);
    assert.equal(error.details, 'nicht möglich: 100 %\n');
    assert.deepEqual(error.metadata.get('reason'), ['broken']);
    assert.deepEqual(error.metadata.get('reason-bin'), [Buffer.from([0, 255])]);
    assert(error.metadata.get('grpc-status-details-bin')[0].includes('BROKEN'));
  }

  async metadata() {
    const sent = new grpc.Metadata();
    sent.add('key', 'a value, with a comma');
    sent.add('key', 'once more');
    sent.add('raw-bin', Buffer.from([0, 1, 255]));
    const call = this.start('Metadata', Buffer.alloc(0), sent);
    const [head, told] = [once(call.surface, 'metadata'), once(call.surface, 'status')];
    await call.answer;
    const trailers = (await told)[0].metadata;
    for (const given of [(await head)[0], trailers]) {
      // Node joins values of one key by itself.
      assert.equal(given.get('key').join(', '), 'a value, with a comma, once more');
      assert.deepEqual(given.get('raw-bin'), [Buffer.from([0, 1, 255])]);
    }
    assert.equal(trailers.get('count-bin').length, 1);
  }

  async unimplemented() {
    await this.fails('Nothing', status.UNIMPLEMENTED);
  }

  async deadline() {
    for (const name of ['Sleep', 'Never']) {
      await this.fails(name, status.DEADLINE_EXCEEDED, { deadline: Date.now() + 200 });
    }
  }

  async cancel() {
    const call = this.answers('Forever', '');
    let count = 0;
    await assert.rejects(async () => {
      for await (const answer of call) {
        assert.equal(answer.length, 10_000);
        count += 1;
        if (count === 10) call.cancel();
      }
    }, { code: status.CANCELLED });
    await this.call('Echo', '');
  }

  async cancelled_by_server() {
    const call = this.answers('CountAndCancel', '3');
    let count = 0;
    await assert.rejects(async () => {
      for await (const answer of call) count += answer.length;
    }, { code: status.CANCELLED });
    assert.equal(count, 3);
  }
}

const NAMES = [
  'sizes', 'large_answers', 'many_calls', 'many_streams', 'stream_of_answers',
  'stream_of_requests', 'both_stream', 'slow_reader', 'gzip', 'errors', 'metadata',
  'unimplemented', 'deadline', 'cancel', 'cancelled_by_server',
];

async function main([address, ...files]) {
  const [ca, certificate, key] = files.map((file) => fs.readFileSync(file));
  const cases = files.length
    ? new Cases(address, grpc.credentials.createSsl(ca, key, certificate), {
      'grpc.ssl_target_name_override': 'localhost',
    })
    : new Cases(address, grpc.credentials.createInsecure(), {});
  let failed = 0;
  for (const name of NAMES) {
    try {
      await cases[name]();
      console.log(`ok ${name}`);
    } catch (error) {
      failed = 1;
      console.log(`failed ${name}: ${error.message.replaceAll('\n', ' ')}`);
    }
  }
  process.exit(failed);
}

main(process.argv.slice(2));
