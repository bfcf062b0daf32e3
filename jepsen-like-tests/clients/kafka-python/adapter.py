"""kafka-python behind the adapter protocol of ../README.md."""

import base64
import json
import sys
import threading
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic


def to_bytes(text):
    return None if text is None else base64.b64decode(text)


def to_text(value):
    return None if value is None else base64.b64encode(value).decode()


def emit(**line):
    print(json.dumps(line), flush=True)


def produce(p):
    producer = KafkaProducer(
        bootstrap_servers=p["bootstrap"], linger_ms=50,
        acks="all" if p["acks"] == "all" else int(p["acks"]),
        compression_type=None if p["codec"] == "none" else p["codec"],
        enable_idempotence=p.get("idempotent", False),
        max_request_size=p.get("max_bytes", 1_048_576))
    sent = []
    for line in sys.stdin:
        r = json.loads(line)
        try:
            sent.append(producer.send(
                p["topic"], to_bytes(r["v"]), to_bytes(r["k"]), partition=r["p"],
                timestamp_ms=r["t"], headers=[(n, to_bytes(v)) for n, v in r["h"]]))
        except Exception as error:
            sent.append(error)
    producer.flush(30)
    for one in sent:
        try:
            if isinstance(one, Exception):
                raise one
            m = one.get(30)
            emit(p=m.partition, o=m.offset)
        except Exception as error:
            emit(error=repr(error))
    producer.close()


def consumer(p, *topics, **more):
    return KafkaConsumer(*topics, bootstrap_servers=p["bootstrap"], enable_auto_commit=False,
                         auto_offset_reset="earliest", max_partition_fetch_bytes=4_000_000,
                         **more)


def consume(p):
    c = consumer(p)
    every = [TopicPartition(topic, number)
             for topic in p["topics"] for number in c.partitions_for_topic(topic)]
    c.assign(every)
    c.seek_to_beginning(*every)
    starts, ends = c.beginning_offsets(every), c.end_offsets(every)
    left = {tp for tp in every if starts[tp] < ends[tp]}
    deadline = time.time() + 60
    while left and time.time() < deadline:
        for tp, records in c.poll(500).items():
            for r in records:
                emit(topic=r.topic, p=r.partition, o=r.offset, k=to_text(r.key),
                     v=to_text(r.value), h=[[n, to_text(v)] for n, v in r.headers],
                     t=r.timestamp)
            if records[-1].offset + 1 >= ends[tp]:
                left.discard(tp)
    c.close()
    if left:
        raise SystemExit(f"still expecting {left}")


def lookup(p):
    c = consumer(p)
    tp = TopicPartition(p["topic"], 0)
    for t in p["times"]:
        found = c.offsets_for_times({tp: t})[tp]
        emit(t=t, o=found.offset if found else -1)
    c.close()


def group(p):
    """A thread per member, with long polls: when a poll of kafka-python 3.0.12 ends in the midst
    of a join, the member sometimes never takes up the assignment that it was given (seen in its
    own log, also with Apache Kafka)."""
    state = {"seen": 0, "owned": [False] * p["members"], "stop": False}
    lock = threading.Lock()

    def work(i):
        m = consumer(p, p["topic"], group_id=p["group"], session_timeout_ms=10_000,
                     heartbeat_interval_ms=500)
        while not state["stop"]:
            found = m.poll(3000)
            with lock:
                state["owned"][i] = bool(m.assignment())
                for records in found.values():
                    for r in records:
                        state["seen"] += 1
                        emit(member=i, p=r.partition, o=r.offset)
        if m.assignment():
            m.commit()
        stopped.wait()  # nobody leaves, and so moves partitions, before everybody has committed
        m.close(autocommit=False)

    stopped = threading.Barrier(p["members"])
    threads = [threading.Thread(target=work, args=(i,)) for i in range(p["members"])]
    for thread in threads:
        thread.start()
    ready, deadline = False, time.time() + 90
    while time.time() < deadline and state["seen"] < p["count"]:
        with lock:
            if not ready and all(state["owned"]):
                ready = True
                emit(ready=True)
        time.sleep(0.02)
    time.sleep(0.5)
    state["stop"] = True
    for thread in threads:
        thread.join()


def admin(p):
    a = KafkaAdminClient(bootstrap_servers=p["bootstrap"])
    topic = p["topic"]

    def partitions():
        time.sleep(0.5)
        return len(a.describe_topics([topic])[0]["partitions"])

    def config():
        time.sleep(0.2)
        found = a.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        text = json.dumps(found, default=lambda o: getattr(o, "__dict__", repr(o)))
        return found, text

    def retention(value):
        return value in config()[1]

    def alter(value):
        a.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic,
                                        {"retention.ms": value})])
        return retention(value)

    def refused(action, name):
        try:
            action()
        except Exception as error:
            return name in repr(error)
        return False

    def create():
        return a.create_topics([NewTopic(topic, 3, 1, topic_configs={"retention.ms": "86400000"})])

    def delete_records():
        producer = KafkaProducer(bootstrap_servers=p["bootstrap"])
        for _ in range(5):
            producer.send(topic, b"x", partition=0).get(20)
        producer.close()
        tp = TopicPartition(topic, 0)
        a.delete_records({tp: 3})
        c = consumer(p)
        edges = c.beginning_offsets([tp])[tp], c.end_offsets([tp])[tp]
        c.close()
        return edges == (3, 5)

    def gone():
        for _ in range(20):
            if topic not in a.list_topics():
                return True
            time.sleep(0.1)
        return False

    steps = [
        ("create", lambda: create() is not None),
        ("create again", lambda: refused(create, "TopicAlreadyExists")),
        ("list", lambda: topic in a.list_topics()),
        ("describe", lambda: partitions() == 3),
        ("cluster", lambda: len(a.describe_cluster()["brokers"]) == 1),
        ("config", lambda: retention("86400000")),
        ("alter config", lambda: alter("3600000")),
        ("add partitions", lambda: a.create_partitions({topic: NewPartitions(5)}) is not None
         and partitions() == 5),
        ("delete records", delete_records),
        ("delete", lambda: a.delete_topics([topic]) is not None),
        ("gone", gone),
    ]
    for name, action in steps:
        try:
            emit(op=name, ok=bool(action()))
        except Exception as error:  # every refusal is a line of the report
            emit(op=name, ok=False, why=repr(error))
    a.close()


def transact(p):
    def producer():
        made = KafkaProducer(bootstrap_servers=p["bootstrap"], transactional_id=p["id"])
        made.init_transactions()
        return made

    first = producer()
    for number in range(6):
        first.begin_transaction()
        for i in range(10):
            first.send(p["topic"], f"{number}-{i}".encode())
        if number % 3 == 2:
            first.flush()
            first.abort_transaction()
        else:
            first.commit_transaction()
    committed = {"isolation_level": "read_committed"}
    c = consumer(p, p["topic"], group_id=p["group"], **committed)
    copied, quiet = 0, time.time() + 60
    while time.time() < quiet:
        found = {tp: r for tp, r in c.poll(timeout_ms=500).items() if r}
        if not found:
            continue
        first.begin_transaction()
        for records in found.values():
            for r in records:
                first.send(p["out"], r.value)
                emit(v=to_text(r.value))
                copied += 1
        first.send_offsets_to_transaction(
            {tp: OffsetAndMetadata(r[-1].offset + 1, "", -1) for tp, r in found.items()},
            c.group_metadata())
        first.commit_transaction()
        if copied >= 40:
            quiet = time.time() + 2
    c.close()
    second = producer()
    try:
        first.begin_transaction()
        first.send(p["topic"], b"zombie")
        first.commit_transaction()
        emit(zombie="it committed")
    except KafkaError as error:
        fenced = isinstance(error, (ProducerFencedError, InvalidProducerEpochError))
        emit(zombie="fenced" if fenced else repr(error))
    r = consumer(p, p["out"], group_id=p["group"] + "-out", **committed)
    found, quiet = 0, time.time() + 30
    while time.time() < quiet:
        for records in r.poll(timeout_ms=500).values():
            for m in records:
                found += 1
                emit(out=to_text(m.value))
        if found >= 40:
            quiet = min(quiet, time.time() + 1)
    r.close()
    second.close()


VERBS = {"produce": produce, "consume": consume, "lookup": lookup, "group": group, "admin": admin,
         "transact": transact}
VERBS[sys.argv[1]](json.loads(sys.argv[2]))
