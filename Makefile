# Every developer's entry points. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-down test test-quick explore properties mutants reference lint format compiled test-compiled bench bench-live chaos soak crds dashboards pictures

PYTHON ?= python3
UV_VERSION := 0.13.8
export UV_PYTHON_DOWNLOADS := never
# The certificates that the machine trusts, a company's own included.
export UV_SYSTEM_CERTS := 1
VENV := .venv/bin

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv from uv.lock (quick the second time)
	@tools/setup "$(PYTHON)" "$(UV_VERSION)"

demo: setup ## a real control plane, kbatch installed by Helm, the example gang scheduled; leaves it up
	@$(VENV)/kbatch up --name demo --demo

demo-down: setup ## end the demo's cluster
	@$(VENV)/kbatch down --name demo

test: setup ## lint and every layer of tests, each within its time budget
	@$(VENV)/python -m tools.layers

test-quick: setup ## lint, unit and property tests only
	@$(VENV)/python -m tools.layers lint unit

explore: setup ## a million states of the engine and the ledger, an hour at most; goes on where it was broken off
	@$(VENV)/python -m tests.explore --resume .explore

properties: setup ## the property tests on new random examples; one that fails becomes a test of its own
	@KBATCH_EXPLORE=1 $(VENV)/python -m pytest -q -n 2 tests/property

mutants: setup ## do the tests notice errors made on purpose? Half an hour; writes docs/benchmarks/mutants.md
	@$(VENV)/python -m tests.mutation

reference: setup ## does the engine place what trying everything places? 60,000 cases, half an hour; writes docs/benchmarks/reference.md
	@$(VENV)/python -m tests.reference

lint: setup ## ruff, mypy, import contracts, lock file
	@$(VENV)/python -m tools.layers lint

format: setup ## let ruff format and mend what it can
	@$(VENV)/ruff format -q . && $(VENV)/ruff check -q --fix .

crds: setup ## generate crds/ and the chart's copies from kbatch/api
	@$(VENV)/python -m kbatch.api.crd

dashboards: setup ## generate the chart's dashboard and alerts from the catalogue of metrics
	@$(VENV)/python -m tools.dashboards

pictures: setup ## draw docs/engine-imports.svg from the engine's code
	@$(VENV)/python -m tools.imports

compiled: setup ## compile the engine into .compiled, where it is not current; benchmarks measure that
	@$(VENV)/python -m tools.compiled

test-compiled: compiled ## unit and property tests on the compiled engine
	@$(VENV)/pytest -q -n 2 --dist worksteal -p no:cacheprovider -p tests.compiled -m "not many" -o pythonpath="$(CURDIR)/.compiled ." \
		tests/property tests/unit/engine tests/unit/model tests/unit/plugins tests/unit/simulator tests/unit/decisions \
		tests/unit/scheduler tests/unit/podgroup tests/unit/queue tests/unit/webhooks tests/unit/traces \
		tests/unit/test_resources.py tests/unit/test_times.py

bench: setup ## engine, large clusters, binds on a real API server; non-zero where a limit is missed
	@$(VENV)/python -m tests.bench

bench-live: setup ## of these the last alone: binds, beside a bare loop and kube-scheduler
	@$(VENV)/python -m tests.bench.live

chaos: setup ## the long form of the fault tests, half an hour
	@$(VENV)/python -m tests.e2e.chaos

soak: setup ## arrivals and completions, at ten pods a second and at ten times that: does memory grow? Three quarters of an hour
	@$(VENV)/python -m tests.bench.soak
	@$(VENV)/python -m tests.bench.soak --warm-up 12 --rate 100
