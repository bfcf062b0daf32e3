"""Quorate and Apache Kafka, same machine, same run, same clients: prints the comparison table.

    compare.py [--rows kafka,kafka-flush,replicated,durable,ephemeral] [--nodes 3] [--quick]
               [--json FILE]

The broker has core 0 to itself and the clients core 1 (taskset), Kafka a heap of 1 GiB. With
several nodes all of them share core 0, every topic has a copy on each, two of them must have what
is acknowledged, and Kafka's heaps have 512 MiB. CPU time is the processes' own (/proc/PID/stat,
all nodes together) over the measured span; which side was saturated is told, because
a throughput that the client limits says nothing about the broker. The four promises compared:
Kafka's default acknowledges from the page cache, and so does `quorate.flush=replicated`; Kafka with
log.flush.interval.messages=1 syncs before it answers, and so does `quorate.flush=durable`.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOREIGN = ROOT / "target" / "foreign"
BINARY = ROOT / "target" / "release" / "quorate"
HARNESS = ROOT / "target" / "release" / "jepsen-like-tests"
LIBS = f"{FOREIGN}/kafka/libs/*"
JAVA = ["taskset", "-c", "1", "java", "-Xms512m", "-Xmx512m", "-cp", LIBS]
TICK = os.sysconf("SC_CLK_TCK")
PARTITIONS = 4

ROWS = {
    "kafka": ("Kafka 4.4 default", "kafka", [], {}),
    "kafka-flush": ("Kafka 4.4, flush every message", "kafka",
                    ["log.flush.interval.messages=1"], {}),
    "replicated": ("Quorate, replicated", "quorate", [], {"quorate.flush": "replicated"}),
    "durable": ("Quorate, durable", "quorate", [], {"quorate.flush": "durable"}),
    "ephemeral": ("Quorate, in memory", "quorate", ["ephemeral"], {}),
}


# Records a second by size: one and ten megabytes a second.
END_TO_END = {100: [10_000], 1024: [1_000, 10_000]}


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def resident(pids):
    """MiB now and at most, all nodes together."""
    totals = [0, 0]
    for pid in pids:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        for place, name in enumerate(("VmRSS", "VmHWM")):
            totals[place] += int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024
    return tuple(totals)


def disk(folder):
    # Blocks that hold data: preallocated space would otherwise count as written.
    done = subprocess.run(["du", "-s", "--block-size=1", folder], capture_output=True, text=True)
    return int(done.stdout.split()[0]) if done.returncode == 0 and done.stdout else 0


def clients_cpu():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Span:
    """Wall time and CPU time of broker and client between start and end."""

    def __init__(self, pids):
        self.pids = pids

    def __enter__(self):
        self.wall, self.broker, self.client = time.time(), cpu_seconds(self.pids), clients_cpu()
        return self

    def __exit__(self, *_):
        self.wall = time.time() - self.wall
        self.broker = cpu_seconds(self.pids) - self.broker
        self.client = clients_cpu() - self.client


class Broker:
    """One node, or a cluster."""

    def __init__(self, kind, settings, nodes, prefix="bench-"):
        # Kafka maps 20 MiB of indices a partition: without them it stands still, and says nothing.
        if kind == "kafka" and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            raise SystemExit("addresses are limited here (ulimit -v): Kafka wants them without limit")
        self.nodes = nodes
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=FOREIGN))
        self.data = self.folder / "data"
        command = [HARNESS, "host", "--nodes", str(nodes), "--broker", kind, "--pin", "0",
                   "--data", self.data]
        for setting in settings:
            command += ["--ephemeral"] if setting == "ephemeral" else ["--set", setting]
        self.host = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     text=True)
        line = self.host.stdout.readline().split()
        if len(line) != 2:
            raise SystemExit(f"the broker did not start: {command}")
        self.address, self.pids = line[0], [int(pid) for pid in line[1].split(",")]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.host.stdin.close()
        self.host.wait(90)
        shutil.rmtree(self.folder, ignore_errors=True)

    def create(self, topic, configs):
        if self.nodes > 1:
            configs = {**configs, "min.insync.replicas": "2"}
        topics = [{"name": topic, "partitions": PARTITIONS, "replicas": self.nodes,
                   "config": configs}]
        subprocess.run(
            [FOREIGN / "python/bin/python", ROOT / "jepsen-like-tests/clients/confluent-kafka/adapter.py",
             "create", json.dumps({"bootstrap": self.address, "topics": topics})],
            check=True, capture_output=True)


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        print(done.stdout[-500:], done.stderr[-1500:], file=sys.stderr)
        raise SystemExit(f"failed: {' '.join(map(str, command))}")
    return done.stdout + done.stderr


def java_produce(broker, topic, size, count, rate):
    out = run(JAVA + ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic,
                      "--num-records", str(count), "--record-size", str(size),
                      "--throughput", str(rate), "--bootstrap-server", broker.address,
                      "--command-property", "acks=all"])
    last = [line for line in out.splitlines() if "99.9th" in line][-1]
    number = r"([\d.]+)"
    return {
        "per_second": float(re.search(rf"{number} records/sec", last)[1]),
        **{name: float(re.search(rf"{number} ms {name}", last)[1])
           for name in ("50th", "99th", "99.9th")},
    }


def java_consume(broker, topic, count):
    out = run(JAVA + ["org.apache.kafka.tools.ConsumerPerformance", "--topic", topic,
                      "--num-records", str(count), "--bootstrap-server", broker.address])
    line = next(line for line in out.splitlines() if re.match(r"\d{4}-\d\d-\d\d .*,", line))
    values = [part.strip() for part in line.split(",")]
    # start, end, MB, MB/s, messages, messages/s, rebalance ms, fetch ms, MB/s, messages/s
    return {"messages": int(values[4]), "per_second": float(values[9])}


def rdkafka(broker, *arguments):
    out = run(["taskset", "-c", "1", FOREIGN / "librdkafka/rdkafka_performance",
               "-b", broker.address, *map(str, arguments)])
    found = re.findall(r"([\d.]+) msgs/s", out)
    if not found:
        raise SystemExit(f"no rate in: {out[-800:]}")
    return float(found[-1])


def end_to_end(broker, name, configs, size, rate, seconds):
    """From sending to reading, milliseconds; the same native client for every broker."""
    broker.create(name, configs)
    out = run(["taskset", "-c", "1", BINARY, "-b", broker.address, "--json", "bench", "end-to-end",
               "--topic", name, "-s", str(size), "-r", str(rate), "-n", str(rate * seconds),
               "--warmup", str(rate * 3)])
    latency = json.loads(out)["latency_us"]
    return [latency[name] / 1000 for name in ("p50", "p99", "p999")]


def sync_floor(nodes, bytes_per_second, seconds):
    """p99 in ms of so many fdatasync loops at once, each of which writes at that rate."""
    loops = [subprocess.Popen([sys.executable, "-c", SYNC_LOOP, str(FOREIGN / f"floor{place}"),
                               str(bytes_per_second), str(seconds)],
                              stdout=subprocess.PIPE, text=True) for place in range(nodes)]
    times = sorted(float(time) for loop in loops for time in loop.communicate()[0].split())
    return times[len(times) * 99 // 100] * 1000


SYNC_LOOP = """
import os, sys, time
name, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
file = os.open(name, os.O_CREAT | os.O_RDWR, 0o600)
os.posix_fallocate(file, 0, int(rate * seconds) + (1 << 20))
os.fsync(file)
start = last = time.perf_counter()
while last - start < seconds:
    time.sleep(0.001)
    now = time.perf_counter()
    os.write(file, bytes(max(1, int(rate * (now - last)))))
    last = now
    os.fdatasync(file)
    print(time.perf_counter() - now)
os.unlink(name)
"""


def measure(row, size, nodes, quick):
    name, kind, settings, configs = ROWS[row]
    count = {100: 3_000_000, 1024: 600_000}[size] // (10 if quick else 1)
    count //= nodes
    if row == "kafka-flush":
        count //= 20  # it would take minutes otherwise; rates and costs are per message
    rate = {100: 10_000, 1024: 5_000}[size] // (1 if nodes == 1 else 2)
    result = {"row": row, "name": name, "size": size, "count": count, "rate": rate}
    with Broker(kind, settings, nodes) as broker:
        result["resident_idle"] = resident(broker.pids)[0]
        # The broker's code warm, Kafka's compiler done with the worst of it.
        broker.create("warm", configs)
        java_produce(broker, "warm", size, max(count // 5, 20_000), -1)
        broker.create("throughput", configs)
        before = disk(broker.data)
        with Span(broker.pids) as span:
            produced = java_produce(broker, "throughput", size, count, -1)
        time.sleep(1)
        result["produce"] = produced["per_second"]
        result["produce_broker_load"] = span.broker / span.wall
        result["produce_client_load"] = span.client / span.wall
        result["produce_cpu_per_million"] = span.broker / count * 1e6
        result["disk_per_message"] = (disk(broker.data) - before) / count
        with Span(broker.pids) as span:
            consumed = java_consume(broker, "throughput", count)
        result["consume"] = consumed["per_second"]
        result["consume_broker_load"] = span.broker / span.wall
        result["consume_cpu_per_million"] = span.broker / consumed["messages"] * 1e6
        broker.create("latency", configs)
        seconds = 4 if quick else 15
        java_produce(broker, "latency", size, rate * 3, rate)
        with Span(broker.pids) as span:
            latency = java_produce(broker, "latency", size, rate * seconds, rate)
        result["latency"] = [latency[name] for name in ("50th", "99th", "99.9th")]
        result["rate_held"] = latency["per_second"] > 0.95 * rate
        result["latency_cpu_per_million"] = span.broker / (rate * seconds) * 1e6
        result["end_to_end"] = {
            rate: end_to_end(broker, f"rate{rate}", configs, size, rate, seconds)
            for rate in END_TO_END[size]}
        broker.create("native", configs)
        with Span(broker.pids) as span:
            result["rdkafka_produce"] = rdkafka(
                broker, "-P", "-t", "native", "-s", size, "-c", count, "-a", "-1",
                "-X", "linger.ms=5")
        result["rdkafka_cpu_per_million"] = span.broker / count * 1e6
        result["rdkafka_broker_load"] = span.broker / span.wall
        result["rdkafka_client_load"] = span.client / span.wall
        result["rdkafka_consume"] = rdkafka(
            broker, "-G", "bench", "-t", "native", "-c", count, "-o", "beginning",
            "-X", "auto.offset.reset=earliest")
        result["resident"], result["resident_highest"] = resident(broker.pids)
    return result


def start_time(row, quick):
    _, kind, settings, _ = ROWS[row]
    command = [HARNESS, "probe", "--broker", kind, "--pin", "0", "--times", "2" if quick else "5"]
    for setting in settings:
        command += ["--ephemeral"] if setting == "ephemeral" else ["--set", setting]
    return run(command).strip().split(",")[0]


def side(broker, client):
    if broker > 0.9:
        return "broker"
    return "client" if client > 0.9 else "neither"


def table(results, starts):
    yield ("| | size | produce (msg/s) | saturated | consume (msg/s) | p50 / p99 / p99.9 at "
           "rate (ms) | end to end, native client (ms) | broker CPU-s per million: produce, "
           "consume, at rate | librdkafka produce, consume (msg/s) | resident idle, end, highest (MiB) | disk B/msg | start |")
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for r in results:
        p50, p99, p999 = r["latency"]
        sides = side(r["produce_broker_load"], r["produce_client_load"])
        ends = ", ".join(f"{half:.1f} / {most:.1f} / {nearly:.1f} at {rate:,}/s"
                         for rate, (half, most, nearly) in r["end_to_end"].items())
        native = side(r["rdkafka_broker_load"], r["rdkafka_client_load"])
        yield (f"| {r['name']} | {r['size']} B | {r['produce']:,.0f} | {sides} "
               f"({r['produce_broker_load']:.2f}, {r['produce_client_load']:.2f}) "
               f"| {r['consume']:,.0f} | {p50:.0f} / {p99:.0f} / {p999:.0f} at {r['rate']:,}/s"
               f"{'' if r['rate_held'] else ' (not held)'} | {ends} "
               f"| {r['produce_cpu_per_million']:.2f}, {r['consume_cpu_per_million']:.2f}, "
               f"{r['latency_cpu_per_million']:.1f} "
               f"| {r['rdkafka_produce']:,.0f} ({native}), {r['rdkafka_consume']:,.0f} "
               f"| {r['resident_idle']:.0f}, {r['resident']:.0f}, {r['resident_highest']:.0f} "
               f"| {r['disk_per_message']:.0f} | {starts.get(r['row'], '')} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="kafka,kafka-flush,replicated,durable")
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f} (the machine should be quiet)", file=sys.stderr)
    results, starts = [], {}
    seconds = 4 if arguments.quick else 15
    floors = {rate: sync_floor(arguments.nodes, rate * 1_000_000, seconds) for rate in (1, 10)}
    for row in arguments.rows.split(","):
        if arguments.nodes == 1:
            starts[row] = start_time(row, arguments.quick)
        for size in map(int, arguments.sizes.split(",")):
            print(f"{time.strftime('%H:%M:%S')} {row} {size} B", file=sys.stderr)
            results.append(measure(row, size, arguments.nodes, arguments.quick))
            if arguments.json:
                pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1))
    print("\n".join(table(results, starts)))
    print("\nThe disk alone, as many fdatasync loops at once as nodes: p99 " + ", ".join(
        f"{floor:.1f} ms at {rate} MB/s" for rate, floor in floors.items()))
    print(f"\n{arguments.nodes} node(s) on core 0, clients on core 1; {PARTITIONS} partitions, "
          "acks=all; loads in brackets are the fraction of a core that brokers and client used.")


if __name__ == "__main__":
    main()
