"""Runs other people's broker tests against a running broker and keeps the ledgers.

    suites.py run SUITE COLUMN HOST:PORT    SUITE and COLUMN as in SUITES below
    suites.py ledger                        writes a table for each suite from what was run

What was run is kept as JSON under target/foreign/conformance, one file per suite and column, so
that the columns of Apache Kafka (the suite's own ground) and ours can be run at different times.
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
0089 0090 0092 0093 0094 0098 0099 0100 0102 0106 0107 0109 0110 0111 0112 0113 0114 0116 0118
0120 0121 0122 0125 0127 0129 0130 0132 0137 0140 0153""".split()
ADMINISTRATION = "uses ACLs, which are not part of this version"
CLUSTER = "administration of disks, of which a node has one"
NOT_APPLICABLE = {
    "librdkafka": {"0080": ADMINISTRATION, "0081": ADMINISTRATION,
                   "0109": ADMINISTRATION},
    "kafka-python": {
        "test_create_describe_delete_acls": "ACLs are not part of this version",
        "test_alter_replica_log_dirs": CLUSTER,
        "test_list_config_resources": "ListConfigResources is not part of this version",
        "test_kafka_version_infer": "infers Kafka's version from an API that this version lacks",
        "test_kafka_consumer_offsets_for_time_old": "for brokers before 0.10.1",
        "test_create_partitions": "assigns replicas to brokers that one node does not have",
        "test_sasl_integration": "the suite skips it for a broker that it did not start itself",
        "SSLConnection": "needs a TLS listener, which is not part of this version",
    },
    "kgo": {
        "ShareGroup": "share groups are not part of this version",
        "RegexShare": "share groups are not part of this version",
        "BrokerTooOld": "wants a broker that does not advertise Produce 2; Kafka 4.4 does",
        "SCRAM": "SASL is not part of this version",
        "OAuth": "SASL is not part of this version",
    },
    "rust-rdkafka": {
        "test_configs": "asks node 0; nodes here are counted from 1",
        "test_admin::test_topics": "assigns replicas to node 0; nodes here are counted from 1",
        "test_metadata::test_metadata": "wants a single node, with the number 0, at port 9092",
        "test_future_producer_send": "looks for a broker at localhost:9092, wherever the others do",
        "test_base_producer_timeout": "wants a new topic to take longer than 100 ms",
    },
}

# What cannot be had of one node.
THREE = "creates topics with three copies"
ONE_NODE = {"librdkafka": {"0098": THREE, "0103": THREE}}

# Columns of each table: who was tested, and how.
SUITES = {
    "librdkafka": {"kafka": f"Apache Kafka {KAFKA}", "quorate": "one node",
                   "three": "three nodes", "three-consumer": "three, KIP-848"},
    "kafka-python": {"kafka": f"Apache Kafka {KAFKA}", "quorate": "one node",
                     "three": "three nodes"},
    "kgo": {"kafka": f"Apache Kafka {KAFKA}, three nodes", "three": "three nodes"},
    "rust-rdkafka": {"kafka": f"Apache Kafka {KAFKA}, three nodes", "three": "three nodes"},
}


def run_librdkafka(bootstrap, column):
    source = FOREIGN / "librdkafka" / "src"
    configuration = FOREIGN / "librdkafka" / f"test-{column}.conf"
    configuration.write_text(f"bootstrap.servers={bootstrap}\n")
    environment = dict(os.environ, RDKAFKA_TEST_CONF=str(configuration),
                       TEST_KAFKA_VERSION="4.0.0", KAFKA_PATH=str(FOREIGN / "kafka"),
                       LD_LIBRARY_PATH=f"{source}/src:{source}/src-cpp")
    if column.endswith("-consumer"):
        environment["TEST_CONSUMER_GROUP_PROTOCOL"] = "consumer"
    results = {}
    only = os.environ.get("ONLY")
    for number in only.split() if only else SMOKE + MORE:
        # As `make smoke` does: quick, and without the emulator of bad sockets.
        command = ["timeout", "--kill-after=5", "120", "./test-runner", "-p1", "-Q", "-E"]
        done = subprocess.run(command, cwd=source / "tests", env=dict(environment, TESTS=number),
                              capture_output=True, text=True, errors="replace")
        text = re.sub(r"\x1b\[[0-9;]*m|\(B", "", done.stdout + done.stderr)
        (RESULTS / f"librdkafka-{column}-{number}.log").write_text(text)
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


def run_kafka_python(bootstrap, _column):
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
            env=dict(os.environ, KAFKA_URI=f"kafka://{bootstrap.split(',')[0]}", KAFKA_VERSION="4.3.0"))
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


def run_kgo(bootstrap, column):
    """franz-go's tests of its client: all of pkg/kgo, those of a broker among them. ONLY is a
    pattern of Go's. RECORDS for each chain, MINUTES for all of it."""
    folder = FOREIGN / "kgo"
    log = RESULTS / f"kgo-{column}.log"
    only = os.environ.get("ONLY", "^Test")
    with log.open("w") as out:
        minutes = int(os.environ.get("MINUTES", "40"))
        subprocess.run(["timeout", "--kill-after=5", f"{minutes}m", folder / "kgo.test", "-test.v",
                        f"-test.timeout={minutes - 1}m", f"-test.run={only}"],
                       cwd=folder / "module" / "pkg" / "kgo", stdout=out, stderr=out,
                       env=dict(os.environ, KGO_SEEDS=bootstrap, KGO_LOG_LEVEL="none",
                                KGO_TEST_RECORDS=os.environ.get("RECORDS", "500000")))
    text = log.read_text(errors="replace")
    words = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
    results = {}
    for word, name in re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", text, re.M):
        why = ""
        if word != "PASS":
            said = re.search(rf"--- {word}: {re.escape(name)} .*\n\s+\S+_test.go:\d+: (.*)", text)
            why = said[1] if said else ""
        results[name] = [words[word], why[:200]]
    for name in re.findall(r"^=== RUN +(\S+)", text, re.M):
        results.setdefault(name, ["failed", "it did not end"])
    return of_brokers(folder, results)


def of_brokers(folder, results):
    """Without the tests that need no broker: they say nothing of one."""
    source = folder / "module" / "pkg" / "kgo"
    talking = re.compile(r"newTestClient|testClientOpts|getSeedBrokers|tmpTopic|adm\(\)")
    kept = {}
    for file in source.glob("*_test.go"):
        for test in re.split(r"^func (?=Test)", file.read_text(), flags=re.M)[1:]:
            if talking.search(test):
                kept[re.match(r"\w+", test)[0]] = True
    return {name: told for name, told in results.items() if name.split("/")[0] in kept}


def run_rust_rdkafka(bootstrap, column):
    """The integration tests that the crate rdkafka ships, built by setup/rust-rdkafka.sh."""
    results = {}
    folder = FOREIGN / "rust-rdkafka"
    for test in sorted(path.stem for path in (folder / "suite" / "tests").glob("test_*.rs")):
        log = RESULTS / f"rust-rdkafka-{column}-{test}.log"
        with log.open("w") as out:
            subprocess.run(["timeout", "--kill-after=5", "900", "cargo", "test", "--offline",
                            "--features", "dynamic-linking", "--no-fail-fast", "--test", test, "--",
                            "--test-threads=1"], cwd=folder / "suite", stdout=out, stderr=out,
                           env=dict(os.environ, KAFKA_HOST=bootstrap, KAFKA_VERSION="4.0.0",
                                    PKG_CONFIG_PATH=str(folder),
                                    LD_LIBRARY_PATH=str(FOREIGN / "librdkafka/src/src")))
        text = log.read_text(errors="replace")
        words = {"ok": "passed", "FAILED": "failed"}
        verdict = r"^test (\S+) \.\.\. (?:.*?)\b(ok|FAILED|ignored)(?:, [^\n]*)?$"
        found = re.findall(verdict, text, re.M | re.S)
        for name, word in found:
            why = ""
            if word == "FAILED":
                said = re.search(rf"---- {name} stdout ----\n(?:.*\n)*?.*panicked at .*\n(.*)", text)
                why = said[1] if said else ""
            results[f"{test}::{name}"] = [words.get(word, "skipped"), why[:200]]
        if not found:
            results[test] = ["failed", "it did not end, or could not be built"]
    return results


def verdict(suite, column, name, results):
    """(word, reason) for one test of one broker; nothing if it was not run there."""
    if name not in results:
        # librdkafka says `0103` of a test or `0103_transactions`, as it fares.
        short = [known for known in results if suite == "librdkafka" and known[:4] == name[:4]]
        if not short:
            return "", ""
        name = short[0]
    outcome, why = results[name]
    reasons = dict(NOT_APPLICABLE[suite])
    if column in ("kafka", "quorate"):
        reasons |= ONE_NODE.get(suite, {})
    for part, reason in reasons.items():
        if part in name and outcome in ("failed", "skipped"):
            return "not applicable", reason
    if outcome == "skipped":
        return "not applicable", f"skipped by the suite: {why}"
    return outcome, why


def told_before(file):
    """What a ledger says: for each test its cells by the title of their column."""
    if not file.exists():
        return {}
    rows = [[cell.strip() for cell in line.strip("| \n").split(" | ")]
            for line in file.read_text().splitlines() if line.startswith("| ")]
    titles = rows[0] if rows else []
    return {row[0].removesuffix(" (smoke)"): dict(zip(titles[1:], row[1:])) for row in rows[1:]}


def ledger(suite, title, introduction):
    titles = SUITES[suite]
    run = {}
    for column in titles:
        file = RESULTS / f"{suite}.{column}.json"
        run[column] = json.loads(file.read_text()) if file.exists() else {}
    before = told_before(HERE / f"{suite}.md")
    names = {}
    for name in [*(name for results in run.values() for name in results), *before]:
        key = name[:4] if suite == "librdkafka" else name
        names[key] = max(names.get(key, ""), name, key=len)
    lines = [f"| test | {' | '.join(titles.values())} | reason |", "|---" * (len(titles) + 2) + "|"]
    counts = {column: {} for column in titles}
    for name in names.values():
        cells, reasons = [], []
        told = before.get(name, {})
        for column, heading in titles.items():
            word, why = verdict(suite, column, name, run[column])
            # A broker that was not run on this machine keeps what was told of it.
            if not run[column] and told.get(heading):
                word, why = told[heading], told.get("reason", "").removeprefix("with Kafka: ")
            cells.append(word)
            if why:
                reasons.append(f"with Kafka: {why}" if column == "kafka" else why)
            if word:
                counts[column][word] = counts[column].get(word, 0) + 1
        ours = [why for why in reasons if not why.startswith("with Kafka")]
        reason = "; ".join(dict.fromkeys(ours or reasons)).replace("|", "\\|").replace("`", "'")
        smoke = " (smoke)" if suite == "librdkafka" and name[:4] in SMOKE else ""
        lines.append(f"| {name}{smoke} | {' | '.join(cells)} | {reason} |")
    summary = [f"- {titles[column]}: " + ", ".join(f"{n} {word}" for word, n in sorted(words.items()))
               for column, words in counts.items() if words]
    text = [f"# {title}", "", *introduction, "", *summary, "", *lines]
    (HERE / f"{suite}.md").write_text("\n".join(text) + "\n")
    print(suite, *summary, sep="\n")


def main():
    RESULTS.mkdir(parents=True, exist_ok=True)
    if sys.argv[1] == "run":
        suite, column, bootstrap = sys.argv[2:5]
        runner = {"librdkafka": run_librdkafka, "kafka-python": run_kafka_python,
                  "kgo": run_kgo, "rust-rdkafka": run_rust_rdkafka}[suite]
        file = RESULTS / f"{suite}.{column}.json"
        results = runner(bootstrap, column)
        if os.environ.get("ONLY") and file.exists():
            results = {**json.loads(file.read_text()), **results}
        file.write_text(json.dumps(results, indent=1))
        return
    ledger("librdkafka", "librdkafka's own tests", [
        "librdkafka 2.15.1 as it ships in npm's @confluentinc/kafka-javascript 1.10.1: its",
        "`make smoke` list, and every other test that needs nothing but a plain broker. Not among",
        "them are those of librdkafka's own mock broker (0009, 0104, 0105, 0117, 0138 to 0158 where",
        "their names say `mock`), of TLS, SASL and share groups, and those that start brokers.",
        "All brokers run with four partitions for a new topic, which the suite assumes. Written by",
        "`suites.py ledger`; a failure here is a failure, whoever's fault it is."])
    ledger("kafka-python", "kafka-python's integration tests", [
        "kafka-python 3.0.12 as it ships on PyPI, `test/integration`, against a broker that",
        "runs already (`KAFKA_URI`), told that it is Kafka 4.3. Written by `suites.py ledger`. On three",
        "nodes five of its tests pass or fail from run to run: its consumer forgets a subscription",
        "that is made while the answer to its first question for metadata is on its way, and",
        "`test_delete_records` takes what one poll gives for all (with three brokers of Kafka, too)."])
    ledger("kgo", "franz-go's tests of its client", [
        "franz-go 1.22.3 as the Go proxy has it, the tests of `pkg/kgo` that talk to a broker, with",
        "500,000 records for each chain of groups or transactions, as the suite has it (the column of",
        "Apache Kafka is of a run with 50,000). Written by `suites.py ledger`."])
    ledger("rust-rdkafka", "rust-rdkafka's integration tests", [
        "rdkafka 0.39 as crates.io has it, `tests/`, one test at a time. Written by",
        "`suites.py ledger`."])


main()
