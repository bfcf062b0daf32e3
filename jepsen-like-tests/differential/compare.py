"""The same requests to Apache Kafka and to Quorate, and every difference between their answers.

    compare.py FOREIGN HARNESS [SCENARIO...]

FOREIGN is where Kafka's jars and the compiled `Wire` are, which speaks with both by Kafka's own
generated messages; HARNESS is the binary of jepsen-like-tests, which starts a fresh node of each.
Scenarios are those of `scenarios.py`. Writes differences.md, and fails if a difference has no reason
in `reasons.py`.
"""

import itertools
import json
import os
import pathlib
import queue
import re
import subprocess
import sys
import threading

import reasons
import scenarios
import steps
from messages import Messages

HERE = pathlib.Path(__file__).resolve().parent
# What each broker draws for itself: told apart by the order in which it appears.
DRAWN = {
    "producerId",
    "memberId",
    "leader",
    "clusterId",
    "controllerId",
    "nodeId",
    "leaderId",
    "hostId",
    "currentProducerId",
    "coordinatorId",
}
# What the script itself says, or nobody.
GIVEN = (-1, "", None, 4_000_000, "nobody", *steps.MEMBERS)
# What says nothing of the broker's rules.
IGNORED = {
    "throttleTimeMs",
    "host",
    "port",
    "clientHost",
    "leaderEpoch",
    "currentLeaderEpoch",
    "finalizedFeaturesEpoch",
    "errorMessage",
}
TIMES = {
    "logAppendTimeMs",
    "transactionStartTimeMs",
    "lastTimestamp",
    "startTimestamp",
    "timestamp",
}
# How a broker counts them, and how often, is its own affair; not whether they are positive.
EPOCHS = {"memberEpoch", "groupEpoch", "assignmentEpoch"}
# Lists of these are sets: their order is nobody's promise.
KEYS = (
    "name",
    "topic",
    "topicId",
    "groupId",
    "group",
    "transactionalId",
    "partitionIndex",
    "partition",
    "apiKey",
    "memberId",
    "key",
    "index",
    "producerId",
    "isolationLevel",
)


class Broker:
    """One broker, and what it has answered: (step, answer) in the order of the script."""

    def __init__(self, name, classes, address, messages):
        self.name, self.address, self.messages = name, address, messages
        self.steps, self.drawn, self.scenario = [], {}, ""
        self.ids = itertools.count()
        self.waiting = {}
        self.wire = subprocess.Popen(
            ["java", "-Xmx128m", "-cp", classes, "Wire"],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.wire.stdout:
            told = json.loads(line)
            self.waiting[told["id"]].put(told)

    def begin(self, api, version, body, connection="first"):
        """Sends, and does not wait. `end` gives the answer."""
        number = next(self.ids)
        self.waiting[number] = queue.Queue()
        asked = {
            "id": number,
            "address": self.address,
            "connection": connection,
            "api": api,
            "version": version,
            "body": self.messages.body(api, version, body),
        }
        self.wire.stdin.write(json.dumps(asked) + "\n")
        self.wire.stdin.flush()
        return number

    def end(self, number):
        told = self.waiting[number].get(timeout=90)
        return told.get("answer", {"closed": bool(told.get("closed"))}), told.get("closed")

    def ask(self, step, api, version, body, connection="first", until=None):
        """One step of the script. With `until`, asks again until the answer is as that says: what
        happens on the way (a coordinator that loads, metadata on their way) is nobody's promise."""
        answer = None
        for _ in range(100):
            answer, closed = self.end(self.begin(api, version, body, connection))
            if closed and "Exception" in closed and "EOF" not in closed and "Socket" not in closed:
                sys.exit(f"{self.name}, {step}: {closed}")
            if until is None or until(answer):
                break
            threading.Event().wait(0.1)
        self.note(f"{step} ({api} v{version})", answer)
        return answer

    def note(self, step, answer):
        if os.environ.get("SHOW") and os.environ["SHOW"] in step:
            print(self.name, step, json.dumps(answer), file=sys.stderr)
        self.steps.append((f"{self.scenario}: {step}", self.canonical(answer)))

    def canonical(self, value, field=""):
        if isinstance(value, dict):
            return {
                name: self.canonical(part, name)
                for name, part in value.items()
                if name not in IGNORED
            }
        if isinstance(value, list):
            parts = [self.canonical(part, field) for part in value]
            if all(isinstance(part, dict) for part in parts):
                parts.sort(key=lambda part: [str(part.get(key, "")) for key in KEYS])
            elif field in ("authorizedOperations",):
                parts.sort()
            return parts
        if field in TIMES and isinstance(value, int) and value > 0:
            return "a time"
        if field in EPOCHS and value > 0:
            return "an epoch"
        if field == "topicId":
            return value if value in steps.NO_TOPICS else "an id"
        if field in DRAWN and value not in GIVEN and (value != 0 or field == "producerId"):
            known = self.drawn.setdefault(field, {})
            return f"{field} {known.setdefault(value, len(known) + 1)}"
        return value


def differences(path, theirs, ours):
    """(path, Kafka's value, ours) wherever two answers are not the same."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in dict.fromkeys([*theirs, *ours]):
            yield from differences(
                f"{path}.{name}".lstrip("."), theirs.get(name, "absent"), ours.get(name, "absent")
            )
    elif isinstance(theirs, list) and isinstance(ours, list):
        named = [
            {label(one, place): one for place, one in enumerate(many)} for many in (theirs, ours)
        ]
        for name in dict.fromkeys([*named[0], *named[1]]):
            yield from differences(
                f"{path}[{name}]", named[0].get(name, "absent"), named[1].get(name, "absent")
            )
    elif theirs != ours:
        yield path, theirs, ours


def label(one, place):
    """What an entry of a list is told by: what it is about, or where it stands."""
    about = [str(one[key]) for key in KEYS if key in one] if isinstance(one, dict) else []
    return " ".join(about) or place


def reason_for(step, path):
    for pattern, where, why in reasons.REASONS:
        if re.search(pattern, step) and re.search(where, path):
            return why
    return None


def shown(value):
    text = json.dumps(value) if isinstance(value, (dict, list)) else str(value)
    return text.replace("|", "\\|")[:80]


def main():
    foreign, harness, *only = sys.argv[1:]
    hosts = [
        subprocess.Popen(
            [harness, "host", "--broker", kind],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for kind in ("kafka", "quorate")
    ]
    kafka, quorate = (host.stdout.readline().split()[0] for host in hosts)
    libraries = pathlib.Path(foreign) / "kafka" / "libs"
    messages = Messages(next(libraries.glob("kafka-clients-*.jar")))
    classes = f"{libraries}/*:{foreign}/wire"
    brokers = [
        Broker("kafka", classes, kafka, messages),
        Broker("quorate", classes, quorate, messages),
    ]
    chosen = [one for one in scenarios.ALL if not only or one.__name__ in only]
    for scenario in chosen:
        for broker in brokers:
            broker.scenario = scenario.__name__
            print(f"{scenario.__name__} with {broker.name}", file=sys.stderr, flush=True)
            scenario(broker)
    rows, unexplained, fields = [], 0, 0
    for (step, theirs), (same, ours) in zip(brokers[0].steps, brokers[1].steps, strict=True):
        assert step == same, f"the scripts went apart: {step}, {same}"
        fields += json.dumps(theirs).count(":")
        for path, one, other in differences("", theirs, ours):
            why = reason_for(step, path)
            unexplained += why is None
            rows.append(
                f"| {step} | {path} | {shown(one)} | {shown(other)} | {why or '**none**'} |"
            )
            if why is None:
                print(rows[-1])
    text = [
        "# Answers of Apache Kafka 4.4.0 and of Quorate, field by field",
        "",
        "One fresh node each, the same requests, encoded and decoded by Kafka's own generated",
        "messages; ids that a broker draws are compared by their order. Written by",
        "`run.sh differential`, which fails if a difference has no reason here.",
        "",
        f"- {len(brokers[0].steps)} answers with {fields} fields were compared",
        f"- {len(rows)} fields differ, {unexplained} of them without a reason",
        "",
        "| step | field | Apache Kafka | Quorate | reason |",
        "|---|---|---|---|---|",
        *rows,
    ]
    if not only:
        (HERE / "differences.md").write_text("\n".join(text) + "\n")
    print("\n".join(text[6:8]))
    for host in hosts:
        host.stdin.close()
        host.wait(60)
    sys.exit(unexplained > 0)


main()
