#!/bin/sh
# Write the four locks anew: every pin with the hashes of all its files, for Python 3.11 and later, with no index address inside.
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
# Without its dependencies (it has none): resolving them would build it, which needs the headers of libsystemd.
sed -n 's/^systemd = \["\(.*\)"\]$/\1/p' pyproject.toml | lock requirements-systemd.lock "$@" --no-deps -
