"""What rebalances cost, beside Apache Kafka: same machine, same run, same clients, same timeouts.

    rebalance.py [--rows kafka,quorate] [--protocols eager,cooperative,consumer] [--members 100]
                 [--partitions 1000] [--times 3] [--session 10] [--interval 200] [--json FILE]

A group of franz-go clients, all in one process, consumes a topic into every partition of which a
record is written each interval. Then, in turns, `times` times:

- calm: nothing happens, for as long as a session. What is stopped here is the measurement's noise.
- leave: a member closes; then join: it comes back, as a new one.
- restart: the one static member closes and starts anew at once, well within its session.
- storm: the process of all members is stopped (SIGSTOP) for longer than their sessions, and goes on
  (SIGCONT). All have timed out at once, and all come back. Counted from SIGCONT on: the time before
  is the clients' own absence.

A partition stands still while it has no owner (from a client's hook for revoked or lost partitions
to the next hook for assigned ones), and while a record waits in it that nobody has consumed yet; the
end is always a record that was consumed, which nobody had before. Of partitions that are not handed
over, waiting counts from 0.3 s on. The table tells the sum over all partitions, and how long they
had no owner by the hooks alone. Rebalances are the generations (classic) in which members were, or
the epochs (KIP-848) in which a member was given partitions or gave some up, without that of the
beginning; behind it, by how much the group's epoch rose.

Sessions and heartbeats are the same with both brokers; Kafka's other settings are its defaults, and
ours are those of `serve`: a new group waits three seconds for members.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

import compare
from compare import FOREIGN, Broker

PROGRAM = FOREIGN / "rebalance" / "rebalance"
HEARTBEAT, CONSUMER_HEARTBEAT = 3.0, 5.0
WHAT = {"calm": "nothing", "leave": "a member leaves", "join": "a member joins",
        "restart": "a static member restarts", "storm": "all time out"}
PROTOCOLS = {"eager": "classic, eager", "cooperative": "classic, cooperative",
             "consumer": "KIP-848"}


def settings(kind, session):
    """Sessions of the classic protocol are the client's choice, those of KIP-848 the broker's."""
    milliseconds = int(session * 1000)
    if kind == "kafka":
        return [f"group.consumer.{name}={milliseconds}"
                for name in ("session.timeout.ms", "min.session.timeout.ms")]
    return [f"group.consumer_session_timeout={milliseconds}ms", "group.initial_rebalance_delay=3s"]


ROWS = {"kafka": ("Kafka 4.4", "kafka", []), "quorate": ("Quorate", "quorate", []),
        "up": ("Quorate, no initial delay", "quorate", ["group.initial_rebalance_delay=0s"])}


class Program:
    """One verb of the Go program, pinned to the clients' core; commands and answers are lines."""

    def __init__(self, verb, **parameters):
        self.process = subprocess.Popen(
            ["taskset", "-c", "1", PROGRAM, verb, json.dumps(parameters)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the clients ended")
        return json.loads(line)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        return self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Group:
    def __init__(self, broker, protocol, arguments, group):
        self.broker, self.arguments = broker, arguments
        heartbeat = CONSUMER_HEARTBEAT if protocol == "consumer" else HEARTBEAT
        self.members = Program(
            "members", bootstrap=broker.address, topic="cost", group=group, protocol=protocol,
            members=arguments.members, partitions=arguments.partitions,
            interval=arguments.interval, session=int(arguments.session * 1000),
            heartbeat=int(HEARTBEAT * 1000), quiet=int(heartbeat * 1000) + 1500)

    def measure(self, what, act):
        """What the members saw from before `act` until they had come to rest."""
        before = self.members.ask("begin")["epochs"]
        with compare.Span(self.broker.pids) as span:
            act()
            settled = self.members.ask("settle")["settled"]
        ended = self.members.ask("end")
        result = ended["watch"]
        result["at_rest"] = settled
        # The epoch of the beginning is among those that were seen.
        result["epochs"] = len({*(result["epochs"] or [])} - {before[0]})
        result["rise"] = ended["epochs"][0] - max(before[0], 0)
        result["processor"] = span.broker
        print(f"{time.strftime('%H:%M:%S')}   {what}: {result}", file=sys.stderr)
        return result

    def stopped(self):
        """All members time out."""
        pid = self.members.process.pid
        os.kill(pid, signal.SIGSTOP)
        # Kafka looks at sessions of KIP-848 by timers that may be late by a tick; a second is much.
        time.sleep(self.arguments.session + 3)
        since = time.time_ns()
        os.kill(pid, signal.SIGCONT)
        self.members.ask("since", since)

    def run(self):
        last = self.arguments.members - 1
        found = {"start": [self.measure("start", lambda: self.members.ask("start"))]}
        for place in range(self.arguments.times):
            for what, act in (
                ("calm", lambda: time.sleep(self.arguments.session)),
                ("leave", lambda: self.members.ask("leave", place + 1)),
                ("join", lambda: self.members.ask("join", place + 1)),
                ("restart", lambda: self.members.ask("restart", last)),
                ("storm", self.stopped),
            ):
                found.setdefault(what, []).append(self.measure(what, act))
        return found


def measure(row, arguments):
    _, kind, extra = ROWS[row]
    results = {}
    with Broker(kind, settings(kind, arguments.session) + extra, 1) as broker:
        with Program("create", bootstrap=broker.address, topic="cost",
                     partitions=arguments.partitions) as program:
            program.answer()
        with Program("trickle", bootstrap=broker.address, topic="cost",
                     partitions=arguments.partitions, interval=arguments.interval) as trickle:
            trickle.answer()
            for protocol in arguments.protocols.split(","):
                print(f"{time.strftime('%H:%M:%S')} {row} {protocol}", file=sys.stderr)
                group = Group(broker, protocol, arguments, f"group-{protocol}")
                with group.members:
                    results[protocol] = group.run()
            trickle.process.stdin.close()
            results["trickle"] = trickle.answer()
        results["resident"] = compare.resident(broker.pids)
    return results


def middle(found, name):
    return statistics.median(result[name] for result in found)


def ratio(ours, theirs):
    return f"{ours / theirs:.2f}" if theirs > 0 else "-"


def table(results, arguments):
    rows = arguments.rows.split(",")
    names = [ROWS[row][0] for row in rows]
    yield ("| protocol | | " + " | ".join(
        f"{name}: stopped (partition-s)" for name in names) + " | of Kafka's | " + " | ".join(
        f"{name}: stops, longest (s); without owner (partition-s)" for name in names) + " | "
        + " | ".join(f"{name}: rebalances (epoch rose by)" for name in names) + " | "
        + " | ".join(f"{name}: at rest after (s); broker CPU-s" for name in names) + " |")
    yield "|" + "---|" * (3 + 4 * len(rows))
    for protocol in arguments.protocols.split(","):
        for what, words in WHAT.items():
            found = [results[row][protocol][what] for row in rows]
            stopped = [middle(one, "stopped") for one in found]
            of = ratio(stopped[rows.index("quorate")], stopped[rows.index("kafka")]) \
                if {"kafka", "quorate"} <= set(rows) else ""
            cells = [f"{value:,.1f}" for value in stopped] + [of]
            cells += [f"{middle(one, 'stops'):.0f}, {middle(one, 'longest'):.1f}; "
                      f"{middle(one, 'unowned'):,.1f}" for one in found]
            cells += [f"{middle(one, 'epochs'):.0f} ({middle(one, 'rise'):.0f})" for one in found]
            cells += [f"{middle(one, 'settled'):.1f}; {middle(one, 'processor'):.2f}"
                      + ("" if all(result["at_rest"] for result in one) else " (never at rest)")
                      for one in found]
            yield f"| {PROTOCOLS[protocol]} | {words} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="kafka,quorate")
    parser.add_argument("--protocols", default="eager,cooperative,consumer")
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--session", type=float, default=10, help="seconds")
    parser.add_argument("--interval", type=int, default=200, help="milliseconds")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if arguments.members < arguments.times + 2:
        parser.error("another member leaves each time, and the last one is static")
    print(f"load before: {os.getloadavg()[0]:.2f} (the machine should be quiet)", file=sys.stderr)
    results = {}
    for row in arguments.rows.split(","):
        results[row] = measure(row, arguments)
        if arguments.json:
            pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1))
    print("\n".join(table(results, arguments)))
    for row in arguments.rows.split(","):
        starts = ", ".join(
            f"{PROTOCOLS[protocol]} {results[row][protocol]['start'][0]['epochs']} rebalances, "
            f"{results[row][protocol]['start'][0]['settled']:.1f} s"
            for protocol in arguments.protocols.split(","))
        print(f"\n{ROWS[row][0]}: all members start: {starts}; the latest acknowledgement of a "
              f"record came after {results[row]['trickle']['latest_ms']} ms.")
    print(f"\n{arguments.members} members, {arguments.partitions} partitions, a record into each "
          f"every {arguments.interval} ms, sessions of {arguments.session:g} s, heartbeats of "
          f"{HEARTBEAT:g} s (KIP-848: {CONSUMER_HEARTBEAT:g} s); medians of {arguments.times}. One "
          "node on core 0, clients on core 1.")


if __name__ == "__main__":
    main()
