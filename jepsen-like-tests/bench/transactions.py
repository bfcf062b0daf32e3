"""What transactions cost, beside Apache Kafka: same machine, same run, same clients.

    transactions.py [--rows kafka,kafka-flush,replicated,durable] [--nodes 1] [--quick]

- Throughput of kafka-producer-perf-test in transactions of 100 ms, and of the same command without
  them, in turns (the median of the ratios is told). It tells little of the broker's part: without
  transactions its buffer fills, and the client waits for itself.
- The same of `quorate bench produce`, one, two and four producers, for so many records as it sends
  in about three seconds: what it loses is the transactions' share. Its producers do not all commit
  at once. With it, what each side used of its core, and where a transaction's time goes.
- One record a transaction with librdkafka, nothing else running: how long the record takes until it
  is acknowledged, how long the commit takes after that, and how many transactions a second that is.
- From the call of produce to a reader of committed records, the commit called at once.
- Transactions a second of many producers at once, whose ids share one partition of
  `__transaction_state`, so that one coordinator has them all.

Where broker and clients run, and which promises are compared: see compare.py.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
import uuid

import compare
from compare import FOREIGN, JAVA, ROWS, Broker, run

DURATION_MS = 100


def perf_test(broker, topic, size, count, transactional):
    extra = []
    if transactional:
        extra = ["--transactional-id", f"perf-{uuid.uuid4()}",
                 "--transaction-duration-ms", str(DURATION_MS)]
    out = run(JAVA + ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic,
                      "--num-records", str(count), "--record-size", str(size),
                      "--throughput", "-1", "--bootstrap-server", broker.address,
                      "--command-property", "acks=all"] + extra)
    last = [line for line in out.splitlines() if "99.9th" in line][-1]
    return float(re.search(r"([\d.]+) records/sec", last)[1])


def native(broker, configs, producers, count, transactional):
    """The report, with what broker and client used of a core each. Each run has a topic of its own,
    which is deleted: memory that was never touched slows down whoever writes to it first."""
    extra = [f"--transactional={DURATION_MS}ms"] if transactional else []
    topic = f"native-{uuid.uuid4()}"
    broker.create(topic, configs)
    described = [compare.BINARY, "-b", broker.address, "topic", "describe", topic]
    # Kafka's brokers hear of it one after the other: each answer may be another's.
    known = 0
    while known < 3 * broker.nodes:
        done = subprocess.run(described, capture_output=True)
        known = known + 1 if done.returncode == 0 else 0
        time.sleep(0.05)
    with compare.Span(broker.pids) as span:
        out = run(["taskset", "-c", "1", compare.BINARY, "-b", broker.address, "--json", "bench",
                   "produce", "--topic", topic, "-s", "100", "-n", str(count), "--producers",
                   str(producers), "--warmup", str(count // 20)] + extra)
    subprocess.run([compare.BINARY, "-b", broker.address, "topic", "delete", topic, "--yes"],
                   capture_output=True)
    time.sleep(1.5)
    loads = (span.broker / span.wall, span.client / span.wall)
    return {**json.loads(out), "loads": loads}


def by_producers(broker, configs, quick):
    """Lines of a table: of so many producers, plain and in transactions, by turns first."""
    seconds, pairs = (1, 2) if quick else (3, 6)
    for producers in (1, 2, 4):
        rate = native(broker, configs, producers, 200_000, True)["records_per_second"]
        count, runs = int(rate * seconds), []
        for pair in range(pairs):
            turns = [pair % 2 == 1, pair % 2 == 0]
            found = {turn: native(broker, configs, producers, count, turn) for turn in turns}
            runs.append((found[False], found[True]))
        rates = [(plain["records_per_second"], there["records_per_second"])
                 for plain, there in runs]
        plain, there = (statistics.median(side) for side in zip(*rates))
        lost = 100 * (1 - statistics.median(there / plain for plain, there in rates))
        here, last = runs[-1]
        used = [f"{run['loads'][0]:.2f}, {run['loads'][1]:.2f}" for run in (here, last)]
        phases = last["transactions"]
        told = " | ".join(f"{phases[name]['p50'] / 1000:.1f} / {phases[name]['p99'] / 1000:.1f}"
                          for name in ("first_us", "flush_us", "commit_us"))
        yield (f"{producers} | {plain:,.0f} ({used[0]}) | {there:,.0f} ({used[1]}) | {lost:.1f} % "
               f"| {told}")


def throughput(broker, configs, quick):
    """Records a second plain and in transactions, and the median ratio of the pairs."""
    plain, transactional = [], []
    broker.create("cost", configs)
    count = (200_000 if quick else 1_500_000) // broker.nodes
    perf_test(broker, "cost", 100, count // 5, True)
    for _ in range(1 if quick else 5):
        plain.append(perf_test(broker, "cost", 100, count, False))
        transactional.append(perf_test(broker, "cost", 100, count, True))
    ratios = [there / here for here, there in zip(plain, transactional)]
    return statistics.median(plain), statistics.median(transactional), statistics.median(ratios)


def client(kind, **config):
    import confluent_kafka

    config = {name.replace("_", "."): value for name, value in config.items()}
    return getattr(confluent_kafka, kind)(config)


def producer(broker, name):
    made = client("Producer", bootstrap_servers=broker.address, transactional_id=name, linger_ms=0,
                  transaction_timeout_ms=60_000)
    made.init_transactions(30)
    return made


def milliseconds(values):
    values = sorted(values)
    return tuple(1000 * values[min(len(values) - 1, int(len(values) * share))]
                 for share in (0.5, 0.99))


def one_by_one(broker, configs, quick):
    """p50 and p99 in ms of the acknowledgement and of the commit, and transactions a second."""
    broker.create("single", configs)
    made = producer(broker, f"single-{uuid.uuid4()}")
    appends, commits = [], []
    began = time.perf_counter()
    for number in range(200 if quick else 2_000):
        made.begin_transaction()
        start = time.perf_counter()
        made.produce("single", b"x" * 100, partition=number % compare.PARTITIONS)
        made.flush()
        written = time.perf_counter()
        made.commit_transaction()
        appends.append(written - start)
        commits.append(time.perf_counter() - written)
    rate = len(commits) / (time.perf_counter() - began)
    return milliseconds(appends), milliseconds(commits), rate


def to_the_reader(broker, configs, quick):
    """p50 and p99 in ms from produce to a reader of committed records."""
    broker.create("seen", configs)
    count = 100 if quick else 1_000
    reader = client("Consumer", bootstrap_servers=broker.address, group_id=f"g-{uuid.uuid4()}",
                    isolation_level="read_committed", auto_offset_reset="earliest",
                    fetch_wait_max_ms=100)
    reader.subscribe(["seen"])
    made = producer(broker, f"seen-{uuid.uuid4()}")

    def send(value):
        made.begin_transaction()
        made.produce("seen", value)
        made.commit_transaction()

    send(b"0")
    while reader.poll(1.0) is None:
        pass
    took = []
    for _ in range(count):
        start = time.perf_counter()
        send(b"1")
        while True:
            message = reader.poll(5.0)
            if message is None or message.error():
                raise SystemExit("what was committed is not read")
            if message.value() == b"1":
                break
        took.append(time.perf_counter() - start)
    reader.close()
    return milliseconds(took)


def of_one_coordinator(broker, count):
    """Transactional ids that one partition of `__transaction_state` has, as Kafka's hash tells."""
    made = producer(broker, "first")  # the topic comes to be with the first of them
    topic = made.list_topics("__transaction_state", 10).topics["__transaction_state"]
    partitions, ids, number = len(topic.partitions), [], 0
    while len(ids) < count:
        name, hashed = f"many-{number}", 0
        for letter in name:
            hashed = (31 * hashed + ord(letter)) & 0xFFFFFFFF
        if min(hashed, 2**32 - hashed) % partitions == 0:
            ids.append(name)
        number += 1
    return ids


def many_at_once(broker, configs, producers, seconds):
    """Transactions a second of so many producers, one record each."""
    broker.create("many", configs)
    made = [producer(broker, name) for name in of_one_coordinator(broker, producers)]
    counts = [0] * producers
    until = time.perf_counter() + seconds

    def work(place):
        while time.perf_counter() < until:
            made[place].begin_transaction()
            made[place].produce("many", b"x" * 100, partition=place % compare.PARTITIONS)
            made[place].commit_transaction()
            counts[place] += 1

    threads = [threading.Thread(target=work, args=(place,)) for place in range(producers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def sync_latency():
    """p50 in ms of a write of 1 KiB and its fdatasync, nothing else running."""
    name = FOREIGN / "sync-latency"
    file = os.open(name, os.O_CREAT | os.O_RDWR, 0o600)
    os.posix_fallocate(file, 0, 4 << 20)
    os.fsync(file)
    took = []
    for _ in range(1_000):
        start = time.perf_counter()
        os.write(file, b"x" * 1024)
        os.fdatasync(file)
        took.append(time.perf_counter() - start)
    os.close(file)
    os.unlink(name)
    return milliseconds(took)[0]


def measure(row, nodes, quick):
    name, kind, settings, configs = ROWS[row]
    with Broker(kind, settings, nodes) as broker:
        java = throughput(broker, configs, quick)
        ours = [f"| {name} | {line} |" for line in by_producers(broker, configs, quick)]
        append, commit, alone = one_by_one(broker, configs, quick)
        seen = to_the_reader(broker, configs, quick)
        own = time.process_time()
        with compare.Span(broker.pids) as span:
            crowd = many_at_once(broker, configs, 32, 2 if quick else 10)
        load, clients = span.broker / span.wall, (time.process_time() - own) / span.wall
    plain, transactional, ratio = java
    told = f"| {plain:,.0f} | {transactional:,.0f} | {100 * (1 - ratio):.1f} %"
    return (f"| {name} {told} "
            f"| {append[0]:.2f} / {append[1]:.2f} | {commit[0]:.2f} / {commit[1]:.2f} "
            f"| {alone:,.0f} | {seen[0]:.2f} / {seen[1]:.2f} | {crowd:,.0f} "
            f"({load:.2f}, {clients:.2f}) |"), ours


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="kafka,kafka-flush,replicated,durable")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    # This process is the native clients: core 1, as all clients.
    os.sched_setaffinity(0, {1})
    print(f"load before: {os.getloadavg()[0]:.2f} (the machine should be quiet)", file=sys.stderr)
    print("| | perf-test, plain (msg/s) | in transactions of 100 ms (msg/s) | lost "
          "| record acknowledged, p50 / p99 (ms) "
          "| commit after that (ms) | one by one (transactions/s) | produce to a reader of "
          "committed (ms) | 32 producers, one coordinator (transactions/s; loads of broker and "
          "clients) |")
    print("|---" * 9 + "|")
    native_lines = []
    for row in arguments.rows.split(","):
        print(f"{time.strftime('%H:%M:%S')} {row}", file=sys.stderr)
        line, ours = measure(row, arguments.nodes, arguments.quick)
        print(line, flush=True)
        native_lines += ours
    print("\n| | producers of our bench | plain (msg/s; loads of brokers and client) | in "
          "transactions of 100 ms | lost | begin to first acknowledgement, p50 / p99 (ms) | flush "
          "| commit |")
    print("|---" * 8 + "|\n" + "\n".join(native_lines))
    print(f"\nOne write with its fdatasync, alone: p50 {sync_latency():.2f} ms. "
          f"{arguments.nodes} node(s) on core 0, clients on core 1; {compare.PARTITIONS} "
          "partitions, acks=all, records of 100 B.")


if __name__ == "__main__":
    main()
