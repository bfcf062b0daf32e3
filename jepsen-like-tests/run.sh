#!/bin/bash
# Other people's clients, tests and load against our released binary; installs what it needs.
#
#   run.sh [clients|kill9|rounds|cuts|failover|many|robustness|alerts|conformance|differential|
#           streams|copier|exactly-once|bench|transactions|rebalance|compaction|all|install] [options]
#
# Options go to the part that is named: --broker kafka runs the same against Apache Kafka, the
# oracle; --bootstrap HOST:PORT uses a broker that runs already (clients, conformance);
# --only java,kcat chooses clients; --rounds N kills. Everything foreign lies under target/foreign.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup/foreign.sh"
cd "$root"

part="${1:-all}"
shift || true
harness="$root/target/release/jepsen-like-tests"

install() {
  for tool in "$@"; do "$here/setup/$tool.sh"; done
}

build() {
  cargo build --quiet --release -p quorate -p jepsen-like-tests
}

clients() {
  install kafka kcat python node platformatic go rskafka
  "$harness" clients "$@"
}

kill9() {
  "$harness" kill-nine "$@"
}

# Three nodes, and one fault after the other; a fourth node where one is to be replaced, which has
# a cluster of its own. Two disks are lost, one after the other. Kafka's own producer writes as well.
rounds() {
  install kafka
  "$harness" rounds --java --only leader,controller,two,pause,all,wipe,wipe "$@"
  "$harness" rounds --java --only replace --set replace.after=30s "$@"
}

# Cuts between nodes need a network for each, which not every machine grants.
cuts() {
  if networks_are_granted; then
    "$harness" rounds --only cut,mute "$@"
  else
    say "no network namespaces here: cuts between nodes are left out"
  fi
}

# A namespace, a pair of interfaces into it, and a bridge: what src/namespaces.rs asks for.
networks_are_granted() {
  local granted=no
  ip netns add quorate-probe 2>/dev/null &&
    ip link add quorate-probe0 type veth peer name eth0 netns quorate-probe 2>/dev/null &&
    ip link add quorate-probe1 type bridge 2>/dev/null && granted=yes
  ip link del quorate-probe1 2>/dev/null || true
  ip link del quorate-probe0 2>/dev/null || true
  ip netns del quorate-probe 2>/dev/null || true
  [ $granted = yes ]
}

# From the death of a leader to the next acknowledgement, with us and with Kafka.
failover() {
  install kafka
  for broker in quorate kafka; do
    "$harness" rounds --broker "$broker" --only leader --struck 15000 --times 20 "$@"
  done
}

# 1,000 and 10,000 partitions on three nodes: what they cost idle, and a controller that dies.
many() {
  for partitions in 1000 10000; do
    "$harness" many --partitions "$partitions" "$@"
  done
}

robustness() {
  "$harness" robustness "$@"
}

# A consumer stalls and goes on: the alert of `quorate generate alerts` fires in a real Prometheus,
# and clears.
alerts() {
  if package promtool prometheus; then
    "$harness" alerts "$@"
  else
    say "SKIPPED: alerts, since the Debian package prometheus cannot be had here"
  fi
}

# Suites against a broker with four partitions for a new topic, as librdkafka's tests assume:
# --column as in suites.py (kafka and quorate are one node, three and three-consumer are three nodes),
# --suites those of suites.py.
conformance() {
  install python
  local column=quorate bootstrap="" suites_wanted="librdkafka kafka-python"
  while [ $# -gt 0 ]; do
    case "$1" in
    --broker | --column) column="$2" && shift 2 ;;
    --suites) suites_wanted="$2" && shift 2 ;;
    --bootstrap) bootstrap="$2" && shift 2 ;;
    *) say "conformance does not know $1" && return 2 ;;
    esac
  done
  local suites="$here/conformance/suites.py" host="" broker=quorate nodes=1
  for suite in $suites_wanted; do
    [ "$suite" = kafka-python ] || install "$suite"
  done
  if [ -z "$bootstrap" ]; then
    # `up` forms groups at once; Kafka waits three seconds for more members, and so do both here;
    # kafka-python asks for sessions of three seconds.
    # rust-rdkafka's tests assume three partitions.
    local partitions=4
    [ "$suites_wanted" = rust-rdkafka ] && partitions=3
    local settings=(--set topic.partitions=$partitions --set group.initial_rebalance_delay=3s
      --set group.session_timeout_min=1s)
    [ "$column" = kafka ] && broker=kafka settings=(--set num.partitions=$partitions
      --set group.min.session.timeout.ms=1000)
    case "$column $suites_wanted" in three* | *kgo* | *rust*) nodes=3 ;; esac
    coproc host { "$harness" host --broker "$broker" --nodes "$nodes" "${settings[@]}"; }
    read -r bootstrap _ <&"${host[0]}"
  fi
  for suite in $suites_wanted; do
    "$foreign/python/bin/python" "$suites" run "$suite" "$column" "$bootstrap"
  done
  [ -z "$host" ] || { eval "exec ${host[1]}>&-" && wait; }
  "$foreign/python/bin/python" "$suites" ledger
}

# The same requests to Apache Kafka and to us, and each difference with its reason.
differential() {
  install wire
  python3 "$here/differential/compare.py" "$foreign" "$harness" "$@"
}

# Exactly once by Kafka's own programs, over three nodes that are killed, as they are.
streams() {
  install python streams
  "$foreign/python/bin/python" "$here/streams/exactly.py" streams "$harness" \
    "$root/target/release/quorate" "$foreign/streams/libs/*:$foreign/streams/classes" "$@"
}
copier() {
  install python kafka
  "$foreign/python/bin/python" "$here/streams/exactly.py" copier "$harness" \
    "$root/target/release/quorate" "$foreign/kafka/libs/*" "$@"
}

# The same by small clients on franz-go and librdkafka, which keep books: nodes and clients are killed,
# stopped and cut off (--seconds N), and the simulator's checkers judge. --planted offsets-apart,
# offsets-early or half-abort is a bug of the clients, which they must find.
exactly-once() {
  if networks_are_granted; then
    install python exactly-once
    "$harness" exactly-once "$@"
  else
    say "no network namespaces here: exactly-once is left out"
  fi
}

bench() {
  install kafka python librdkafka
  "$foreign/python/bin/python" "$here/bench/compare.py" "$@"
}

# What transactions cost, with us and with Kafka.
transactions() {
  install kafka python
  "$foreign/python/bin/python" "$here/bench/transactions.py" "$@"
}

# What rebalances cost, with us and with Kafka.
rebalance() {
  install kafka rebalance
  python3 "$here/bench/rebalance.py" "$@"
}

# What compaction costs, with us and with Kafka. It fills the disk: nothing of that stays.
compaction() {
  install kafka python
  trap 'rm -rf "${foreign:?}"/compaction-*' EXIT
  "$foreign/python/bin/python" "$here/bench/compaction.py" "$@"
}

build
case "$part" in
install)
  install kafka kcat python node platformatic go rskafka librdkafka kgo rust-rdkafka streams wire rebalance
  ;;
clients | kill9 | rounds | cuts | failover | many | robustness | alerts | conformance | \
  differential | streams | copier | exactly-once | bench | transactions | rebalance | \
  compaction) "$part" "$@" ;;
all)
  clients
  kill9 --rounds 100
  rounds
  cuts
  robustness
  alerts
  conformance
  differential
  streams
  copier
  exactly-once
  bench
  ;;
*) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 2 ;;
esac
