"""One client of `run.sh exactly-once`, by librdkafka: whoever reads, and with --older whoever writes
(main.go writes otherwise, by franz-go). It writes down what it does before it does it, and what it
is told once it is told, so that whoever kills it can read what it knew.

    client.py produce|copy BOOTSTRAP FILE NUMBER ID [PLANTED]   until it is killed, or its life ends
    client.py read BOOTSTRAP FILE NUMBER                        until it is killed
    client.py last BOOTSTRAP FILE                               what stands there at the end

A process is one life of its transactional id: what it cannot go on from ends it, and the harness
starts another. FILE gets a line of JSON for each event (src/exactly_once/told.rs reads them): the
monotonic clock in nanoseconds, which all processes of a machine share, the event, and what belongs
to it. A copier takes offsets from the records that it has copied, and its place in the group from
the moment when it was given its partitions: both are the application's duty (KIP-447).

PLANTED is a bug that the checkers must find: `offsets-apart` commits offsets outside of the
transaction, `offsets-early` before it, `half-abort` calls a transaction aborted that it commits.
"""

import json
import os
import random
import signal
import sys
import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition

INPUT, OUTPUT, GROUP = "x0", "x1", "xg"
PARTITIONS = 4
# A transaction may last so long; who stands still for longer is shut out.
TIMEOUT_MS = 8000
# For each call that may be repeated, and for all of them together.
CALL, PATIENCE = 5, 60
RECORDS_MAX = 15

leaving = False


def leave(*_):
    global leaving
    leaving = True


class Log:
    """Each event is one write: what was written before a SIGKILL is there."""

    def __init__(self, name):
        self.file = os.open(name, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def __call__(self, *event):
        line = json.dumps([time.monotonic_ns(), *event], separators=(",", ":")) + "\n"
        os.write(self.file, line.encode())


def common(bootstrap):
    return {
        "bootstrap.servers": bootstrap,
        "socket.connection.setup.timeout.ms": 2000,
        "socket.timeout.ms": 6000,
        "reconnect.backoff.max.ms": 1000,
        "log_level": 2,
    }


def end_of_life(told, why):
    """The next one begins with InitProducerId."""
    told("leaves", why)
    os._exit(0)


def patiently(call):
    """Calls until it is done; an error that does not ask for another call is raised."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > until:
                raise


class Transactions:
    """A transactional id from one InitProducerId to the end of the process."""

    def __init__(self, bootstrap, told, number, name, planted):
        self.told, self.number, self.planted, self.values = told, number, planted, 0
        self.producer = Producer({
            **common(bootstrap),
            "transactional.id": name,
            "transaction.timeout.ms": TIMEOUT_MS,
            "linger.ms": 2,
        })
        told("init", name)
        try:
            patiently(lambda: self.producer.init_transactions(CALL))
        except KafkaException as error:
            end_of_life(told, f"cannot begin: {error}")
        told("begun")

    def value(self):
        """No two processes have the same number."""
        self.values += 1
        return (self.number << 32) | self.values

    def send(self, records):
        """[topic, partition, value, the value that it is a copy of] each."""
        self.told("begin")
        self.producer.begin_transaction()
        self.told("send", records)
        stored = []

        def delivered(error, message):
            if error is None:
                place = [message.topic(), message.partition()]
                stored.append([*place, int(message.value()), message.offset()])

        for topic, partition, value, _ in records:
            self.producer.produce(topic, str(value).encode(), partition=partition,
                                  on_delivery=delivered)
        self.producer.flush(CALL)
        self.told("stored", stored)

    def abort(self):
        try:
            patiently(lambda: self.producer.abort_transaction(CALL))
        except KafkaException as error:
            end_of_life(self.told, f"cannot abort: {error}")
        self.told("end", "aborted")

    def commit(self):
        """Whether it is committed; if not, it is aborted."""
        if self.planted == "half-abort" and random.random() < 0.05:
            self.told("end", "aborted")
            patiently(lambda: self.producer.commit_transaction(CALL))
            return False
        self.told("ask")
        try:
            patiently(lambda: self.producer.commit_transaction(CALL))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self.abort()
                return False
            end_of_life(self.told, f"does not know whether it has committed: {error}")
        self.told("end", "committed")
        return True

    def offsets(self, offsets, member):
        """Whether they are in the transaction."""
        call = self.producer.send_offsets_to_transaction
        # librdkafka 2.16 keeps no time while the group's coordinator is down (its issue 5456), and
        # may not come back at all.
        late = threading.Timer(PATIENCE, end_of_life, (self.told, "librdkafka does not come back"))
        late.start()
        try:
            patiently(lambda: call(offsets, member, CALL))
            return True
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                return False
            end_of_life(self.told, f"cannot put offsets into the transaction: {error}")
        finally:
            late.cancel()


def produce(bootstrap, told, number, name, planted=None):
    made = Transactions(bootstrap, told, number, name, planted)
    while not leaving:
        time.sleep(random.uniform(0, 0.4))
        count = random.randint(1, RECORDS_MAX)
        records = [[INPUT, random.randrange(PARTITIONS), made.value(), None] for _ in range(count)]
        try:
            made.send(records)
        except KafkaException as error:
            end_of_life(told, f"cannot send: {error}")
        linger()
        if random.random() < 0.01:
            end_of_life(told, "it leaves a transaction open")
        if random.random() < 0.12:
            made.abort()
        else:
            made.commit()
    told("leaves", "it was asked to")


def linger():
    """Some transactions last, and some longer than they may."""
    drawn = random.random()
    if drawn < 0.03:
        time.sleep(random.uniform(0, 3))
    elif drawn < 0.035:
        time.sleep(TIMEOUT_MS / 1000 + random.uniform(0, 2))


class Member:
    """A consumer in the group, which knows of whose partitions its records are."""

    def __init__(self, bootstrap):
        self.records, self.place = [], None
        self.consumer = Consumer({
            **common(bootstrap),
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "max.poll.interval.ms": 30_000,
            "partition.assignment.strategy": "range",
            "fetch.wait.max.ms": 200,
        })
        self.consumer.subscribe([INPUT], on_assign=self.assigned, on_revoke=self.revoked,
                                on_lost=self.revoked)

    def assigned(self, consumer, _):
        self.place = consumer.consumer_group_metadata()

    def revoked(self, *_):
        # What was read of partitions that another may have by now is not this member's to copy.
        self.records, self.place = [], None

    def read(self):
        """Some records, by partition; of partitions that it still has."""
        self.records = []
        message = self.consumer.poll(0.5)
        until = time.monotonic() + 0.1
        while message is not None:
            if message.error() is None:
                self.records.append(message)
            elif message.error().fatal():
                raise KafkaException(message.error())
            if len(self.records) >= 50 or time.monotonic() > until:
                break
            message = self.consumer.poll(0.02)
        found = {}
        for message in self.records:
            found.setdefault(message.partition(), []).append(message)
        return found if self.place else {}


def copy(bootstrap, told, number, name, planted=None):
    made = Transactions(bootstrap, told, number, name, planted)
    member = Member(bootstrap)
    while not leaving:
        read = member.read()
        if not read:
            continue
        records = []
        for partition, messages in read.items():
            seen = [[message.offset(), int(message.value())] for message in messages]
            told("view", INPUT, partition, seen[0][0], seen[-1][0] + 1, seen)
            out = random.randrange(PARTITIONS)
            records += [[OUTPUT, out, made.value(), value] for _, value in seen]
        offsets = [TopicPartition(INPUT, partition, messages[-1].offset() + 1)
                   for partition, messages in read.items()]
        try:
            if not copied(made, member, records, offsets, planted):
                for partition, messages in read.items():
                    member.consumer.seek(TopicPartition(INPUT, partition, messages[0].offset()))
        except KafkaException as error:
            end_of_life(told, f"cannot copy: {error}")
    member.consumer.close()
    told("leaves", "it was asked to")


def copied(made, member, records, offsets, planted):
    if planted == "offsets-early":
        member.consumer.commit(offsets=offsets, asynchronous=False)
    made.send(records)
    linger()
    if planted not in ("offsets-apart", "offsets-early"):
        if not made.offsets(offsets, member.place):
            made.abort()
            return False
    # A planted bug shows if the process ends between the two that belong together.
    if random.random() < (0.1 if planted == "offsets-early" else 0.01):
        end_of_life(made.told, "it leaves a transaction open")
    if random.random() < 0.1:
        made.abort()
        return False
    done = made.commit()
    if done and planted == "offsets-apart":
        if random.random() < 0.1:
            end_of_life(made.told, "it leaves its offsets behind")
        member.consumer.commit(offsets=offsets, asynchronous=False)
    return done


def read(bootstrap, told, number):
    """Everything that is committed, from somewhere on."""
    consumer = Consumer({
        **common(bootstrap),
        "group.id": f"reader-{number}",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 200,
    })
    start = {}
    for topic in (INPUT, OUTPUT):
        for partition in range(PARTITIONS):
            place = TopicPartition(topic, partition)
            _, high = patiently(lambda: consumer.get_watermark_offsets(place, CALL))
            start[topic, partition] = max(0, high - random.randint(0, 3000))
    consumer.assign([TopicPartition(*place, offset) for place, offset in start.items()])
    until = time.monotonic() + random.uniform(20, 120)
    while not leaving and time.monotonic() < until:
        found = {}
        for message in consumer.consume(500, 0.5):
            place = message.topic(), message.partition()
            if message.error() is None:
                found.setdefault(place, []).append([message.offset(), int(message.value())])
            elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                told("odd", *place, start[place], str(message.error()))
                os._exit(0)
        for place, seen in found.items():
            told("view", *place, start[place], seen[-1][0] + 1, seen)
            start[place] = seen[-1][0] + 1
    told("leaves", "it has read for long")


def last(bootstrap, told):
    """All places from beginning to end: what is committed, what is stored, where the group is."""
    places = [TopicPartition(topic, partition, OFFSET_BEGINNING)
              for topic in (INPUT, OUTPUT) for partition in range(PARTITIONS)]
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = Consumer({
            **common(bootstrap),
            "group.id": "last",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        })
        consumer.assign(places)
        left = {(place.topic, place.partition) for place in places}
        quiet = time.monotonic() + PATIENCE
        while left:
            found = {}
            for message in consumer.consume(2000, 1):
                place = message.topic(), message.partition()
                if message.error() is None:
                    quiet = time.monotonic() + PATIENCE
                    found.setdefault(place, []).append([message.offset(), int(message.value())])
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
            for place, seen in found.items():
                told("last", isolation, *place, seen)
            if time.monotonic() > quiet:
                raise SystemExit(f"cannot read {sorted(left)} to the end")
        consumer.close()
    group = Consumer({**common(bootstrap), "group.id": GROUP, "isolation.level": "read_committed"})
    inputs = [TopicPartition(INPUT, partition) for partition in range(PARTITIONS)]
    for place in patiently(lambda: group.committed(inputs, CALL)):
        if place.error:
            raise SystemExit(str(place.error))
        told("group", place.partition, max(place.offset, 0))
    group.close()


def main():
    verb, bootstrap, file, *rest = sys.argv[1:]
    signal.signal(signal.SIGTERM, leave)
    told = Log(file)
    if verb == "last":
        return last(bootstrap, told)
    number = int(rest[0])
    random.seed(number)
    if verb == "read":
        return read(bootstrap, told, number)
    {"produce": produce, "copy": copy}[verb](bootstrap, told, number, *rest[1:])


main()
