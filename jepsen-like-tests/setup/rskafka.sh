#!/bin/bash
# rskafka: a crate of its own outside our workspace, so that its dependencies never enter ours.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"

install_rskafka() {
  mkdir -p "$foreign/rskafka/src"
  cp "$here/clients/rskafka/adapter.toml" "$foreign/rskafka/Cargo.toml"
  cp "$here/clients/rskafka/main.rs" "$foreign/rskafka/src/main.rs"
  cd "$foreign/rskafka" && cargo build --quiet --target-dir "$foreign/rskafka/target"
}
once rskafka "$(sources "$here"/clients/rskafka/*)" install_rskafka
