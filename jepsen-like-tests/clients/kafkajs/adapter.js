// kafkajs behind the adapter protocol of ../README.md. NODE_PATH leads to the installed packages.

const readline = require('readline');
const kafkajs = require('kafkajs');
const snappy = require('kafkajs-snappy');
const lz4 = require('lz4-napi');
const zstd = require('@bokuweb/zstd-wasm');

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = kafkajs;
CompressionCodecs[CompressionTypes.Snappy] = snappy;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: async (buffer) => lz4.decompressFrame(buffer),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});
const CODEC = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

const bytes = (text) => (text === null ? null : Buffer.from(text, 'base64'));
const text = (value) => (value === null || value === undefined ? null
  : Buffer.from(value).toString('base64'));
const emit = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// kafkajs has one entry per header name; a repeated name is a list.
const toHeaders = (pairs) => {
  const headers = {};
  for (const [name, value] of pairs) {
    if (name in headers) headers[name] = [].concat(headers[name], [bytes(value)]);
    else headers[name] = bytes(value);
  }
  return headers;
};
const fromHeaders = (headers) => Object.entries(headers || {}).flatMap(([name, value]) =>
  (Array.isArray(value) ? value : [value]).map((one) => [name, text(one)]));

async function produce(kafka, p) {
  const producer = kafka.producer({
    idempotent: p.idempotent || false, allowAutoTopicCreation: false, retry: { retries: 2 },
  });
  await producer.connect();
  const records = [];
  for await (const line of readline.createInterface({ input: process.stdin })) {
    records.push(JSON.parse(line));
  }
  // One answer per request and partition: runs of one partition go together, in order.
  for (let i = 0; i < records.length;) {
    let j = i;
    while (j < records.length && records[j].p === records[i].p) j += 1;
    const messages = records.slice(i, j).map((r) => ({
      partition: r.p, key: bytes(r.k), value: bytes(r.v), headers: toHeaders(r.h),
      timestamp: String(r.t),
    }));
    try {
      const [answer] = await producer.send({
        topic: p.topic, messages, acks: p.acks === 'all' ? -1 : Number(p.acks),
        compression: CODEC[p.codec],
      });
      messages.forEach((m, k) => emit({
        p: m.partition, o: answer ? Number(answer.baseOffset) + k : -1,
      }));
    } catch (error) {
      messages.forEach(() => emit({ error: String(error) }));
    }
    i = j;
  }
  await producer.disconnect();
}

// kafkajs consumes only as a member of a group.
async function consume(kafka, p) {
  const admin = kafka.admin();
  await admin.connect();
  const left = new Map();
  for (const topic of p.topics) {
    for (const { partition, low, high } of await admin.fetchTopicOffsets(topic)) {
      if (low !== high) left.set(`${topic}/${partition}`, BigInt(high));
    }
  }
  await admin.disconnect();
  const consumer = kafka.consumer({ groupId: `kafkajs-${process.pid}-${Date.now()}`,
    maxBytesPerPartition: 4000000 });
  await consumer.connect();
  await consumer.subscribe({ topics: p.topics, fromBeginning: true });
  const finished = new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`still expecting ${[...left.keys()]}`)), 60000);
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message: m }) => {
        emit({ topic, p: partition, o: Number(m.offset), k: text(m.key), v: text(m.value),
          h: fromHeaders(m.headers), t: Number(m.timestamp) });
        const end = left.get(`${topic}/${partition}`);
        if (end !== undefined && BigInt(m.offset) + 1n >= end) left.delete(`${topic}/${partition}`);
        if (left.size === 0) resolve();
      },
    }).catch(reject);
  });
  await finished;
  await consumer.disconnect();
}

async function lookup(kafka, p) {
  const admin = kafka.admin();
  await admin.connect();
  for (const t of p.times) {
    const found = await admin.fetchTopicOffsetsByTimestamp(p.topic, t);
    const first = found.find((one) => one.partition === 0);
    const [end] = (await admin.fetchTopicOffsets(p.topic)).filter((one) => one.partition === 0);
    // kafkajs turns "no such record" into the end of the log.
    emit({ t, o: first.offset === end.high ? -1 : Number(first.offset) });
  }
  await admin.disconnect();
}

async function group(kafka, p) {
  const owned = [];
  let seen = 0;
  const members = [];
  for (let i = 0; i < p.members; i += 1) {
    const member = kafka.consumer({ groupId: p.group, sessionTimeout: 10000,
      heartbeatInterval: 500, maxWaitTimeInMs: 100 });
    member.on(member.events.GROUP_JOIN, ({ payload }) => {
      owned[i] = (payload.memberAssignment[p.topic] || []).length;
    });
    await member.connect();
    await member.subscribe({ topics: [p.topic], fromBeginning: true });
    members.push(member);
  }
  // autoCommit with a threshold commits what eachMessage returned from, and on disconnect.
  await Promise.all(members.map((member, i) => member.run({
    autoCommit: true,
    autoCommitThreshold: 1,
    eachMessage: async ({ partition, message }) => {
      seen += 1;
      emit({ member: i, p: partition, o: Number(message.offset) });
    },
  })));
  const deadline = Date.now() + 90000;
  let ready = false;
  while (Date.now() < deadline && seen < p.count) {
    if (!ready && members.every((_, i) => owned[i] > 0)) {
      ready = true;
      emit({ ready: true });
    }
    await pause(50);
  }
  await pause(500);
  await Promise.all(members.map((member) => member.disconnect()));
}

async function admin(kafka, p) {
  const a = kafka.admin();
  await a.connect();
  const { topic } = p;
  const config = async () => {
    await pause(200);
    const { resources } = await a.describeConfigs({ includeSynonyms: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] });
    return resources[0].configEntries.find((e) => e.configName === 'retention.ms').configValue;
  };
  const alter = (value) => a.alterConfigs({ validateOnly: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic,
      configEntries: [{ name: 'retention.ms', value }] }] });
  const partitions = async () => {
    await pause(500);
    return (await a.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
  };
  const steps = [
    ['create', () => a.createTopics({ topics: [{ topic, numPartitions: 3, replicationFactor: 1,
      configEntries: [{ name: 'retention.ms', value: '86400000' }] }] })],
    ['create again', async () => !(await a.createTopics({ topics: [{ topic }] }))],
    ['list', async () => (await a.listTopics()).includes(topic)],
    ['describe', async () => (await partitions()) === 3],
    ['cluster', async () => (await a.describeCluster()).brokers.length === 1],
    ['config', async () => (await config()) === '86400000'],
    ['alter config', async () => { await alter('3600000'); return (await config()) === '3600000'; }],
    ['bad config', () => alter('soon').then(() => false, (e) => e.type === 'INVALID_CONFIG')],
    ['add partitions', async () => {
      await a.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
      return (await partitions()) === 5;
    }],
    ['delete records', async () => {
      const producer = kafka.producer();
      await producer.connect();
      for (let i = 0; i < 5; i += 1) {
        await producer.send({ topic, messages: [{ partition: 0, value: 'x' }] });
      }
      await producer.disconnect();
      await a.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '3' }] });
      const edge = (await a.fetchTopicOffsets(topic)).find((one) => one.partition === 0);
      return edge.low === '3' && edge.high === '5';
    }],
    ['delete', async () => { await a.deleteTopics({ topics: [topic] }); return true; }],
    ['gone', async () => {
      for (let i = 0; i < 20; i += 1) {
        if (!(await a.listTopics()).includes(topic)) return true;
        await pause(100);
      }
      return false;
    }],
  ];
  for (const [op, action] of steps) {
    try {
      emit({ op, ok: Boolean(await action()) });
    } catch (error) {
      emit({ op, ok: false, why: String(error) });
    }
  }
  await a.disconnect();
}

async function transact(kafka, p) {
  const producer = async () => {
    const made = kafka.producer({
      transactionalId: p.id, idempotent: true, maxInFlightRequests: 1,
      allowAutoTopicCreation: false, retry: { retries: 5 },
    });
    await made.connect();
    return made;
  };
  const first = await producer();
  for (let number = 0; number < 6; number += 1) {
    const t = await first.transaction();
    for (let i = 0; i < 10; i += 1) {
      await t.send({ topic: p.topic, messages: [{ value: `${number}-${i}` }] });
    }
    if (number % 3 === 2) await t.abort();
    else await t.commit();
  }
  const reader = async (group, topic, each) => {
    const c = kafka.consumer({ groupId: group, readUncommitted: false });
    await c.connect();
    await c.subscribe({ topics: [topic], fromBeginning: true });
    let seen = 0;
    await c.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        if (batch.messages.length > 0) await each(c, batch);
        seen += batch.messages.length;
      },
    });
    for (let i = 0; i < 120 && seen < 40; i += 1) await pause(500);
    await pause(1500);
    await c.disconnect();
  };
  await reader(p.group, p.topic, async (c, batch) => {
    const t = await first.transaction();
    for (const m of batch.messages) {
      await t.send({ topic: p.out, messages: [{ value: m.value }] });
    }
    const offset = (BigInt(batch.lastOffset()) + 1n).toString();
    await t.sendOffsets({ consumerGroupId: p.group,
      topics: [{ topic: p.topic, partitions: [{ partition: batch.partition, offset }] }] });
    await t.commit();
    batch.messages.forEach((m) => emit({ v: text(m.value) }));
  });
  const second = await producer();
  await (await second.transaction()).abort().catch(() => {});
  try {
    const t = await first.transaction();
    await t.send({ topic: p.topic, messages: [{ value: 'zombie' }] });
    await t.commit();
    emit({ zombie: 'it committed' });
  } catch (error) {
    const fenced = /epoch|fenced/i.test(String(error));
    emit({ zombie: fenced ? 'fenced' : String(error) });
  }
  await reader(`${p.group}-out`, p.out, async (c, batch) => {
    batch.messages.forEach((m) => emit({ out: text(m.value) }));
  });
  await second.disconnect();
}

(async () => {
  await zstd.init();
  const p = JSON.parse(process.argv[3]);
  const kafka = new Kafka({ clientId: 'adapter', brokers: [p.bootstrap],
    logLevel: logLevel.NOTHING });
  await { produce, consume, lookup, group, admin, transact }[process.argv[2]](kafka, p);
  process.stdout.write('', () => process.exit(0)); // what was written before is flushed first
})().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
