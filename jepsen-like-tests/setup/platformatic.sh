#!/bin/bash
# @platformatic/kafka, and the Node that it wants, as npm has it: a package with the binary in it.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"

install_platformatic() {
  package npm npm
  mkdir -p "$foreign/platformatic" && cd "$foreign/platformatic"
  echo '{"private": true}' >package.json
  npm install --no-audit --no-fund $platformatic_packages
}
once platformatic "$(echo $platformatic_packages)" install_platformatic
