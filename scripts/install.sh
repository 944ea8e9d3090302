#!/bin/bash
# Install this checkout as a service: a virtual environment of a system interpreter under PREFIX, a link in BINDIR, a unit in
# UNITDIR. Enables and starts nothing. May be run again: the new version is built beside the old one and takes its place last.
#
#   PREFIX=/opt/xidwatch  BINDIR=/usr/local/bin  UNITDIR=/usr/local/lib/systemd/system  PYTHON=  DESTDIR=
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
prefix=${PREFIX:-/opt/xidwatch}
prefix=${prefix%/}
bindir=${BINDIR:-/usr/local/bin}
unitdir=${UNITDIR:-/usr/local/lib/systemd/system}
destdir=${DESTDIR:+$(realpath -m "$DESTDIR")}
stage=$destdir$prefix.new

say() { printf '%s\n' "$*" >&2; }

die() {
    say "make install: $*"
    exit 1
}

newest_system_python() {
    local candidate
    for candidate in /usr/bin/python3.1[1-9] /usr/bin/python3; do
        [ -x "$candidate" ] || continue
        "$candidate" -c 'import sys; print(sys.version_info[1], sys.argv[1])' "$candidate"
    done | sort -rn | head -n 1 | cut -d ' ' -f 2
}

# The service sees no home directory (ProtectHome=), and a version manager may delete its interpreters at any time.
refuse_private() {
    local real
    real=$(readlink -f "$1")
    case $real in
        /root/* | /home/* | *pyenv* | *conda*) die "$1 is $real: a service needs a system interpreter (apt install python3 python3-venv)" ;;
    esac
}

choose_python() {
    local python=${PYTHON:-$(newest_system_python)}
    [ -n "$python" ] || die "no system interpreter in /usr/bin (apt install python3 python3-venv, or set PYTHON=)"
    python=$(command -v "$python") || die "PYTHON=$PYTHON: no such interpreter"
    refuse_private "$python"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "$python is $("$python" --version 2>&1); 3.11 or later is needed"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python cannot make a virtual environment (apt install $(basename "$(readlink -f "$python")")-venv)"
    echo "$python"
}

pip() { "$work/build/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }

pip_stage() { pip --python "$stage/bin/python" install --no-compile "$@"; }

build_wheel() {
    "$python" -m venv "$work/build"
    pip install --require-hashes -r "$root/requirements-build.lock"
    pip wheel --no-deps --no-build-isolation --wheel-dir "$work/wheel" "$root"
}

fill_stage() {
    rm -rf "$stage"
    mkdir -p "$(dirname "$stage")"
    "$python" -m venv --without-pip "$stage"
    pip_stage --require-hashes -r "$root/requirements.lock"
    pip_stage --no-deps --no-index "$work"/wheel/xidwatch-*.whl
}

# Optional: with it the journal gets structured fields, without it plain lines.
add_systemd_python() {
    local headers="apt install gcc pkg-config libsystemd-dev python3-dev, then make install again"
    if ! { command -v cc && pkg-config --exists libsystemd; } >/dev/null 2>&1; then
        say "without systemd-python: the log goes to the journal as plain lines ($headers)"
    elif ! { pip wheel --no-deps --no-build-isolation --require-hashes --wheel-dir "$work/wheel" -r "$root/requirements-systemd.lock" &&
        pip_stage --no-deps --no-index "$work"/wheel/systemd_python-*.whl; } >"$work/log" 2>&1; then
        say "without systemd-python, which did not build: $(tail -n 1 "$work/log") ($headers)"
    fi
}

# The service cannot write byte code beside its modules (ProtectSystem=strict), so it is made now, with the final paths in it.
finish_stage() {
    (cd / && "$stage/bin/python" -B -c 'import xidwatch, importlib.resources as r; assert (r.files(xidwatch) / "_rules").is_dir()') ||
        die "the new version does not import; the installed one, if any, is untouched"
    "$stage/bin/python" -m compileall -qf -s "$stage" -p "$prefix" "$stage/lib"
    grep -rlIF "$stage" "$stage/bin" "$stage/pyvenv.cfg" | xargs -r sed -i "s|$stage|$prefix|g"
}

swap_in() {
    rm -rf "$destdir$prefix.old"
    [ ! -e "$destdir$prefix" ] || mv "$destdir$prefix" "$destdir$prefix.old"
    if ! mv "$stage" "$destdir$prefix"; then
        [ ! -e "$destdir$prefix.old" ] || mv "$destdir$prefix.old" "$destdir$prefix"
        die "could not put the new version in place; the old one is back"
    fi
    rm -rf "$destdir$prefix.old"
}

install_links() {
    mkdir -p "$destdir$bindir" "$destdir$unitdir"
    ln -sfn "$prefix/bin/xidwatch" "$destdir$bindir/xidwatch"
    sed "s|/usr/local/bin/xidwatch|$bindir/xidwatch|" "$root/systemd/xidwatch.service" >"$work/xidwatch.service"
    install -m 644 "$work/xidwatch.service" "$destdir$unitdir/xidwatch.service"
}

next_steps() {
    local version
    version=$("$destdir$prefix/bin/python" -B -c 'import xidwatch; print(xidwatch.__version__)')
    say "installed $version in $destdir$prefix with $("$python" --version)"
    if [ -n "$destdir" ]; then
        say "staged under $destdir: nothing on this machine was told about it"
    elif [ ! -d /run/systemd/system ]; then
        say "systemd does not run here; start it by hand: $bindir/xidwatch run"
    elif systemctl --quiet is-active xidwatch.service; then
        say "the running service is still the old version; next: systemctl daemon-reload, then systemctl restart xidwatch"
        say "(no reload was done: with some container runtimes it takes the GPUs away from containers that run)"
    else
        say "nothing was started; next: xidwatch init, systemctl daemon-reload, then systemctl enable --now xidwatch"
        say "then look: systemctl status xidwatch; xidwatch status"
    fi
}

[ -n "$destdir" ] || [ "$(id -u)" = 0 ] || die "needs root (or DESTDIR=/some/folder to look at the result first)"
case $prefix in /?*) ;; *) die "PREFIX must be an absolute path, not '$prefix'" ;; esac
python=$(choose_python)
work=$(mktemp -d)
trap 'rm -rf "$work" "$stage"' EXIT
umask 022

build_wheel
fill_stage
add_systemd_python
finish_stage
swap_in
install_links
next_steps
