#!/bin/bash
# The three Python clients and pytest, in one virtual environment.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"

install_python() {
  package python3 "python3 python3-venv"
  python3 -m venv "$foreign/python" || {
    apt-get install -y --no-install-recommends python3-venv
    python3 -m venv "$foreign/python"
  }
  "$foreign/python/bin/pip" install -q --disable-pip-version-check $python_packages
}
once python "$(echo $python_packages)" install_python
