#!/bin/bash
# One of several Apache Kafka nodes in the foreground, the oracle of a cluster of ours:
# kafka-node.sh DIR ID PORT PEER_PORT VOTERS [key=value ...], with VOTERS as id@host:port,...
#
# Each is broker and controller (KRaft), formatted on first use of DIR, with Kafka's own settings but
# for three replicas, of which two must have what is acknowledged, as with us. It replaces this
# shell, so that the process id of the script is the node's.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"
"$here/setup/kafka.sh"

directory="$1" id="$2" port="$3" peers="$4" voters="$5"
shift 5
mkdir -p "$directory"
cat >"$directory/server.properties" <<E2
process.roles=broker,controller
node.id=$id
controller.quorum.voters=$voters
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$peers
advertised.listeners=PLAINTEXT://127.0.0.1:$port
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$directory/data
min.insync.replicas=2
E2
for setting in "$@"; do echo "$setting" >>"$directory/server.properties"; done
java=(java ${KAFKA_HEAP:--Xms512m -Xmx512m} -server -XX:+UseG1GC
  -Dlog4j2.configurationFile="$foreign/kafka/log4j2.yaml" -cp "$foreign/kafka/libs/*")
if [ ! -f "$directory/data/meta.properties" ]; then
  "${java[@]}" kafka.tools.StorageTool format --cluster-id Quorate-oracle-broker-3 \
    --config "$directory/server.properties" >"$directory/format.log" 2>&1 || {
    cat "$directory/format.log" >&2
    exit 1
  }
fi
exec "${java[@]}" kafka.Kafka "$directory/server.properties"
