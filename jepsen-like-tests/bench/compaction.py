"""Compaction beside Apache Kafka's cleaner: same machine, same run, same data, same clients.

    compaction.py [--rows kafka,quorate,quorate-free] [--bytes 2G] [--load-bytes 10G]
                  [--parts alone,load] [--rate 5000] [--calm 60]

One partition is filled with records of 1 KiB whose keys are drawn evenly from a tenth as many, so
that a tenth stays. It must not be cleaned yet (min.compaction.lag.ms); its last segment is closed,
everything is synced, and then the cleaner is let go.

- alone: what the pass takes in time, processor time and memory. When it began and ended is what the
  broker says of it; the rest is read from /proc. Then a client reads the topic: each key must be
  there, with the value that the producer's ledger has for it, and nothing else.
- load: the same, while a producer writes so many records of 1 KiB a second to another topic,
  acks=all. Its latencies, counted from the instant at which a record was due, in the calm before
  the pass, and after it, against those in the pass: p99 may double.

Both brokers at their defaults, with 128 MiB for keys each, but for `quorate-free` and
`kafka-throttled`. The broker has core 0, the clients core 1; Kafka a heap of 1 GiB. Each broker's
data is removed before the next begins.
"""

import argparse
import array
import bisect
import calendar
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid

import compare
import keyed
from compare import FOREIGN

VALUE_BYTES = 1024
MIB = 1 << 20
PASS_SECONDS_MAX = 3600
ROWS = {
    "kafka": ("Kafka 4.4 default (not throttled)", "kafka", []),
    "kafka-throttled": ("Kafka 4.4, 64 MiB/s", "kafka",
                        ["log.cleaner.io.max.bytes.per.second=67108864"]),
    "quorate": ("Quorate default (64 MiB/s)", "quorate", []),
    "quorate-free": ("Quorate, not throttled", "quorate",
                     ["storage.clean_bytes_per_second=1099511627776"]),
}
TOPIC = "compacted"
CLEANER_LOG = """
Configuration:
  Appenders: { Console: { name: STDERR, target: SYSTEM_ERR,
    PatternLayout: { pattern: "[%d{UNIX_MILLIS}] %p %m (%c)%n" } } }
  Loggers:
    Root: { level: WARN, AppenderRef: { ref: STDERR } }
    Logger:
      - { name: org.apache.kafka.storage.internals.log.Cleaner, level: INFO }
      - { name: org.apache.kafka.storage.internals.log.LogCleaner$CleanerThread, level: INFO }
"""


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Broker(compare.Broker):
    """One that tells in its log what its cleaner does."""

    def __init__(self, kind, settings):
        self.kind, self.load = kind, None
        self.words = FOREIGN / f"compaction-words-{os.getpid()}"
        self.words.mkdir()
        (self.words / "log4j2.yaml").write_text(CLEANER_LOG)
        os.environ.update(TMPDIR=str(self.words), QUORATE_LOG="info", QUORATE_LOG_FORMAT="json",
                          KAFKA_LOG4J2=str(self.words / "log4j2.yaml"))
        super().__init__(kind, settings, 1, "compaction-data-")

    def __exit__(self, *reason):
        if self.load:
            self.load.abandon()
        super().__exit__(*reason)
        shutil.rmtree(self.words, ignore_errors=True)

    def topic(self, name, partitions, configs):
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.address})
        new = NewTopic(name, partitions, 1, config=configs)
        for future in admin.create_topics([new]).values():
            future.result(30)

    def set(self, topic, **configs):
        from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry,
                                           ConfigResource)

        entries = [ConfigEntry(name.replace("_", "."), value,
                               incremental_operation=AlterConfigOpType.SET)
                   for name, value in configs.items()]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.address})
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)

    @functools.cached_property
    def name(self):
        """What the broker calls the topic's log: ours goes by the topic's id."""
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import AdminClient

        if self.kind == "kafka":
            return TOPIC
        admin = AdminClient({"bootstrap.servers": self.address})
        told = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(30).topic_id
        halves = told.get_most_significant_bits(), told.get_least_significant_bits()
        high, low = (half & (1 << 64) - 1 for half in halves)
        return str(uuid.UUID(int=high << 64 | low))

    def log_bytes(self):
        """Of the topic's segments that count."""
        files = [file for suffix in ("log", "segment")
                 for file in self.data.glob(f"**/{self.name}-0/*.{suffix}")]
        return sum(file.stat().st_size for file in files if file.exists())

    def passes(self):
        """(end in seconds since 1970, seconds, first offset beyond it) of each pass so far."""
        log = "".join(file.read_text(errors="replace") for file in self.words.glob("*/broker.log"))
        return list(kafka_passes(log) if self.kind == "kafka" else our_passes(log, self.name))


def kafka_passes(log):
    began = re.findall(r"\[(\d+)\] INFO .*Beginning cleaning of log " + TOPIC + "-0 ", log)
    ended = re.findall(r"\[(\d+)\] INFO \[kafka-log-cleaner-thread-\d+\]:\s+Log cleaner thread \d+ "
                       r"cleaned log " + TOPIC + r"-0 \(dirty section = \[\d+, (\d+)\]\)", log)
    for start, (end, to) in zip(began, ended):
        yield int(end) / 1000, (int(end) - int(start)) / 1000, int(to)


def our_passes(log, name):
    for line in log.splitlines():
        if "a log was compacted" in line and f"{name}/0" in line:
            told = json.loads(line)
            fields = told["fields"]
            yield seconds_of(told["time"]), duration(fields["took"]), int(fields["to"])


def seconds_of(stamp):
    whole, fraction = stamp.rstrip("Z").split(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction}")


def duration(text):
    number, unit = re.fullmatch(r"([\d.]+)(ns|µs|ms|s)", text).groups()
    return float(number) * {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1}[unit]


class Sampler(threading.Thread):
    """Processor time, resident memory and bytes read of the broker, over and over."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.pids, self.times, self.samples, self.over = pids, [], [], threading.Event()

    def run(self):
        while not self.over.wait(0.1):
            read = sum(int(re.search(r"rchar: (\d+)",
                                     pathlib.Path(f"/proc/{pid}/io").read_text())[1])
                       for pid in self.pids)
            self.samples.append((compare.cpu_seconds(self.pids), compare.resident(self.pids)[0],
                                 read))
            self.times.append(time.time())

    def between(self, start, end):
        """(processor seconds, highest MiB, bytes read)."""
        first = max(0, bisect.bisect(self.times, start) - 1)
        last = min(len(self.times) - 1, bisect.bisect(self.times, end))
        inside = self.samples[first:last + 1]
        return (inside[-1][0] - inside[0][0], max(sample[1] for sample in inside),
                inside[-1][2] - inside[0][2])


class Load:
    """The producer that keeps a rate, in a process of its own."""

    def __init__(self, broker, rate):
        self.path = broker.folder / "latencies"
        broker.topic("load", compare.PARTITIONS, {})
        command = [sys.executable, keyed.__file__, broker.address, "load", str(rate),
                   str(VALUE_BYTES), str(self.path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.rate = rate

    def end(self):
        self.process.stdin.close()
        if self.process.wait(180) != 0:
            raise SystemExit("the producer of the load has failed")
        noted = array.array("d", self.path.read_bytes())
        self.dues, self.latencies = noted[0::2], noted[1::2]

    def abandon(self):
        """Whatever has become of the broker, nobody goes on asking for it."""
        self.process.kill()
        self.process.wait()

    def between(self, start, end):
        """p50, p99, p99.9 and the highest in ms of records due then, and the rate that was held."""
        inside = sorted(latency for due, latency in zip(self.dues, self.latencies)
                        if start <= due < end)
        if not inside:
            raise SystemExit("nothing was written in that time")
        place = [min(len(inside) - 1, int(len(inside) * share)) for share in (0.5, 0.99, 0.999, 1)]
        return [1000 * inside[at] for at in place], len(inside) / (end - start)

    def windows(self, start, end, seconds=15):
        """p99 in ms of each stretch of so many seconds: when it was that the worst came."""
        count = int((end - start) / seconds)
        return [round(self.between(start + at * seconds, start + (at + 1) * seconds)[0][1], 1)
                for at in range(count)]


def prepare(broker, size):
    """A topic that is full and closed, and must not be cleaned yet."""
    records = size // VALUE_BYTES
    broker.topic(TOPIC, 1, {"cleanup.policy": "compact", "min.compaction.lag.ms": "604800000"})
    ledger = keyed.Ledger(records // 10, VALUE_BYTES)
    keyed.fill(broker.address, TOPIC, ledger, records)
    broker.set(TOPIC, segment_ms="1000")
    time.sleep(2)  # the segment's age is what closes it
    keyed.append(broker.address, TOPIC, b"closes the segment before it")
    # What is still to be written to the disk must not be counted as the pass's.
    os.sync()
    return ledger


def clean(broker, ledger):
    """Lets the cleaner go. Returns when it began and ended, its seconds, and in how many passes."""
    for pid in broker.pids:
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # the highest resident memory
    before = len(broker.passes())
    broker.set(TOPIC, min_compaction_lag_ms="0")
    until = time.monotonic() + PASS_SECONDS_MAX
    while True:
        made = broker.passes()[before:]
        if made and made[-1][2] >= ledger.records:
            break
        if time.monotonic() > until:
            raise SystemExit(f"the log is not cleaned: {made}")
        time.sleep(0.5)
    (first_end, first_took, _), (last_end, _, _) = made[0], made[-1]
    return first_end - first_took, last_end, sum(took for _, took, _ in made), len(made)


def settled(broker):
    """Bytes of the log once the files that are replaced are gone."""
    bytes_then, since = broker.log_bytes(), time.monotonic()
    while time.monotonic() - since < 3:
        time.sleep(0.5)
        bytes_now = broker.log_bytes()
        if bytes_now != bytes_then:
            bytes_then, since = bytes_now, time.monotonic()
    return bytes_then


def measure(row, part, size, rate, calm):
    name, kind, settings = ROWS[row]
    result = {"name": name, "row": row, "rate": rate}
    with Broker(kind, settings) as broker:
        say(f"{row}, {part}: filling")
        ledger = prepare(broker, size)
        sampler = Sampler(broker.pids)
        sampler.start()
        load, begin = None, time.time()
        if part == "load":
            say("calm")
            load = broker.load = Load(broker, rate)
            # The first seconds are the clients' and the compilers'.
            time.sleep(10)
            begin = time.time()
            time.sleep(calm)
        calm_end = time.time()
        result["before"], result["resident"] = broker.log_bytes(), compare.resident(broker.pids)[0]
        say(f"cleaning; load {os.getloadavg()[0]:.2f}")
        start, end, result["took"], result["passes"] = clean(broker, ledger)
        result["highest"] = compare.resident(broker.pids)[1]
        sampler.over.set()
        result["cpu"], _, result["read"] = sampler.between(start, end)
        if load:
            say("calm again")
            rest = time.time() + 5  # what it has replaced is unlinked
            time.sleep(5 + calm)
            load.end()
            result["calm"], result["calm_rate"] = load.between(begin, calm_end)
            result["busy"], result["busy_rate"] = load.between(start, end)
            result["again"], _ = load.between(rest, rest + calm)
            result["windows"] = [load.windows(*times) for times in
                                 ((begin, calm_end), (start, end), (rest, rest + calm))]
        result["after"] = settled(broker)
        say(f"judging; load {os.getloadavg()[0]:.2f}")
        found = keyed.judge(broker.address, TOPIC, ledger)
    result.update(keys=ledger.distinct(), records=found.records, surplus=found.surplus,
                  wrong=len(found.wrong), written=ledger.records)
    for sentence in found.wrong[:5]:
        say(f"WRONG: {sentence}")
    say(json.dumps(result))
    return result


def alone_table(results):
    yield ("| | log before, after (MiB) | pass (s) | of the log (MiB/s) | read by the process "
           "(MiB/s) | processor (s) | resident before, highest in the pass (MiB) | records "
           "written, left; keys, missing or wrong |")
    yield "|---|---|---|---|---|---|---|---|"
    for r in results:
        yield (f"| {r['name']} | {r['before'] / MIB:,.0f}, {r['after'] / MIB:,.0f} "
               f"| {r['took']:.1f} | {r['before'] / MIB / r['took']:.0f} "
               f"| {r['read'] / MIB / r['took']:.0f} | {r['cpu']:.1f} "
               f"| {r['resident']:.0f}, {r['highest']:.0f} "
               f"| {r['written']:,}, {r['records']:,}; {r['keys']:,}, {r['wrong']} |")


def load_table(results):
    yield ("| | log before, after (MiB) | pass (s) | p50 / p99 / p99.9 / highest before the pass "
           "(ms) | in the pass (ms) | after it (ms) | p99 grows over before, after | records a second "
           "before, in the pass | resident, highest (MiB) | missing or wrong |")
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for r in results:
        times = [" / ".join(f"{value:.2f}" for value in r[when])
                 for when in ("calm", "busy", "again")]
        grows = [f"{r['busy'][1] / r[when][1]:.2f}x" for when in ("calm", "again")]
        yield (f"| {r['name']} | {r['before'] / MIB:,.0f}, {r['after'] / MIB:,.0f} "
               f"| {r['took']:.1f} | {times[0]} | {times[1]} | {times[2]} | {', '.join(grows)} "
               f"| {r['calm_rate']:,.0f}, {r['busy_rate']:,.0f} "
               f"| {r['resident']:.0f}, {r['highest']:.0f} | {r['wrong']} |")


def parse_bytes(text):
    number, unit = re.fullmatch(r"(\d+)([MG]?)", text).groups()
    return int(number) << {"": 0, "M": 20, "G": 30}[unit]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="kafka,quorate,quorate-free")
    parser.add_argument("--parts", default="alone,load")
    parser.add_argument("--bytes", type=parse_bytes, default=parse_bytes("2G"))
    parser.add_argument("--load-bytes", type=parse_bytes, default=parse_bytes("10G"))
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--calm", type=int, default=60)
    arguments = parser.parse_args()
    # What was begun is removed however this ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
    sizes = {"alone": arguments.bytes, "load": arguments.load_bytes}
    parts = arguments.parts.split(",")
    wanted = max(sizes[part] for part in parts) * 3 // 2 + (4 << 30)
    if shutil.disk_usage(FOREIGN).free < wanted:
        raise SystemExit(f"{wanted >> 30} GiB must be free on the disk")
    os.sched_setaffinity(0, {1})
    say(f"load before: {os.getloadavg()[0]:.2f} (the machine should be quiet)")
    wrong = 0
    for part in parts:
        results = [measure(row, part, sizes[part], arguments.rate, arguments.calm)
                   for row in arguments.rows.split(",")]
        wrong += sum(result["wrong"] + result["surplus"] for result in results)
        table = alone_table if part == "alone" else load_table
        print("\n".join(table(results)) + "\n", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
