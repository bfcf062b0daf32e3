"""confluent-kafka (librdkafka) behind the adapter protocol of ../README.md."""

import base64
import json
import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource,
                                   NewPartitions, NewTopic, OffsetSpec)


def to_bytes(text):
    return None if text is None else base64.b64decode(text)


def to_text(value):
    return None if value is None else base64.b64encode(value).decode()


def emit(**line):
    print(json.dumps(line), flush=True)


def produce(p):
    producer = Producer({
        "bootstrap.servers": p["bootstrap"], "compression.type": p["codec"],
        "acks": p["acks"], "enable.idempotence": p.get("idempotent", False),
        "message.max.bytes": p.get("max_bytes", 1_000_000), "linger.ms": 50,
        "message.timeout.ms": 30_000})
    results = {}

    def delivered(i):
        def on_delivery(error, message):
            results[i] = ({"error": str(error)} if error else
                          {"p": message.partition(), "o": message.offset()})
        return on_delivery

    count = 0
    for line in sys.stdin:
        r = json.loads(line)
        headers = [(name, to_bytes(value)) for name, value in r["h"]]
        try:
            producer.produce(p["topic"], partition=r["p"], key=to_bytes(r["k"]),
                             value=to_bytes(r["v"]), headers=headers, timestamp=r["t"],
                             on_delivery=delivered(count))
        except KafkaException as error:
            results[count] = {"error": str(error)}
        count += 1
        producer.poll(0)
    producer.flush(40)
    for i in range(count):
        emit(**results.get(i, {"error": "no delivery report"}))


def consumer(p, group="unused", **more):
    return Consumer({"bootstrap.servers": p["bootstrap"], "group.id": group,
                     "auto.offset.reset": "earliest", "enable.auto.commit": False,
                     "fetch.message.max.bytes": 4_000_000, **more})


def consume(p):
    c = consumer(p)
    left = {}
    for topic in p["topics"]:
        for number in c.list_topics(topic, 10).topics[topic].partitions:
            low, high = c.get_watermark_offsets(TopicPartition(topic, number), 10)
            if low < high:
                left[topic, number] = (low, high)
    c.assign([TopicPartition(t, n, low) for (t, n), (low, _) in left.items()])
    while left:
        m = c.poll(10)
        if m is None:
            raise SystemExit(f"nothing for 10 s, still expecting {left}")
        if m.error():
            raise SystemExit(str(m.error()))
        if m.offset() + 1 >= left[m.topic(), m.partition()][1]:
            del left[m.topic(), m.partition()]
        emit(topic=m.topic(), p=m.partition(), o=m.offset(), k=to_text(m.key()),
             v=to_text(m.value()), h=[[n, to_text(v)] for n, v in m.headers() or []],
             t=m.timestamp()[1])
    c.close()


def lookup(p):
    c = consumer(p)
    for t in p["times"]:
        found = c.offsets_for_times([TopicPartition(p["topic"], 0, t)], 10)[0]
        emit(t=t, o=found.offset if found.offset >= 0 else -1)
    c.close()


def group(p):
    members = [consumer(p, p["group"], **{"session.timeout.ms": 10_000})
               for _ in range(p["members"])]
    for m in members:
        m.subscribe([p["topic"]])
    ready, seen, deadline, quiet = False, 0, time.time() + 90, None
    while time.time() < min(deadline, quiet or deadline):
        for i, m in enumerate(members):
            record = m.poll(0.05)
            if record is not None and not record.error():
                seen += 1
                emit(member=i, p=record.partition(), o=record.offset())
        if not ready and all(m.assignment() for m in members):
            ready = True
            emit(ready=True)
        if seen >= p["count"] and quiet is None:
            quiet = time.time() + 0.5
    for m in members:
        if any(position.offset >= 0 for position in m.position(m.assignment())):
            m.commit(asynchronous=False)
    for m in members:
        m.close()


def transact(p):
    def producer():
        made = Producer({"bootstrap.servers": p["bootstrap"], "transactional.id": p["id"]})
        made.init_transactions(30)
        return made

    first = producer()
    for number in range(6):
        first.begin_transaction()
        for i in range(10):
            first.produce(p["topic"], value=f"{number}-{i}")
        if number % 3 == 2:
            first.flush(30)
            first.abort_transaction(30)
        else:
            first.commit_transaction(30)
    committed = {"isolation.level": "read_committed"}
    c = consumer(p, p["group"], **committed)
    c.subscribe([p["topic"]])
    copied, quiet = 0, time.time() + 60
    while time.time() < quiet:
        records = [r for r in c.consume(20, 0.5) if not r.error()]
        if not records:
            continue
        first.begin_transaction()
        for r in records:
            first.produce(p["out"], value=r.value())
            emit(v=to_text(r.value()))
        first.send_offsets_to_transaction(
            c.position(c.assignment()), c.consumer_group_metadata(), 30)
        first.commit_transaction(30)
        copied += len(records)
        if copied >= 40:
            quiet = time.time() + 2
    c.close()
    second = producer()
    try:
        first.begin_transaction()
        first.produce(p["topic"], value="zombie")
        first.commit_transaction(30)
        emit(zombie="it committed")
    except KafkaException as error:
        emit(zombie="fenced" if error.args[0].fatal() else str(error))
    r = consumer(p, p["group"] + "-out", **committed)
    r.subscribe([p["out"]])
    found, quiet = 0, time.time() + 30
    while time.time() < quiet:
        for m in r.consume(20, 0.5):
            if not m.error():
                found += 1
                emit(out=to_text(m.value()))
        if found >= 40:
            quiet = min(quiet, time.time() + 1)
    r.close()
    del second


def admin(p):
    a = AdminClient({"bootstrap.servers": p["bootstrap"]})
    topic = p["topic"]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def done(futures):
        return [f.result(20) for f in futures.values()]

    def partitions():
        time.sleep(0.5)
        return len(a.list_topics(topic, 10).topics[topic].partitions)

    def config(name):
        time.sleep(0.2)
        return done(a.describe_configs([resource]))[0][name].value

    def set_retention(value):
        entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        done(a.incremental_alter_configs([changed]))

    def refused(action, name):
        try:
            action()
        except KafkaException as error:
            return name in str(error)
        return False

    def delete_records():
        producer = Producer({"bootstrap.servers": p["bootstrap"]})
        for _ in range(5):
            producer.produce(topic, b"x", partition=0)
        producer.flush(20)
        done(a.delete_records([TopicPartition(topic, 0, 3)]))
        first, last = (done(a.list_offsets({TopicPartition(topic, 0): spec}))[0].offset
                       for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
        return (first, last) == (3, 5)

    def gone():
        for _ in range(20):
            if topic not in a.list_topics(timeout=10).topics:
                return True
            time.sleep(0.1)
        return False

    new = NewTopic(topic, 3, 1, config={"retention.ms": "86400000"})
    steps = [
        ("create", lambda: done(a.create_topics([new])) is not None),
        ("create again", lambda: refused(lambda: done(a.create_topics([new])),
                                         "TOPIC_ALREADY_EXISTS")),
        ("list", lambda: topic in a.list_topics(timeout=10).topics),
        ("describe", lambda: partitions() == 3),
        ("cluster", lambda: len(a.describe_cluster().result(20).nodes) == 1),
        ("config", lambda: config("retention.ms") == "86400000"),
        ("alter config", lambda: set_retention("3600000") or config("retention.ms") == "3600000"),
        ("bad config", lambda: refused(lambda: set_retention("soon"), "INVALID_CONFIG")),
        ("add partitions", lambda: done(a.create_partitions([NewPartitions(topic, 5)]))
         is not None and partitions() == 5),
        ("delete records", delete_records),
        ("delete", lambda: done(a.delete_topics([topic])) is not None),
        ("gone", gone),
    ]
    for name, action in steps:
        try:
            emit(op=name, ok=bool(action()))
        except Exception as error:  # every refusal is a line of the report
            emit(op=name, ok=False, why=repr(error))


def create(p):
    """Not part of the protocol: topics for the other scenarios, made by one client for all."""
    new = [NewTopic(t["name"], t["partitions"], t.get("replicas", 1), config=t.get("config", {}))
           for t in p["topics"]]
    a = AdminClient({"bootstrap.servers": p["bootstrap"]})
    for name, future in a.create_topics(new).items():
        future.result(20)
        emit(created=name)


VERBS = {"produce": produce, "consume": consume, "lookup": lookup, "group": group,
         "transact": transact, "admin": admin, "create": create}
VERBS[sys.argv[1]](json.loads(sys.argv[2]))
