"""Keyed records by librdkafka: a filler that keeps a ledger of the last record of each key, a judge
that holds a compacted topic against it, and a producer that keeps a rate and notes each latency.

    keyed.py BOOTSTRAP TOPIC RECORDS_PER_SECOND BYTES FILE

runs the last of them, in a process of its own, until standard input ends: FILE then has two doubles
a record, when it was due (seconds since 1970) and how long after that it was acknowledged. So a
stall is not forgiven to the records that waited behind it.
"""

import array
import random
import sys
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

# A batch of Java's producer has 16 KiB; librdkafka fills no faster than five batches a round trip.
BATCH_BYTES = 64 << 10
NUMBER_BYTES = 16


class Ledger:
    """What a topic of one partition must show for each key: the number of its last record."""

    def __init__(self, keys, value_bytes):
        self.value_bytes = value_bytes
        self.last = array.array("q", [-1]) * keys
        self.records = 0
        self.filling = bytes(random.Random(7).choices(range(65, 91), k=value_bytes - NUMBER_BYTES))

    def key(self, place):
        return b"key-%012d" % place

    def value(self, number):
        return b"%016d" % number + self.filling

    def distinct(self):
        return sum(1 for number in self.last if number >= 0)


def refuse(error, _message):
    if error:
        raise SystemExit(f"a record was refused: {error}")


def fill(bootstrap, topic, ledger, records, seed=5):
    """Writes so many records, their keys drawn evenly. Each of them is acknowledged in the end."""
    producer = Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
        "batch.size": BATCH_BYTES, "queue.buffering.max.kbytes": 65536,
        # Whether each came to its offset, the judge sees.
        "delivery.report.only.error": True})
    rng, keys = random.Random(seed), len(ledger.last)
    for number in range(ledger.records, ledger.records + records):
        place = int(rng.random() * keys)
        ledger.last[place] = number
        while True:
            try:
                producer.produce(topic, ledger.value(number), ledger.key(place), partition=0,
                                 on_delivery=refuse)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 64 == 0:
            producer.poll(0)
    ledger.records += records
    if producer.flush(120) > 0:
        raise SystemExit("not all records were acknowledged")


def append(bootstrap, topic, key):
    """One record more, which the ledger does not know: a segment that is full of age is closed."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(topic, b"", key, partition=0, on_delivery=refuse)
    if producer.flush(60) > 0:
        raise SystemExit("the last record was not acknowledged")


class Found:
    """What a reader saw of a topic, and what is wrong with it."""

    def __init__(self):
        self.records = self.surplus = 0
        self.wrong = []


def judge(bootstrap, topic, ledger):
    """Reads the topic from its start, as any client does."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False,
        "auto.offset.reset": "error", "enable.partition.eof": False, "check.crcs": True,
        "queued.max.messages.kbytes": 65536})
    partition = TopicPartition(topic, 0, 0)
    low, high = consumer.get_watermark_offsets(partition, 30)
    found, seen = Found(), array.array("q", [-1]) * len(ledger.last)
    if low != 0:
        found.wrong.append(f"the log begins at {low}")
    consumer.assign([partition])
    position, heard = 0, time.monotonic()
    # Everything written by the ledger, and the one record that closed the last segment.
    while position < high:
        for message in consumer.consume(5_000, 1.0):
            if message.error():
                raise SystemExit(f"the judge cannot read: {message.error()}")
            heard = time.monotonic()
            if message.offset() < position:
                found.wrong.append(f"offset {message.offset()} came after {position - 1}")
            position = message.offset() + 1
            if message.offset() < ledger.records:
                look(message, ledger, seen, found)
        if time.monotonic() - heard > 60:
            raise SystemExit(f"nothing came for 60 s at {position} of {high}")
    consumer.close()
    if high != ledger.records + 1:
        found.wrong.append(f"the log ends at {high}, {ledger.records + 1} records were written")
    for place, (number, expected) in enumerate(zip(seen, ledger.last)):
        if number != expected:
            found.wrong.append(f"key {place}: record {number}, not {expected}")
    return found


def look(message, ledger, seen, found):
    found.records += 1
    key, value, offset = message.key(), message.value(), message.offset()
    place = int(key[4:]) if key and key.startswith(b"key-") else len(seen)
    # One producer, one partition, nothing refused: the number of a record is its offset.
    if place >= len(seen) or value != ledger.value(offset):
        found.wrong.append(f"offset {offset} has not the record that was written there")
        return
    found.surplus += seen[place] >= 0
    seen[place] = offset


def keep_rate(bootstrap, topic, rate, size, path):
    # Acknowledgements are noted as they come, not when the sender has finished its turn.
    sys.setswitchinterval(0.0002)
    producer = Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0,
        "queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 2_000_000})
    value, noted, over = b"x" * size, array.array("d"), threading.Event()
    refused = []

    def delivered(due):
        def on_delivery(error, _message):
            if error:
                refused.append(error)
            noted.extend((due, time.time() - due))
        return on_delivery

    def listen():
        while not over.is_set() or len(producer):
            producer.poll(0.1)

    def wait_for_end():
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    listener = threading.Thread(target=listen)
    listener.start()
    start, number = time.time(), 0
    while not over.is_set():
        due = start + number / rate
        left = due - time.time()
        if left > 0:
            time.sleep(left)
        producer.produce(topic, value, on_delivery=delivered(due))
        number += 1
    listener.join(120)
    if refused or listener.is_alive():
        raise SystemExit(f"{len(refused)} records were refused, {len(producer)} not answered: "
                         f"{refused[:1]}")
    with open(path, "wb") as file:
        noted.tofile(file)


if __name__ == "__main__":
    keep_rate(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
