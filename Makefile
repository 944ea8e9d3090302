# `make run` and `make test` set up what they need in .venv; `make install` is the service. `make help` lists everything.
PREFIX  ?= /opt/xidwatch
BINDIR  ?= /usr/local/bin
UNITDIR ?= /usr/local/lib/systemd/system
DESTDIR ?=
export PREFIX BINDIR UNITDIR DESTDIR

PY := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help run test rig-container lint format bench fuzz nvml-fake rig rig-shell wheel check-package lock install uninstall \
	install-gate uninstall-gate clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## */\1\t/p' Makefile | expand -t 16

run:  ## run it from the checkout, state under ./state (ARGS="--once" for one tick)
	@scripts/venv.sh run
	@.venv/bin/xidwatch --state-dir state run $(ARGS)

test: lint  ## everything that must be green: style, types, tests (ARGS="-k pci" for some)
	$(PY) -m pytest $(ARGS)

rig-container:  ## the installed service under a real systemd, in a container (root; in `make test` too)
	@scripts/venv.sh dev
	$(PY) -m pytest -rs tests/rig/container $(ARGS)

lint:  ## style and types only
	@scripts/venv.sh dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format:  ## let ruff lay out the code and fix what it can
	@scripts/venv.sh dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

.PHONY: docs
docs:  ## write what is generated in docs/ and in the alerts: tables, diagrams, lists
	@scripts/venv.sh dev
	@$(PY) -m tests.docs

bench:  ## figures: CPU, memory, latencies
	@scripts/venv.sh dev
	$(PY) -m bench $(ARGS)

fuzz:  ## damaged and forged kernel lines against the parser (SECONDS=3600 SEED=1 for an hour that can be repeated)
	@scripts/venv.sh dev
	$(PY) -m tests.fuzz_kernel --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

nvml-fake:  ## the NVIDIA library without a GPU, in build/nvml (ARGS: functions to leave out)
	@scripts/venv.sh dev
	@$(PY) -m tests.fakes.nvml_library build/nvml $(ARGS)

rig:  ## a real switch really dies, in a virtual machine (root; SCENARIO=name for one, records kept)
	@scripts/venv.sh dev
	@$(PY) -m tests.rig.vm $(SCENARIO) $(ARGS)

rig-shell:  ## a shell in that virtual machine, xidwatch running
	@scripts/venv.sh dev
	@$(PY) -m tests.rig.vm --shell

wheel:  ## dist/xidwatch-*.whl and .tar.gz
	@scripts/venv.sh dev
	$(PY) -m build --no-isolation --outdir dist .

check-package: wheel  ## the wheel in an empty environment; install and uninstall under a scratch DESTDIR
	scripts/check-package.sh

lock:  ## write the locks anew (ARGS="--upgrade" for newer versions)
	scripts/lock.sh $(ARGS)

install:  ## as a service under /opt (root); enables and starts nothing
	@scripts/install.sh

install-gate:  ## UNIT=vllm.service starts only when xidwatch says that its hardware is there and well (root)
	@scripts/install-gate.sh "$${UNIT-}"

uninstall-gate:  ## UNIT=vllm.service starts as if there were no xidwatch (root)
	@scripts/install-gate.sh --remove "$${UNIT-}"

uninstall:  ## take it out again, keep the evidence (root)
	@scripts/uninstall.sh

clean:  ## forget what the commands above built; ./state stays
	rm -rf .venv .venv-lock dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
