#!/bin/bash
# The members of bench/rebalance.py: a Go module of its own, built outside the source tree.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"

install_rebalance() {
  package go golang-go
  rm -rf "${foreign:?}/rebalance" && mkdir -p "$foreign/rebalance"
  cp "$here/bench/rebalance"/{go.mod,go.sum,*.go} "$foreign/rebalance/"
  cd "$foreign/rebalance" && go build -o rebalance .
}
once rebalance "$(sources "$here/bench/rebalance"/*)" install_rebalance
