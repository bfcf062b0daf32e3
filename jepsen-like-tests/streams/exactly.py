"""Exactly once by Kafka's own programs, over three nodes that die: each input is counted, or
copied, once and only once, whoever is killed meanwhile.

    exactly.py streams|copier HARNESS BINARY CLASSES [--seconds N]

`streams`: Kafka Streams counts words with exactly_once_v2 (WordCount.java). Every step of every
count is in the output; so the records of a word must be 1, 2, 3, ... to the number of times it was
written, none missing, none twice. `copier`: four of Kafka's TransactionalMessageCopier (its system
tests' program) in one group copy a topic in transactions, some of which they abort at random; the
output must be the input, each record once.

Meanwhile a program is stopped and started, killed with SIGKILL and started, and a node is killed
with SIGKILL and started, in turn, until the time is over. HARNESS is the binary of
jepsen-like-tests, which starts the nodes; BINARY is quorate, by which a killed one starts again.
"""

import argparse
import collections
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

PARTITIONS = 4
WORDS = 50
# How long everything may take to settle once nobody is killed any more.
PATIENCE = 150


class Cluster:
    """Three nodes as processes."""

    def __init__(self, harness, binary, folder):
        self.binary, self.folder = binary, folder
        self.said = folder / "host.log"
        self.host = subprocess.Popen(
            [harness, "host", "--nodes", "3", "--data", str(folder / "data")],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said.open("w"),
        )
        addresses, pids = self.host.stdout.readline().split()
        self.addresses = addresses
        self.pids = [int(pid) for pid in pids.split(",")]
        self.children = {}

    def kill(self, node):
        child = self.children.get(node)
        pid = child.pid if child else self.pids[node]
        subprocess.run(["kill", "-KILL", str(pid)], check=True)
        if child:
            child.wait()

    def start(self, node):
        settings = self.folder / "data" / f"node{node + 1}.toml"
        log = (self.folder / f"node{node + 1}.again.log").open("a")
        self.children[node] = subprocess.Popen(
            [self.binary, "serve", "--config", str(settings)], stdout=log, stderr=log
        )

    def stop(self):
        """SIGTERM to all. Says who did not end in good order."""
        wrong = []
        for child in self.children.values():
            child.terminate()
        for node, child in sorted(self.children.items()):
            code = child.wait(60)
            if code != 0:
                wrong.append(f"node {node + 1}, started again, ended with {code}")
        self.host.stdin.close()
        self.host.wait(90)
        # The host has a sentence for each of its own that ended badly: those that were killed did.
        killed = {f"node {node + 1}" for node in self.children}
        for line in self.said.read_text().splitlines():
            if line.startswith("node ") and " ".join(line.split()[:2]) not in killed:
                wrong.append(line)
        return wrong


class Program:
    """A Java program that is started again and again."""

    def __init__(self, name, command, folder):
        self.command, self.log = command, (folder / f"{name}.log").open("a")
        self.start()

    def start(self):
        self.child = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)

    def end(self, how):
        self.child.send_signal(how)
        self.child.wait(90)

    def is_done(self):
        return self.child.poll() is not None


def write(bootstrap, topic, stop, written):
    """A steady stream, until `stop`; what was acknowledged is counted in `written`."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": 600_000,
        }
    )
    draw = random.Random(1)

    def told(error, message):
        if error is not None:
            written["lost"] += 1
        else:
            written[message.value()] += 1

    number = 0
    while not stop.is_set():
        if topic == "lines":
            value = " ".join(f"w{draw.randrange(WORDS)}" for _ in range(4))
        else:
            value = str(number)
        producer.produce(topic, value.encode(), key=str(number).encode(), on_delivery=told)
        number += 1
        producer.poll(0)
        time.sleep(0.004)
    left = producer.flush(PATIENCE)
    written["lost"] += left


def read(bootstrap, topic, isolation="read_committed"):
    """All that is committed, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "isolation.level": isolation,
            "enable.partition.eof": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    records, quiet = [], 0
    while quiet < 5:
        found = consumer.consume(5000, timeout=1)
        quiet = 0 if found else quiet + 1
        for message in found:
            if message.error():
                raise RuntimeError(str(message.error()))
            records.append((message.partition(), message.offset(), message.key(), message.value()))
    consumer.close()
    return records


def judge_counts(written, records):
    expected = collections.Counter()
    for line, times in written.items():
        if line != "lost":
            for word in line.decode().split():
                expected[word] += times
    told = collections.defaultdict(list)
    for _, _, word, count in records:
        told[word.decode()].append(int.from_bytes(count, "big"))
    wrong = []
    for word in sorted(expected.keys() | told.keys()):
        times = expected[word]
        if told[word] != list(range(1, times + 1)):
            seen = collections.Counter(told[word])
            twice = [count for count, n in seen.items() if n > 1]
            missing = [count for count in range(1, times + 1) if count not in seen]
            wrong.append(
                f"{word}: {times} written, {len(told[word])} told, "
                f"twice {twice[:5]}, missing {missing[:5]}"
            )
    return sum(expected.values()), sum(map(len, told.values())), wrong


def judge_copies(written, records):
    expected = collections.Counter({value: n for value, n in written.items() if value != "lost"})
    told = collections.Counter(value for _, _, _, value in records)
    wrong = [
        f"{value.decode()}: written {expected[value]} times, copied {told[value]} times"
        for value in expected.keys() | told.keys()
        if expected[value] != told[value]
    ]
    return sum(expected.values()), sum(told.values()), sorted(wrong)


def programs(what, cluster, classes, folder):
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", classes]
    if what == "streams":
        return [
            Program(
                f"count{number}",
                [
                    *java,
                    "WordCount",
                    cluster.addresses,
                    "count",
                    str(folder / f"state{number}"),
                    "lines",
                    "counts",
                ],
                folder,
            )
            for number in range(2)
        ]
    copier = "org.apache.kafka.tools.TransactionalMessageCopier"
    return [
        Program(
            f"copier{number}",
            [
                *java,
                copier,
                "--broker-list",
                cluster.addresses,
                "--input-topic",
                "input",
                "--input-partition",
                "-1",
                "--output-topic",
                "output",
                "--consumer-group",
                "copiers",
                "--transaction-size",
                "50",
                "--transaction-timeout",
                "10000",
                "--transactional-id",
                f"copier-{number}",
                "--group-mode",
                "--use-group-metadata",
                "--enable-random-aborts",
            ],
            folder,
        )
        for number in range(4)
    ]


def strike(running, cluster, seconds):
    """One fault after the other; says which."""
    draw, faults = random.Random(2), collections.Counter()
    until = time.monotonic() + seconds
    turn = 0
    while time.monotonic() < until:
        time.sleep(7)
        turn += 1
        if turn % 3 == 1:
            node = draw.randrange(3)
            print(f"… node {node + 1} is killed", flush=True)
            cluster.kill(node)
            time.sleep(4)
            cluster.start(node)
            faults["node killed"] += 1
            continue
        program = draw.choice(running)
        how = signal.SIGTERM if turn % 3 == 2 else signal.SIGKILL
        print(f"… a program gets {how.name}", flush=True)
        if not program.is_done():
            program.end(how)
        program.start()
        faults[f"program {how.name}"] += 1
    return faults


def settle(what, cluster, running, written, output):
    """Reads until all is there, or patience ends; a copier ends where the input ended when it
    began. Then nobody writes any more and nothing is open, and only what is there now counts: a
    program may have more to say after the first good reading."""
    until = time.monotonic() + PATIENCE
    judge = judge_counts if what == "streams" else judge_copies
    while True:
        for program in running:
            if program.is_done():
                program.start()
        _, _, wrong = judge(written, read(cluster.addresses, output))
        if not wrong or time.monotonic() > until:
            break
    for program in running:
        if not program.is_done():
            program.end(signal.SIGTERM)
    until = time.monotonic() + PATIENCE
    while is_open(cluster.addresses, output) and time.monotonic() < until:
        time.sleep(0.5)
    expected, told, wrong = judge(written, read(cluster.addresses, output))
    if is_open(cluster.addresses, output):
        wrong.append(f"a transaction is open in {output}, and nobody ends it")
    return expected, told, wrong


def is_open(bootstrap, topic):
    """Whether a transaction is: what is committed ends before the log does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    places = {TopicPartition(topic, place): OffsetSpec.latest() for place in range(PARTITIONS)}
    ends = []
    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        found = admin.list_offsets(places, isolation_level=isolation)
        ends.append([found[place].result(30).offset for place in places])
    return ends[0] != ends[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["streams", "copier"])
    parser.add_argument("harness")
    parser.add_argument("binary")
    parser.add_argument("classes")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--keep", help="a folder for logs and data, kept")
    arguments = parser.parse_args()
    temporary = tempfile.TemporaryDirectory()
    folder = pathlib.Path(arguments.keep or temporary.name)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    cluster = Cluster(arguments.harness, arguments.binary, folder)
    names = ("lines", "counts") if arguments.what == "streams" else ("input", "output")
    admin = AdminClient({"bootstrap.servers": cluster.addresses})
    for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in names]).values():
        made.result(30)
    stop, written = threading.Event(), collections.Counter()
    writer = threading.Thread(target=write, args=(cluster.addresses, names[0], stop, written))
    writer.start()
    running = programs(arguments.what, cluster, arguments.classes, folder)
    try:
        faults = strike(running, cluster, arguments.seconds)
        stop.set()
        writer.join()
        expected, told, wrong = settle(arguments.what, cluster, running, written, names[1])
    finally:
        stop.set()
        for program in running:
            if not program.is_done():
                program.end(signal.SIGKILL)
        stopped = cluster.stop()
    print(
        f"{arguments.what}: {sum(n for line, n in written.items() if line != 'lost')} records "
        f"written, {expected} effects expected, {told} found, {len(wrong)} wrong; "
        + ", ".join(f"{name} {n} times" for name, n in sorted(faults.items()))
    )
    for sentence in wrong[:20]:
        print(f"WRONG {sentence}")
    for sentence in stopped:
        print(f"WRONG {sentence}")
    if written["lost"]:
        print(f"WRONG {written['lost']} records were given up by an idempotent producer")
    if not expected:
        print("WRONG nothing was written")
    sys.exit(bool(wrong or stopped or written["lost"] or not expected))


main()
