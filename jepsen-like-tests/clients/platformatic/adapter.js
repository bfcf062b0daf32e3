// @platformatic/kafka behind the adapter protocol of ../README.md. NODE_PATH leads to the packages.

const readline = require('readline');
const {
  Admin, Consumer, FetchIsolationLevels, MessagesStreamFallbackModes, MessagesStreamModes, Producer,
} = require('@platformatic/kafka');

const bytes = (text) => (text === null ? null : Buffer.from(text, 'base64'));
const text = (value) => (value === null || value === undefined ? null
  : Buffer.from(value).toString('base64'));
const emit = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const TOPIC = 2; // a resource's type
const SET = 0; // what is done to a configuration

// An error, and those that led to it.
const said = (error) => (error ? [String(error), error.serverErrorMessage,
  ...[error.cause, ...(error.errors || [])].map(said)].filter(Boolean).join(': ') : '');

// All that a stream gives, one after the other; `stop` ends it.
function follow(stream, each) {
  let done = false;
  const finished = new Promise((resolve, reject) => {
    stream.on('data', (message) => {
      Promise.resolve(each(message)).catch(reject);
    });
    stream.on('error', (error) => (done ? resolve() : reject(error)));
    stream.on('close', resolve);
  });
  return { finished, stop: async () => { done = true; await stream.close(); } };
}

async function produce(common, p) {
  const producer = new Producer({ ...common, idempotent: p.idempotent || false, retries: 2,
    maxRequestSize: p.max_bytes });
  const records = [];
  for await (const line of readline.createInterface({ input: process.stdin })) {
    records.push(JSON.parse(line));
  }
  // One answer per request and partition: runs of one partition go together, in order.
  for (let i = 0; i < records.length;) {
    let j = i;
    while (j < records.length && records[j].p === records[i].p) j += 1;
    const messages = records.slice(i, j).map((r) => ({
      topic: p.topic, partition: r.p, key: bytes(r.k), value: bytes(r.v), timestamp: BigInt(r.t),
      headers: new Map(r.h.map(([name, value]) => [Buffer.from(name), bytes(value)])),
    }));
    try {
      const { offsets } = await producer.send({ messages, compression: p.codec,
        acks: p.acks === 'all' ? -1 : Number(p.acks) });
      messages.forEach((m, k) => emit({
        p: m.partition, o: offsets ? Number(offsets[0].offset) + k : -1,
      }));
    } catch (error) {
      messages.forEach(() => emit({ error: said(error) }));
    }
    i = j;
  }
  await producer.close();
}

// Where each partition begins and ends: [topic, partition, low, high].
async function edges(consumer, topics) {
  const [low, high] = await Promise.all([-2n, -1n].map((timestamp) =>
    consumer.listOffsets({ topics, timestamp })));
  return topics.flatMap((topic) => high.get(topic).map((end, partition) =>
    [topic, partition, low.get(topic)[partition], end]));
}

async function consume(common, p) {
  const consumer = new Consumer({ ...common, groupId: `platformatic-${process.pid}-${Date.now()}`,
    autocommit: false, maxWaitTime: 100, maxBytesPerPartition: 4000000 });
  const left = new Map();
  for (const [topic, partition, low, high] of await edges(consumer, p.topics)) {
    if (low !== high) left.set(`${topic}/${partition}`, high);
  }
  const stream = await consumer.consume({ topics: p.topics, mode: MessagesStreamModes.EARLIEST });
  const late = setTimeout(() => stream.destroy(new Error(`still expecting ${[...left.keys()]}`)),
    60000);
  const reading = follow(stream, async (m) => {
    emit({ topic: m.topic, p: m.partition, o: Number(m.offset), k: text(m.key), v: text(m.value),
      h: m.headerEntries.map(([name, value]) => [name.toString(), text(value)]),
      t: Number(m.timestamp) });
    const place = `${m.topic}/${m.partition}`;
    if (left.has(place) && m.offset + 1n >= left.get(place)) left.delete(place);
    if (left.size === 0) await reading.stop();
  });
  await reading.finished;
  clearTimeout(late);
  await consumer.close(true);
}

async function lookup(common, p) {
  const admin = new Admin(common);
  for (const t of p.times) {
    const [found] = await admin.listOffsets({ topics: [{ name: p.topic,
      partitions: [{ partitionIndex: 0, timestamp: BigInt(t) }] }] });
    emit({ t, o: Number(found.partitions[0].offset) });
  }
  await admin.close();
}

async function group(common, p) {
  let seen = 0;
  const members = [];
  const last = new Map();
  for (let i = 0; i < p.members; i += 1) {
    const member = new Consumer({ ...common, groupId: p.group, autocommit: false, maxWaitTime: 100,
      sessionTimeout: 10000, rebalanceTimeout: 10000, heartbeatInterval: 500 });
    member.done = member.consume({ topics: [p.topic], mode: MessagesStreamModes.COMMITTED,
      fallbackMode: MessagesStreamFallbackModes.EARLIEST }).then((stream) => {
      member.reading = follow(stream, (m) => {
        seen += 1;
        last.set(m.partition, m);
        emit({ member: i, p: m.partition, o: Number(m.offset) });
      });
    });
    members.push(member);
  }
  await Promise.all(members.map((member) => member.done));
  const owns = (member) => (member.assignments || []).some((it) => it.partitions.length > 0);
  const deadline = Date.now() + 90000;
  let ready = false;
  while (Date.now() < deadline && seen < p.count) {
    if (!ready && members.every(owns)) {
      ready = true;
      emit({ ready: true });
    }
    await pause(50);
  }
  await pause(500);
  for (const m of last.values()) await m.commit();
  for (const member of members) await member.close(true);
}

async function admin(common, p) {
  const a = new Admin(common);
  const { topic } = p;
  const resource = { resourceType: TOPIC, resourceName: topic };
  const config = async () => {
    await pause(200);
    const [found] = await a.describeConfigs({ resources: [resource] });
    return found.configs.find((e) => e.name === 'retention.ms').value;
  };
  const alter = (value) => a.incrementalAlterConfigs({ resources: [{ ...resource,
    configs: [{ name: 'retention.ms', configOperation: SET, value }] }] });
  const partitions = async () => {
    await pause(500);
    const found = await a.metadata({ topics: [topic], forceUpdate: true });
    return found.topics.get(topic).partitionsCount;
  };
  const refused = (promise, name) => promise.then(() => false, (e) => said(e).includes(name));
  const end = async (timestamp) => {
    const [found] = await a.listOffsets({ topics: [{ name: topic,
      partitions: [{ partitionIndex: 0, timestamp }] }] });
    return found.partitions[0].offset;
  };
  const steps = [
    ['create', () => a.createTopics({ topics: [topic], partitions: 3, replicas: 1,
      configs: [{ name: 'retention.ms', value: '86400000' }] })],
    ['create again', () => refused(a.createTopics({ topics: [topic], partitions: 3, replicas: 1 }),
      'already exists')],
    ['list', async () => (await a.listTopics()).includes(topic)],
    ['describe', async () => (await partitions()) === 3],
    ['cluster', async () => (await a.metadata({ topics: [] })).brokers.size === 1],
    ['config', async () => (await config()) === '86400000'],
    ['alter config', async () => { await alter('3600000'); return (await config()) === '3600000'; }],
    ['bad config', () => refused(alter('soon'), 'Configuration is invalid')],
    ['add partitions', async () => {
      await a.createPartitions({ topics: [{ name: topic, count: 5, assignments: null }] });
      return (await partitions()) === 5;
    }],
    ['delete records', async () => {
      const producer = new Producer(common);
      for (let i = 0; i < 5; i += 1) {
        await producer.send({ messages: [{ topic, partition: 0, value: Buffer.from('x') }] });
      }
      await producer.close();
      await a.deleteRecords({ topics: [{ name: topic,
        partitions: [{ partition: 0, offset: 3n }] }] });
      return (await end(-2n)) === 3n && (await end(-1n)) === 5n;
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
      emit({ op, ok: false, why: said(error) });
    }
  }
  await a.close();
}

async function transact(common, p) {
  // Left to itself it claims to be producer 0 of epoch 0, and is refused if it is not (2.12.1).
  const made = (id) => new Producer({ ...common, idempotent: true, transactionalId: id,
    producerId: -1n, producerEpoch: -1 });
  const message = (topic, value) => ({ topic, value: Buffer.from(value) });
  const first = made(p.id);
  // Its reader knows of one aborted transaction of each producer in an answer (2.12.1), so the second
  // is another producer's.
  const other = made(`${p.id}-other`);
  for (let number = 0; number < 6; number += 1) {
    const t = await (number < 5 ? first : other).beginTransaction();
    for (let i = 0; i < 10; i += 1) {
      await t.send({ messages: [message(p.topic, `${number}-${i}`)] });
    }
    if (number % 3 === 2) await t.abort();
    else await t.commit();
  }
  // Reads what is committed, as a member of a group: some messages at a time.
  const reader = async (groupId, topic, each) => {
    const c = new Consumer({ ...common, groupId, autocommit: false, maxWaitTime: 100,
      isolationLevel: FetchIsolationLevels.READ_COMMITTED });
    const stream = await c.consume({ topics: [topic], mode: MessagesStreamModes.COMMITTED,
      fallbackMode: MessagesStreamFallbackModes.EARLIEST });
    let waiting = [];
    const reading = follow(stream, (m) => { waiting.push(m); });
    let seen = 0;
    let quiet = Date.now() + 60000;
    while (Date.now() < quiet) {
      await pause(100);
      const messages = waiting;
      waiting = [];
      if (messages.length === 0) continue;
      await each(c, messages);
      seen += messages.length;
      if (seen >= 40) quiet = Date.now() + 1500;
    }
    await reading.stop();
    await c.close(true);
  };
  await reader(p.group, p.topic, async (c, messages) => {
    const t = await first.beginTransaction();
    await t.addConsumer(c);
    for (const m of messages) await t.send({ messages: [message(p.out, m.value)] });
    const last = new Map(messages.map((m) => [m.partition, m]));
    for (const m of last.values()) await t.addOffset(m);
    await t.commit();
    messages.forEach((m) => emit({ v: text(m.value) }));
  });
  const second = made(p.id);
  await (await second.beginTransaction()).abort().catch(() => {});
  try {
    const t = await first.beginTransaction();
    await t.send({ messages: [message(p.topic, 'zombie')] });
    await t.commit();
    emit({ zombie: 'it committed' });
  } catch (error) {
    emit({ zombie: /epoch|fence/i.test(said(error)) ? 'fenced' : said(error) });
  }
  await reader(`${p.group}-out`, p.out, async (c, messages) => {
    messages.forEach((m) => emit({ out: text(m.value) }));
  });
}

(async () => {
  const p = JSON.parse(process.argv[3]);
  const common = { clientId: 'adapter', bootstrapBrokers: p.bootstrap.split(',') };
  await { produce, consume, lookup, group, admin, transact }[process.argv[2]](common, p);
  process.stdout.write('', () => process.exit(0)); // what was written before is flushed first
})().catch((error) => {
  process.stderr.write(`${error.stack}\n${said(error)}\n`);
  process.exit(1);
});
