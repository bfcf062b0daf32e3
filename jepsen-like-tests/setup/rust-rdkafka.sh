#!/bin/bash
# rust-rdkafka's integration tests, as they ship inside its crate, outside our workspace; linked with
# the librdkafka that is built here anyway.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"
"$here/setup/librdkafka.sh"

install_rust_rdkafka() {
  package pkg-config pkg-config
  rm -rf "$foreign/rust-rdkafka" && mkdir -p "$foreign/rust-rdkafka/fetch/src"
  cd "$foreign/rust-rdkafka/fetch" && : >src/lib.rs
  cat >Cargo.toml <<TOML
[package]
name = "fetch"
version = "0.0.0"
edition = "2021"
[dependencies]
rdkafka = { version = "=$rust_rdkafka_version", default-features = false }
[workspace]
TOML
  # Cargo unpacks the crate with its tests; they are built where it cannot be changed for others.
  cargo vendor --quiet vendor
  cp -r vendor/rdkafka "$foreign/rust-rdkafka/suite"
  rm -rf "$foreign/rust-rdkafka/fetch"
  cd "$foreign/rust-rdkafka/suite"
  printf '\n[workspace]\n' >>Cargo.toml
  library="$foreign/librdkafka/src/src"
  cat >../rdkafka.pc <<PC
Name: rdkafka
Description: librdkafka as built here
Version: 2.15.1
Libs: -L$library -lrdkafka
Cflags: -I$library
PC
  PKG_CONFIG_PATH="$foreign/rust-rdkafka" LD_LIBRARY_PATH="$library" \
    nice cargo test --quiet --no-run --tests --features dynamic-linking
}
once rust-rdkafka "$rust_rdkafka_version" install_rust_rdkafka
