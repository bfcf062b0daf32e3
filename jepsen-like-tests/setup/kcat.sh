#!/bin/bash
# kcat of Debian: an old librdkafka (2.0.2), which guards the old ends of our version ranges.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"
package kcat kcat
package python3 python3
