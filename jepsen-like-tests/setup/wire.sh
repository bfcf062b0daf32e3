#!/bin/bash
# The program that speaks with brokers by Kafka's own generated messages, for differential/.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"
"$here/setup/kafka.sh"

install_wire() {
  rm -rf "$foreign/wire" && mkdir -p "$foreign/wire"
  javac -d "$foreign/wire" -cp "$foreign/kafka/libs/*" "$here/differential/Wire.java"
}
once wire "$kafka_version $(sources "$here/differential/Wire.java")" install_wire
