#!/bin/bash
# franz-go: the adapter is a Go module of its own, built outside the source tree.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"

install_go() {
  package go golang-go
  rm -rf "$foreign/franz-go" && mkdir -p "$foreign/franz-go"
  cp "$here"/clients/franz-go/{go.mod,go.sum,main.go} "$foreign/franz-go/"
  cd "$foreign/franz-go" && go build -o adapter .
}
once franz-go "$(sources "$here"/clients/franz-go/*)" install_go
