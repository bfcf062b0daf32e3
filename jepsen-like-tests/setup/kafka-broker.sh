#!/bin/bash
# A real Apache Kafka broker in the foreground: kafka-broker.sh DIR PORT [key=value ...]
#
# One node that is broker and controller (KRaft), formatted on first use of DIR, with Kafka's own
# sample settings for one node; further settings are given as key=value. It replaces this shell, so
# that the process id of the script is the broker's.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"
"$here/setup/kafka.sh"

directory="$1" port="$2"
shift 2
mkdir -p "$directory"
cat >"$directory/server.properties" <<E2
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$directory/data
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
E2
for setting in "$@"; do echo "$setting" >>"$directory/server.properties"; done
java=(java ${KAFKA_HEAP:--Xms1g -Xmx1g} -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20
  -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent
  -Dlog4j2.configurationFile="${KAFKA_LOG4J2:-$foreign/kafka/log4j2.yaml}" -cp "$foreign/kafka/libs/*")
if [ ! -f "$directory/data/meta.properties" ]; then
  "${java[@]}" kafka.tools.StorageTool format --standalone --cluster-id Quorate-oracle-broker-1 \
    --config "$directory/server.properties" >"$directory/format.log" 2>&1 || {
    cat "$directory/format.log" >&2
    exit 1
  }
fi
exec "${java[@]}" kafka.Kafka "$directory/server.properties"
