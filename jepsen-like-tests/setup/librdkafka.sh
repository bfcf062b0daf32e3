#!/bin/bash
# librdkafka's own test suite (its sources ship inside an npm package) and rdkafka_performance
# (which ships inside the crate rdkafka-sys). The build takes about four minutes on one core.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"

install_librdkafka() {
  package npm npm && package make make && package g++ g++
  [ -f /usr/include/openssl/ssl.h ] || package no-such-program libssl-dev
  [ -f /usr/include/zlib.h ] || package no-such-program zlib1g-dev
  # Some tests, that of readers of transactions among them, look into statistics by it.
  [ -f /usr/include/rapidjson/schema.h ] || package no-such-program rapidjson-dev
  rm -rf "$foreign/librdkafka" && mkdir -p "$foreign/librdkafka" && cd "$foreign/librdkafka"
  npm pack --silent "$librdkafka_package"
  tar xzf ./*.tgz package/deps/librdkafka
  mv package/deps/librdkafka src && rm -r package ./*.tgz
  cd src && chmod +x configure
  ./configure --disable-gssapi --disable-curl
  nice make -j"${JOBS:-1}" libs
  nice make -j"${JOBS:-1}" -C tests build
}
once librdkafka "$librdkafka_package" install_librdkafka

install_performance() {
  cd "$foreign/librdkafka"
  # The example lies in the crate's package; cargo fetches that as a dependency of nothing.
  rm -rf fetch && mkdir -p fetch/src && : >fetch/src/lib.rs
  cat >fetch/Cargo.toml <<TOML
[package]
name = "fetch"
version = "0.0.0"
edition = "2021"
[dependencies]
rdkafka-sys = "=$rdkafka_sys_version"
[workspace]
TOML
  cargo vendor --quiet --manifest-path fetch/Cargo.toml fetch/vendor
  gcc -O2 -Isrc/src -Ifetch/vendor/rdkafka-sys/librdkafka/examples -o rdkafka_performance \
    fetch/vendor/rdkafka-sys/librdkafka/examples/rdkafka_performance.c \
    src/src/librdkafka.a -lssl -lcrypto -lz -lm -ldl -lpthread -lrt \
    $(grep -q 'lzstd' src/Makefile.config && echo -lzstd) || return 1
  cp fetch/vendor/rdkafka-sys/librdkafka/examples/rdkafka_performance.c .
  rm -rf fetch
}
once rdkafka-performance "$librdkafka_package $rdkafka_sys_version" install_performance
