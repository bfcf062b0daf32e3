"""kcat, the command-line client, behind the adapter protocol of ../README.md."""

import base64
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time


def to_bytes(text):
    return None if text is None else base64.b64decode(text)


def to_text(value):
    return None if value is None else base64.b64encode(value).decode()


def emit(**line):
    print(json.dumps(line), flush=True)


def produce(p):
    """One kcat a record, because headers belong to an invocation. No offsets come back."""
    for line in sys.stdin:
        r = json.loads(line)
        key, value = to_bytes(r["k"]), to_bytes(r["v"])
        command = ["kcat", "-P", "-b", p["bootstrap"], "-t", p["topic"], "-p", str(r["p"]),
                   "-z", p["codec"], "-X", f"topic.acks={p['acks']}",
                   "-X", f"enable.idempotence={str(p.get('idempotent', False)).lower()}",
                   "-X", f"message.max.bytes={p.get('max_bytes', 1_000_000)}"]
        for name, content in r["h"]:
            header = to_bytes(content)
            command += ["-H", name if header is None else f"{name}={header.decode()}"]
        with tempfile.NamedTemporaryFile() as file:
            if value:  # a file is one message, whatever bytes it holds
                file.write(value)
                file.flush()
                command += ([] if key is None else ["-k", key.decode()]) + [file.name]
                stdin = b""
            else:      # a line "key<TAB>" is a message with a key and an empty value; -Z makes it null
                command += (["-K", "\t"] if key is not None else []) + (
                    ["-Z"] if value is None else [])
                stdin = (key + b"\t" if key is not None else b"") + b"\n"
            done = subprocess.run(command, input=stdin, capture_output=True, timeout=60)
        if done.returncode == 0 and b"failed" not in done.stderr.lower():
            emit(p=r["p"], o=-1)
        else:
            emit(error=done.stderr.decode(errors="replace").strip()[-200:])


FORMAT = "%t|%p|%o|%T|%K|%S|%k%s%h\\n"
HEAD = re.compile(rb"([^|]*)\|(\d+)\|(-?\d+)\|(-?\d+)\|(-?\d+)\|(-?\d+)\|")


def records(output):
    at = 0
    while at < len(output):
        head = HEAD.match(output, at)
        topic, (p, o, t, k, v) = head[1].decode(), (int(head[i]) for i in range(2, 7))
        at = head.end()
        key = None if k < 0 else output[at:at + k]
        at += max(k, 0)
        value = None if v < 0 else output[at:at + v]
        at += max(v, 0)
        end = output.index(b"\n", at)
        headers = []
        for one in filter(None, output[at:end].split(b",")):
            name, content = one.split(b"=", 1)
            headers.append([name.decode(), None if content == b"NULL" else to_text(content)])
        at = end + 1
        yield {"topic": topic, "p": p, "o": o, "t": t, "k": to_text(key), "v": to_text(value),
               "h": headers}


def consume(p):
    for topic in p["topics"]:
        done = subprocess.run(
            ["kcat", "-C", "-q", "-e", "-b", p["bootstrap"], "-t", topic, "-o", "beginning",
             "-X", "fetch.message.max.bytes=4000000",
             # It asks beyond each partition's end before it stops; there are hundreds.
             "-X", "fetch.wait.max.ms=20", "-f", FORMAT],
            capture_output=True, timeout=90)
        if done.returncode != 0:
            raise SystemExit(done.stderr.decode())
        for record in records(done.stdout):
            emit(**record)


def lookup(p):
    for t in p["times"]:
        done = subprocess.run(["kcat", "-Q", "-b", p["bootstrap"], "-t", f"{p['topic']}:0:{t}"],
                              capture_output=True, timeout=30, text=True)
        emit(t=t, o=int(re.search(r"offset (-?\d+)", done.stdout)[1]))


def group(p):
    """A member is a process; a commit happens when it is asked to end."""
    state = {"seen": 0, "owned": {}, "ready": False}
    lock = threading.Lock()

    def follow(i, member):
        for line in member.stderr:
            if b"rebalanced" in line:
                with lock:
                    state["owned"][i] = b"assigned" in line and b"[" in line.split(b"assigned")[1]

    def read(i, member):
        for line in member.stdout:
            partition, offset = line.split()
            with lock:
                state["seen"] += 1
                emit(member=i, p=int(partition), o=int(offset))

    members = []
    for i in range(p["members"]):
        member = subprocess.Popen(
            ["kcat", "-G", p["group"], "-b", p["bootstrap"], "-u", "-f", "%p %o\\n",
             "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=10000",
             "-X", "heartbeat.interval.ms=500", p["topic"]],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        members.append(member)
        for job in (follow, read):
            threading.Thread(target=job, args=(i, member), daemon=True).start()
    deadline = time.time() + 90
    while time.time() < deadline and state["seen"] < p["count"]:
        with lock:
            if not state["ready"] and sum(state["owned"].values()) == p["members"]:
                state["ready"] = True
                emit(ready=True)
        time.sleep(0.02)
    time.sleep(0.5)
    for member in members:
        member.send_signal(signal.SIGINT)
    for member in members:
        member.wait(20)


VERBS = {"produce": produce, "consume": consume, "lookup": lookup, "group": group}
VERBS[sys.argv[1]](json.loads(sys.argv[2]))
