#!/bin/sh
# Write the six locks anew: every pin with the hashes of all its files, for Python 3.11 and later, with no index address inside.
# Extra arguments go to the resolver, e.g. `--upgrade` or `--upgrade-package rich`.
set -eu
cd "$(dirname "$0")/.."

venv=.venv-lock
if [ ! -x "$venv/bin/uv" ]; then
    "${PYTHON:-python3}" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
fi

lock() {
    out=$1
    shift
    "$venv/bin/uv" pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-emit-index-url --no-emit-find-links \
        --custom-compile-command "make lock" --output-file "$out" "$@"
}

lock requirements.lock "$@" pyproject.toml
lock requirements-dev.lock "$@" pyproject.toml --extra dev --constraint requirements.lock
lock requirements-build.lock "$@" --group build --constraint requirements-dev.lock
lock requirements-engine.lock "$@" --group engine

# The lines of an extra. They are locked without dependencies, having none; to resolve that of systemd-python would be to build it,
# which needs the headers of libsystemd.
extra() { sed -n "s/^$1 = \[\"\(.*\)\"\]\$/\1/p" pyproject.toml | sed 's/", "/\n/g'; }

{ extra fast && extra zstd; } | lock requirements-fast.lock "$@" --no-deps -
extra systemd | lock requirements-systemd.lock "$@" --no-deps -
