#!/bin/bash
# franz-go and sarama: each adapter is a Go module of its own, built outside the source tree.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"

install_go() {
  package go golang-go
  rm -rf "${foreign:?}/$client" && mkdir -p "$foreign/$client"
  cp "$here/clients/$client"/{go.mod,go.sum,main.go} "$foreign/$client/"
  cd "$foreign/$client" && go build -o adapter .
}
for client in franz-go sarama; do
  once "$client" "$(sources "$here/clients/$client"/*)" install_go
done
