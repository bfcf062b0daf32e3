"""Kafka's console producer and consumer behind the adapter protocol of ../README.md.

They speak text: a key, a value and headers on a line, with a marker for null.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time

LIBS = os.environ["KAFKA_LIBS"]
PRODUCER = ["java", "-cp", LIBS, "org.apache.kafka.tools.ConsoleProducer"]
CONSUMER = ["java", "-cp", LIBS, "org.apache.kafka.tools.consumer.ConsoleConsumer"]
NULL = "\\N"


def to_bytes(text):
    return None if text is None else base64.b64decode(text)


def to_text(value):
    return None if value == NULL else base64.b64encode(value.encode()).decode()


def emit(**line):
    print(json.dumps(line), flush=True)


def marked(content):
    return NULL if content is None else to_bytes(content).decode()


def produce(p):
    lines = []
    for line in sys.stdin:
        r = json.loads(line)
        headers = ",".join(f"{name}:{marked(value)}" for name, value in r["h"])
        lines.append("\t".join([headers or NULL, marked(r["k"]), marked(r["v"])]))
    properties = {"parse.key": "true", "parse.headers": "true", "null.marker": NULL}
    command = PRODUCER + [
        "--bootstrap-server", p["bootstrap"], "--topic", p["topic"],
        "--compression-codec", p["codec"], "--sync", "--timeout", "5",
        "--command-property", f"acks={p['acks']}",
        "--command-property", f"enable.idempotence={str(p.get('idempotent', False)).lower()}",
        "--command-property", f"max.request.size={p.get('max_bytes', 1048576)}"]
    for name, value in properties.items():
        command += ["--reader-property", f"{name}={value}"]
    done = subprocess.run(command, input="\n".join(lines) + "\n", text=True, capture_output=True,
                          timeout=60)
    noise = [x for x in done.stderr.splitlines() if "Exception" in x]
    for _ in lines:
        emit(**({"error": noise[0]} if noise or done.returncode else {"p": -1, "o": -1}))


def consume(p):
    properties = [f"print.{part}=true"
                  for part in ("timestamp", "partition", "offset", "headers", "key", "value")]
    for topic in p["topics"]:  # a Java machine each, which ends when it has seen them all
        command = CONSUMER + ["--bootstrap-server", p["bootstrap"], "--topic", topic,
                              "--from-beginning", "--timeout-ms", "15000",
                              "--max-messages", str(p["counts"][topic])]
        for name in properties + [f"null.literal={NULL}"]:
            command += ["--formatter-property", name]
        done = subprocess.run(command, capture_output=True, timeout=60)
        for line in done.stdout.decode(errors="replace").split("\n"):
            parts = line.split("\t")
            if len(parts) != 6:
                continue
            time_of, partition, offset, headers, key, value = parts
            pairs = [] if headers == "NO_HEADERS" else [
                one.split(":", 1) for one in headers.split(",")]
            emit(topic=topic, p=int(partition.split(":")[1]), o=int(offset.split(":")[1]),
                 k=to_text(key), v=to_text(value), h=[[n, to_text(v)] for n, v in pairs],
                 t=int(time_of.split(":")[1]))


def group(p):
    """A member is a process; a commit happens when it is asked to end."""
    state = {"seen": 0}
    lock = threading.Lock()

    def read(i, member):
        for line in member.stdout:
            if not line.startswith("Partition:"):
                continue
            partition, offset = line.strip().split("\t")[:2]
            with lock:
                state["seen"] += 1
                emit(member=i, p=int(partition.split(":")[1]), o=int(offset.split(":")[1]))

    members = []
    for i in range(p["members"]):
        member = subprocess.Popen(
            CONSUMER + ["--bootstrap-server", p["bootstrap"], "--topic", p["topic"],
                        "--group", p["group"], "--from-beginning",
                        "--command-property", "heartbeat.interval.ms=500",
                        "--formatter-property", "print.partition=true",
                        "--formatter-property", "print.offset=true"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        members.append(member)
        threading.Thread(target=read, args=(i, member), daemon=True).start()
    # The console consumer does not say what it was assigned.
    time.sleep(9)
    emit(ready=True)
    deadline = time.time() + 30
    while time.time() < deadline and state["seen"] < p["count"]:
        time.sleep(0.02)
    time.sleep(0.5)
    for member in members:
        member.send_signal(signal.SIGINT)
    for member in members:
        member.wait(20)


VERBS = {"produce": produce, "consume": consume, "group": group}
VERBS[sys.argv[1]](json.loads(sys.argv[2]))
