"""Runs other people's broker tests against a running broker and keeps the ledgers.

    suites.py run (librdkafka|kafka-python) (kafka|quorate) HOST:PORT
    suites.py ledger            writes librdkafka.md and kafka-python.md from what was run

What was run is kept as JSON under target/foreign/conformance, one file per suite and broker, so
that the column of Apache Kafka (the suite's own ground) and ours can be run at different times.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
FOREIGN = HERE.parent.parent / "target" / "foreign"
RESULTS = FOREIGN / "conformance"
KAFKA = "4.4.0"

# librdkafka's own choice for `make smoke`, then every other test that talks to a plain broker and
# needs nothing but one: no TLS, SASL, shell tools, share groups or second node.
SMOKE = "0000 0001 0004 0012 0017 0022 0030 0039 0049 0087 0103".split()
MORE = """0002 0003 0005 0007 0008 0011 0013 0014 0015 0018 0019 0020 0021 0026 0028 0029 0031
0033 0034 0036 0038 0040 0041 0042 0044 0047 0048 0050 0051 0053 0054 0055 0056 0057 0059 0060
0061 0063 0064 0065 0067 0069 0070 0073 0074 0075 0079 0080 0081 0082 0083 0084 0085 0086 0088
0089 0090 0092 0093 0094 0099 0100 0106 0107 0110 0111 0112 0113 0114 0116 0118 0120 0121 0122
0125 0127 0129 0130 0132 0137 0140 0153""".split()
TRANSACTIONS = "transactions are not part of this version"
ADMINISTRATION = "uses ACLs, group administration or other APIs that are not part of this version"
GROUPS = "administration of groups is not part of this version"
CLUSTER = "administration of a cluster is not part of this version, which has one node"
NOT_APPLICABLE = {
    "librdkafka": {
        "0103": TRANSACTIONS, "0098": TRANSACTIONS, "0129": TRANSACTIONS,
        "0080": ADMINISTRATION, "0081": ADMINISTRATION,
    },
    "kafka-python": {
        "test_create_describe_delete_acls": "ACLs are not part of this version",
        "test_describe_group": GROUPS, "test_delete_groups": GROUPS,
        "test_elect_leaders": CLUSTER, "test_alter_replica_log_dirs": CLUSTER,
        "test_describe_metadata_quorum": CLUSTER, "partition_reassignments": CLUSTER,
        "test_list_config_resources": "ListConfigResources is not part of this version",
        "test_transactional": TRANSACTIONS,
        "test_kafka_version_infer": "infers Kafka's version from an API that this version lacks",
        "test_kafka_consumer_offsets_for_time_old": "for brokers before 0.10.1",
        "test_create_partitions": "assigns replicas to brokers that one node does not have",
        "test_sasl_integration": "the suite skips it for a broker that it did not start itself",
        "SSLConnection": "needs a TLS listener, which is not part of this version",
    },
}


def run_librdkafka(bootstrap):
    source = FOREIGN / "librdkafka" / "src"
    configuration = FOREIGN / "librdkafka" / "test.conf"
    configuration.write_text(f"bootstrap.servers={bootstrap}\n")
    environment = dict(os.environ, RDKAFKA_TEST_CONF=str(configuration),
                       TEST_KAFKA_VERSION="4.0.0",
                       LD_LIBRARY_PATH=f"{source}/src:{source}/src-cpp")
    results = {}
    only = os.environ.get("ONLY")
    for number in only.split() if only else SMOKE + MORE:
        # As `make smoke` does: quick, and without the emulator of bad sockets.
        command = ["timeout", "--kill-after=5", "120", "./test-runner", "-p1", "-Q", "-E"]
        done = subprocess.run(command, cwd=source / "tests", env=dict(environment, TESTS=number),
                              capture_output=True, text=True, errors="replace")
        text = re.sub(r"\x1b\[[0-9;]*m|\(B", "", done.stdout + done.stderr)
        (RESULTS / f"librdkafka-{number}.log").write_text(text)
        name = re.search(rf"({number}_[_a-z0-9]*)", text)
        if done.returncode in (124, 137):
            outcome, why = "failed", "did not end within two minutes"
        elif done.returncode == 0 and re.search(r"SKIPPED|SKIPPING", text) and not re.search(
                rf"{number}[^\n]*PASSED", text):
            outcome = "skipped"
            why = (re.search(r"SKIPPING TEST: ([^\n]*)", text) or [None, "by the suite itself"])[1]
        elif done.returncode == 0:
            outcome, why = "passed", ""
        else:
            failure = re.search(r"TEST FAILURE[^\n]*\n(?:###[^\n]*\n)?([^\n]*)", text)
            reason = re.search(r"(?:FAIL: |assert[^\n]*: |failed: )([^\n]*)", text)
            found = failure or reason
            outcome, why = "failed", found[1].strip("# ") if found else f"exit {done.returncode}"
        results[name[1] if name else number] = [outcome, why[:200]]
        print(number, outcome, why[:150], flush=True)
    return results


def complete(suite):
    """Puts in what the package leaves out: two modules, and a folder that the fixtures look for."""
    (suite / "servers" / "4.3.0" / "kafka-bin").mkdir(parents=True, exist_ok=True)
    (suite / "test" / "__init__.py").touch()
    (suite / "test" / "service.py").write_text("""
class ExternalService:  # a broker that somebody else starts and stops
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass

    def stop(self):
        pass


class SpawnedService:
    pass
""")


def run_kafka_python(bootstrap):
    folder = FOREIGN / "kafka-python-suite"
    if not folder.exists():
        subprocess.run([FOREIGN / "python/bin/pip", "download", "-q", "--no-deps", "--no-binary",
                        ":all:", "-d", folder, "kafka-python==3.0.12"], check=True)
        with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
            archive.extractall(folder)
    suite = next(folder.glob("kafka*/"))
    complete(suite)
    report = RESULTS / "kafka-python.xml"
    report.unlink(missing_ok=True)
    only = os.environ.get("ONLY", "test/integration")
    log = RESULTS / "kafka-python.log"
    with log.open("w") as out:
        subprocess.run(
            ["timeout", "--kill-after=5", "1500", FOREIGN / "python/bin/python", "-m", "pytest",
             "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *only.split()],
            cwd=suite, stdout=out, stderr=out,
            env=dict(os.environ, KAFKA_URI=f"kafka://{bootstrap}", KAFKA_VERSION="4.3.0"))
    results = {}
    for case in xml.parse(report).iter("testcase"):
        name = f"{case.get('classname').split('.')[-1]}::{case.get('name')}"
        outcome, why = "passed", ""
        for child in case:
            if child.tag in ("failure", "error"):
                outcome, why = "failed", child.get("message", "")
            elif child.tag == "skipped":
                outcome, why = "skipped", child.get("message", "")
        why = re.sub(r"\s+", " ", why)
        results[name] = [outcome, why[:200]]
        print(name, outcome, why[:150], flush=True)
    return results


def verdict(suite, name, results):
    """(word, reason) for one test of one broker."""
    outcome, why = results.get(name, ["not run", ""])
    for part, reason in NOT_APPLICABLE[suite].items():
        if part in name and outcome in ("failed", "skipped"):
            return "not applicable", reason
    if outcome == "skipped":
        return "not applicable", f"skipped by the suite: {why}"
    return outcome, why


def told_before(file):
    """The rows of a ledger: test, then the word for Kafka, the word for Quorate, the reason."""
    rows = [line.strip("| \n").split(" | ") for line in file.read_text().splitlines()
            if line.startswith("| ") and not line.startswith("| test ")]
    return {row[0].removesuffix(" (smoke)"): (row[1], row[2].rstrip(" |"),
                                              row[3] if len(row) > 3 else "") for row in rows}


def ledger(suite, title, introduction):
    columns = {}
    for broker in ("kafka", "quorate"):
        file = RESULTS / f"{suite}.{broker}.json"
        columns[broker] = json.loads(file.read_text()) if file.exists() else {}
    before = told_before(HERE / f"{suite}.md")
    names = list(dict.fromkeys([*columns["kafka"], *columns["quorate"]] or before))
    lines = [f"# {title}", "", *introduction, "",
             f"| test | Apache Kafka {KAFKA} | Quorate | reason |", "|---|---|---|---|"]
    counts = {}
    for name in names:
        theirs, their_why = verdict(suite, name, columns["kafka"])
        ours, our_why = verdict(suite, name, columns["quorate"])
        # A broker that was not run on this machine keeps what was told of it.
        # librdkafka says `0103` of a test or `0103_transactions`, as it fares.
        known = before.get(name) or before.get(name[:4])
        if known and not columns["kafka"]:
            theirs, their_why = known[0], None
        if known and not columns["quorate"]:
            ours, our_why = known[1], known[2]
        smoke = " (smoke)" if suite == "librdkafka" and name[:4] in SMOKE else ""
        for broker, word in (("kafka", theirs), ("quorate", ours)):
            for group in [broker] + ([broker + " smoke"] if smoke else []):
                counts.setdefault(group, {}).setdefault(word, 0)
                counts[group][word] += 1
        reason = our_why or (f"with Kafka: {their_why}" if their_why else "")
        reason = reason.replace("|", "\\|").replace("`", "'")
        lines.append(f"| {name}{smoke} | {theirs} | {ours} | {reason} |")
    summary = []
    for group, words in counts.items():
        told = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
        summary.append(f"- {group}: {told}")
    lines[2 + len(introduction):2 + len(introduction)] = ["", *summary]
    (HERE / f"{suite}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(summary))


def main():
    RESULTS.mkdir(parents=True, exist_ok=True)
    if sys.argv[1] == "run":
        suite, broker, bootstrap = sys.argv[2:5]
        runner = {"librdkafka": run_librdkafka, "kafka-python": run_kafka_python}[suite]
        file = RESULTS / f"{suite}.{broker}.json"
        results = runner(bootstrap)
        if os.environ.get("ONLY") and file.exists():
            results = {**json.loads(file.read_text()), **results}
        file.write_text(json.dumps(results, indent=1))
    else:
        ledger("librdkafka", "librdkafka's own tests", [
            "librdkafka 2.15.1 as it ships in npm's @confluentinc/kafka-javascript 1.10.1: its",
            "`make smoke` list, and every other test that needs nothing but a plain broker.",
            "Both brokers run with `num.partitions=4`, which the suite assumes. Written by",
            "`suites.py ledger`; a failure here is a failure, whoever's fault it is."])
        ledger("kafka-python", "kafka-python's integration tests", [
            "kafka-python 3.0.12 as it ships on PyPI, `test/integration`, against a broker that",
            "runs already (`KAFKA_URI`), told that it is Kafka 4.3. Written by `suites.py ledger`."])


main()
