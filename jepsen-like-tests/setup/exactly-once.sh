#!/bin/bash
# The client of `exactly-once` that writes, a Go module of its own, built outside the source tree.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"

install_exactly_once() {
  package go golang-go
  rm -rf "$foreign/exactly-once" && mkdir -p "$foreign/exactly-once"
  cp "$here/exactly-once"/{go.mod,go.sum,main.go} "$foreign/exactly-once/"
  cd "$foreign/exactly-once" && go build -o writer .
}
once exactly-once "$(sources "$here/exactly-once"/{go.mod,go.sum,main.go})" install_exactly_once
