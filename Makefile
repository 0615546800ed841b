# Two commands to know: `make demo` and `make test`. Each sets up what it needs on a fresh machine.
#
# The virtual environment lives outside the checkout and is named after a hash of the dependencies, so it is made anew
# when they change, is shared by checkouts that agree, and needs no network once it exists.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
BELVEDERE_CACHE ?= $(HOME)/.cache/belvedere
DEPENDENCIES := $(shell sed '/^\# --- Everything below/,$$d' pyproject.toml | cksum | tr ' ' '-')
VENV := $(BELVEDERE_CACHE)/venv-$(DEPENDENCIES)
READY := $(VENV)/.ready
BIN := $(VENV)/bin

# This checkout's sources come first, whichever checkout the environment was installed from.
export PYTHONPATH := $(CURDIR)/viewserver:$(CURDIR)/operator
export NUMBA_CACHE_DIR ?= $(BELVEDERE_CACHE)/numba

SOURCES := viewserver operator tests bench examples
PYTEST_ARGS ?=
SEEDS ?= 1000
FIRST ?= 0
MINUTES ?= 10

.PHONY: help demo test test-long java check format bench simulate torture torture-hbase teeth hbase hbase-demo venv
.PHONY: kube-packages kube-build kube-images kube-up kube-down kube-demo e2e

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## A live store with three views in this terminal, about 15 seconds
	@$(BIN)/belvedere demo $(DEMO_ARGS)

test: check java kube-packages ## Format, lint, types, layers, and every test
	@$(BIN)/python -m tests.suite 'not long' $(PYTEST_ARGS)

test-long: check java kube-packages ## Everything of 'make test', and the long variants: more texts, more seeds, longer storms
	@$(BIN)/python -m tests.suite 'long or not long' $(PYTEST_ARGS)

# ZooKeeper needs a Java runtime, and Maven to fetch its jars. Without them those tests skip and say so.
java:
	@{ command -v java && command -v mvn; } > /dev/null \
	  || { command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ] \
	       && { echo "installing Java and Maven for ZooKeeper"; apt-get -qq update > /dev/null \
	            && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends default-jre-headless maven > /dev/null; }; } \
	  || echo "no Java or no Maven: tests that need ZooKeeper may be skipped (install a JRE, 11 or newer, and maven)"

# Kubernetes is compiled from source, once per version (about 14 minutes of CPU), and images are made from Debian's packages.
# Without Go, root or those packages the tests that need them skip and say so.
kube-packages: $(READY)
	@missing=$$($(BIN)/python -m tests.kube packages); [ -z "$$missing" ] \
	  || { command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ] \
	       && { echo "installing $$missing for a Kubernetes node"; apt-get -qq update > /dev/null \
	            && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$missing > /dev/null; }; } \
	  || echo "packages for a Kubernetes node are missing: $$missing"

kube-build: $(READY) ## Compile Kubernetes for tests into the cache, if that has not happened
	@$(BIN)/python -m tests.kube build

kube-images: kube-packages kube-build ## Build the images, and put them into the cluster if it runs
	@$(BIN)/python -m tests.kube images

kube-up: kube-packages ## A Kubernetes of one node, with the images: [KUBE_ARGS="--no-images --port 6443"]
	@$(BIN)/python -m tests.kube up $(KUBE_ARGS)

kube-down: $(READY) ## End it
	@$(BIN)/python -m tests.kube down

kube-demo: kube-packages ## Install, three views, a load that makes the pool grow and shrink, a kill, verified; 5 minutes
	@$(BIN)/python -m tests.kube demo

e2e: kube-packages ## Only the tests of pods, all variants; BELVEDERE_E2E_KUBECONFIG names a cluster of your own
	@[ -n "$$BELVEDERE_E2E_KUBECONFIG" ] || $(BIN)/python -m tests.kube prepare
	@$(BIN)/pytest -q -m "" tests/kube --ignore=tests/kube/test_control_plane.py $(PYTEST_ARGS)

check: $(READY) ## Format, lint, types and layers
	@$(BIN)/ruff format --check --quiet $(SOURCES) || { echo "run 'make format'"; exit 1; }
	@$(BIN)/ruff check --quiet $(SOURCES)
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > $(BELVEDERE_CACHE)/layers.txt || { cat $(BELVEDERE_CACHE)/layers.txt; exit 1; }
	@echo "check: format, lint, types and layers are fine"

format: $(READY) ## Rewrite the sources in the house format
	@$(BIN)/ruff check --quiet --fix-only $(SOURCES)
	@$(BIN)/ruff format --quiet $(SOURCES)

bench: $(READY) ## The benchmark suite; several minutes
	@$(BIN)/python -m bench.run $(BENCH_ARGS)

simulate: $(READY) ## Simulated clusters with faults: SEEDS=n [FIRST=m] [BUG="a known one"] [TRACE=1]
	@$(BIN)/python -m tests.simulator --seeds $(SEEDS) --first $(FIRST) $(if $(BUG),--bug "$(BUG)") $(if $(TRACE),--trace)

torture: $(READY) ## A real cluster under load, kill -9, pauses and scaling: MINUTES=n
	@$(BIN)/python -m tests.torture.run --minutes $(MINUTES)

torture-hbase: $(READY) ## Random faults around a pool over a real HBase, compared at rest: MINUTES=n
	@$(BIN)/python -m tests.torture.hbase --minutes $(MINUTES)

teeth: $(READY) ## Breaks that tests must notice, planted one by one: [ONLY="part of a name"] [TEETH_ARGS="--list"]
	@$(BIN)/python -m tests.teeth $(if $(ONLY),"$(ONLY)") $(TEETH_ARGS)

hbase: $(READY) ## A real HBase on this machine, to try views over its tables; stop it with: make hbase HBASE=down
	@$(BIN)/belvedere dev hbase $(or $(HBASE),up)

hbase-demo: java $(READY) ## Views over tables that an application writes in a real HBase, a region server killed, verified; 2 minutes
	@$(BIN)/python -m examples.hbase.demo $(DEMO_ARGS)

venv: $(READY) ## Only set up; prints where the environment is
	@echo $(VENV)

$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; found $$($(PYTHON) --version). Try: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "setting up $(VENV) (once, about a minute)"
	@rm -rf "$(VENV)" && mkdir -p "$(BELVEDERE_CACHE)" && $(PYTHON) -m venv "$(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
