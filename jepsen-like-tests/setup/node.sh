#!/bin/bash
# kafkajs and codecs for it (it brings only gzip itself).
set -euo pipefail
. "$(dirname "$0")/foreign.sh"

install_node() {
  package node nodejs && package npm npm
  mkdir -p "$foreign/node" && cd "$foreign/node"
  echo '{"private": true}' >package.json
  npm install --no-audit --no-fund $node_packages
}
once node "$(echo $node_packages)" install_node
