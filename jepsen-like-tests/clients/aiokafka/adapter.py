"""aiokafka behind the adapter protocol of ../README.md."""

import asyncio
import base64
import json
import sys
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import InvalidProducerEpoch, ProducerFenced
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType


def to_bytes(text):
    return None if text is None else base64.b64decode(text)


def to_text(value):
    return None if value is None else base64.b64encode(value).decode()


def emit(**line):
    print(json.dumps(line), flush=True)


async def produce(p):
    acks = "all" if p["acks"] == "all" else int(p["acks"])
    producer = AIOKafkaProducer(
        bootstrap_servers=p["bootstrap"], acks=acks, linger_ms=50,
        compression_type=None if p["codec"] == "none" else p["codec"],
        enable_idempotence=p.get("idempotent", False),
        max_request_size=p.get("max_bytes", 1_048_576),
        max_batch_size=p.get("max_bytes", 16_384))
    await producer.start()
    sent = []
    for line in sys.stdin:
        r = json.loads(line)
        headers = [(name, to_bytes(value)) for name, value in r["h"]]
        try:
            sent.append(await producer.send(
                p["topic"], to_bytes(r["v"]), to_bytes(r["k"]), partition=r["p"],
                timestamp_ms=r["t"], headers=headers))
        except Exception as error:
            sent.append(error)
    for one in sent:
        try:
            if isinstance(one, Exception):
                raise one
            m = await one
            emit(p=m.partition if m else None, o=m.offset if m else -1)
        except Exception as error:
            emit(error=repr(error))
    await producer.stop()


def consumer(p, *topics, **more):
    return AIOKafkaConsumer(*topics, bootstrap_servers=p["bootstrap"], enable_auto_commit=False,
                            auto_offset_reset="earliest", max_partition_fetch_bytes=4_000_000,
                            **more)


async def consume(p):
    c = consumer(p)
    await c.start()
    every = []
    for topic in p["topics"]:
        await c._client.force_metadata_update()
        numbers = c.partitions_for_topic(topic)
        if not numbers:
            c._client.add_topic(topic)
            await c._client.force_metadata_update()
            numbers = c.partitions_for_topic(topic)
        every += [TopicPartition(topic, number) for number in numbers]
    c.assign(every)
    await c.seek_to_beginning(*every)
    ends = await c.end_offsets(every)
    starts = await c.beginning_offsets(every)
    left = {tp for tp in every if starts[tp] < ends[tp]}
    deadline = time.time() + 60
    while left and time.time() < deadline:
        for tp, records in (await c.getmany(timeout_ms=500)).items():
            for r in records:
                emit(topic=r.topic, p=r.partition, o=r.offset, k=to_text(r.key),
                     v=to_text(r.value), h=[[n, to_text(v)] for n, v in r.headers],
                     t=r.timestamp)
            if records[-1].offset + 1 >= ends[tp]:
                left.discard(tp)
    await c.stop()
    if left:
        raise SystemExit(f"still expecting {left}")


async def lookup(p):
    c = consumer(p)
    await c.start()
    tp = TopicPartition(p["topic"], 0)
    for t in p["times"]:
        found = (await c.offsets_for_times({tp: t}))[tp]
        emit(t=t, o=found.offset if found else -1)
    await c.stop()


async def group(p):
    members = [consumer(p, p["topic"], group_id=p["group"], session_timeout_ms=10_000,
                        heartbeat_interval_ms=500) for _ in range(p["members"])]
    await asyncio.gather(*(m.start() for m in members))
    ready, seen, deadline, quiet = False, 0, time.time() + 90, None
    while time.time() < min(deadline, quiet or deadline):
        for i, m in enumerate(members):
            for records in (await m.getmany(timeout_ms=50)).values():
                for r in records:
                    seen += 1
                    emit(member=i, p=r.partition, o=r.offset)
        if not ready and all(m.assignment() for m in members):
            ready = True
            emit(ready=True)
        if seen >= p["count"] and quiet is None:
            quiet = time.time() + 0.5
    for m in members:
        if m.assignment():
            await m.commit()
    for m in members:
        await m.stop()


async def admin(p):
    a = AIOKafkaAdminClient(bootstrap_servers=p["bootstrap"])
    await a.start()
    topic = p["topic"]
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)

    def checked(response):
        for attribute in ("topic_errors", "topic_error_codes", "topic_partition_errors"):
            for one in getattr(response, attribute, []):
                assert one[1] == 0, f"{attribute}: {one}"
        for one in getattr(response, "resources", []):
            assert one[0] == 0, one
        return True

    async def create():
        new = NewTopic(topic, 3, 1, topic_configs={"retention.ms": "86400000"})
        return checked(await a.create_topics([new]))

    async def create_again():
        response = await a.create_topics([NewTopic(topic, 3, 1)])
        return response.topic_errors[0][1] == 36

    async def partitions():
        await asyncio.sleep(0.5)
        return len((await a.describe_topics([topic]))[0]["partitions"])

    async def config():
        await asyncio.sleep(0.2)
        resources = (await a.describe_configs([resource]))[0].resources
        return {entry[0]: entry[1] for entry in resources[0][4]}["retention.ms"]

    async def alter():
        changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "3600000"})
        for response in await a.alter_configs([changed]):
            checked(response)
        return await config() == "3600000"

    async def add_partitions():
        checked(await a.create_partitions({topic: NewPartitions(5)}))
        return await partitions() == 5

    async def delete_records():
        producer = AIOKafkaProducer(bootstrap_servers=p["bootstrap"])
        await producer.start()
        for _ in range(5):
            await producer.send_and_wait(topic, b"x", partition=0)
        await producer.stop()
        tp = TopicPartition(topic, 0)
        await a.delete_records({tp: RecordsToDelete(3)})
        c = consumer(p)
        await c.start()
        edges = (await c.beginning_offsets([tp]))[tp], (await c.end_offsets([tp]))[tp]
        await c.stop()
        return edges == (3, 5)

    async def delete():
        return checked(await a.delete_topics([topic]))

    async def gone():
        for _ in range(20):
            if topic not in await a.list_topics():
                return True
            await asyncio.sleep(0.1)
        return False

    async def listed():
        return topic in await a.list_topics()

    async def described():
        return await partitions() == 3

    async def cluster():
        return len((await a.describe_cluster())["brokers"]) == 1

    async def configured():
        return await config() == "86400000"

    for name, action in [("create", create), ("create again", create_again), ("list", listed),
                         ("describe", described), ("cluster", cluster), ("config", configured),
                         ("alter config", alter), ("add partitions", add_partitions),
                         ("delete records", delete_records), ("delete", delete), ("gone", gone)]:
        try:
            emit(op=name, ok=bool(await action()))
        except Exception as error:  # every refusal is a line of the report
            emit(op=name, ok=False, why=repr(error))
    await a.close()


async def transact(p):
    async def producer():
        made = AIOKafkaProducer(bootstrap_servers=p["bootstrap"], transactional_id=p["id"])
        await made.start()
        return made

    first = await producer()
    for number in range(6):
        await first.begin_transaction()
        for i in range(10):
            await first.send_and_wait(p["topic"], f"{number}-{i}".encode())
        if number % 3 == 2:
            await first.abort_transaction()
        else:
            await first.commit_transaction()
    committed = {"isolation_level": "read_committed"}
    c = consumer(p, p["topic"], group_id=p["group"], **committed)
    await c.start()
    copied, quiet = 0, time.time() + 60
    while time.time() < quiet:
        found = {tp: r for tp, r in (await c.getmany(timeout_ms=500)).items() if r}
        if not found:
            continue
        await first.begin_transaction()
        for records in found.values():
            for r in records:
                await first.send(p["out"], r.value)
                emit(v=to_text(r.value))
                copied += 1
        await first.send_offsets_to_transaction(
            {tp: records[-1].offset + 1 for tp, records in found.items()}, p["group"])
        await first.commit_transaction()
        if copied >= 40:
            quiet = time.time() + 2
    await c.stop()
    second = await producer()
    try:
        await first.begin_transaction()
        await first.send_and_wait(p["topic"], b"zombie")
        await first.commit_transaction()
        emit(zombie="it committed")
    except (ProducerFenced, InvalidProducerEpoch):
        emit(zombie="fenced")
    r = consumer(p, p["out"], group_id=p["group"] + "-out", **committed)
    await r.start()
    found, quiet = 0, time.time() + 30
    while time.time() < quiet:
        for records in (await r.getmany(timeout_ms=500)).values():
            for m in records:
                found += 1
                emit(out=to_text(m.value))
        if found >= 40:
            quiet = min(quiet, time.time() + 1)
    await r.stop()
    await second.stop()


VERBS = {"produce": produce, "consume": consume, "lookup": lookup, "group": group, "admin": admin,
         "transact": transact}
asyncio.run(VERBS[sys.argv[1]](json.loads(sys.argv[2])))
