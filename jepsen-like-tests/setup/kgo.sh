#!/bin/bash
# franz-go's tests of its client: the module as the Go proxy has it holds them. Built once; run by
# conformance/suites.py.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"

install_kgo() {
  package go golang-go
  local module
  rm -rf "$foreign/kgo" && mkdir -p "$foreign/kgo/fetch" && cd "$foreign/kgo/fetch"
  printf 'module fetch\ngo 1.26\n' >go.mod
  module="$(go mod download -json "github.com/twmb/franz-go@$franz_go_version" |
    sed -n 's/.*"Dir": "\(.*\)".*/\1/p')"
  cp -r "$module" "$foreign/kgo/module"
  chmod -R u+w "$foreign/kgo/module"
  cd "$foreign/kgo/module/pkg/kgo" && nice go test -c -o "$foreign/kgo/kgo.test" .
}
once kgo "$franz_go_version" install_kgo
