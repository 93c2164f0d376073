# Everything that a developer or CI does. `make help` lists the targets.
#
# Requirements: make, and Python 3.11 or newer with its venv module. Everything else is installed into
# .venv, at the versions in constraints.txt.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# Unset: otherwise each test process would compile all of its modules again, which takes 0.3 s per
# process and 6 s for the tests themselves.
export PYTHONDONTWRITEBYTECODE :=

# To use another interpreter: make setup PYTHON=/path/to/python3.13
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

# More arguments for pytest: make test PYTEST_ARGS='-k plan -x'
PYTEST_ARGS ?=
# More arguments for the demo: make demo DEMO_ARGS='--seconds 30'
DEMO_ARGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# Creates .venv with the first interpreter that runs, is new enough and has the venv module.
$(BIN)/python:
	@found=; bare=; \
	for name in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
	  if "$$name" -c 'import ensurepip, venv' >/dev/null 2>&1; then found=$$name; break; fi; \
	  bare=$${bare:-$$name}; \
	done; \
	if [ -n "$$found" ]; then \
	  echo "setup: $(VENV) with $$("$$found" --version)"; \
	  exec "$$found" -m venv --clear $(VENV); \
	fi; \
	if [ -n "$$bare" ]; then \
	  echo "$$bare has no venv module, which is a separate package on Debian and Ubuntu." >&2; \
	  echo 'Install it, then run make again: apt-get install python3-venv' >&2; \
	else \
	  echo 'dynsched needs Python 3.11 or newer. None was found on PATH.' >&2; \
	  echo 'On Debian 12 or Ubuntu 24.04: apt-get install python3 python3-venv' >&2; \
	fi; \
	exit 1

# Each stamp records the last install. If the pins change, the install runs again.
$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'setup: installing the packages that dynsched needs to run; the first time, this takes a minute or two'
	@$(PIP_INSTALL) -e .
	@touch $@

# The other stamps that an install fulfils.
BRINGS_test := runtime
BRINGS_lint := runtime
BRINGS_test-all := runtime test
BRINGS_dev := runtime test test-all lint
# rfc3987-syntax is removed to save a second in each process that a test starts. If kubernetes-validate
# is installed, kubernetes imports it and jsonschema, and jsonschema compiles a grammar of IRIs if it
# finds rfc3987-syntax.
$(VENV)/.test $(VENV)/.test-all $(VENV)/.lint $(VENV)/.dev: $(VENV)/.%: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'setup: installing dynsched with its extra "$*"; the first time, this takes a minute or two'
	@$(PIP_INSTALL) -e '.[$*]'
	@$(BIN)/python -m pip uninstall -qq --yes rfc3987-syntax 2>/dev/null
	@touch $(addprefix $(VENV)/.,$(BRINGS_$*) $*)

.PHONY: setup
setup: $(VENV)/.dev ## create .venv with everything in it, if it is out of date

.PHONY: demo
demo: $(VENV)/.runtime ## run two small simulated clusters, one with dynsched, on this machine
	@exec $(BIN)/dynsched demo $(DEMO_ARGS)

PYTEST := $(BIN)/python -m pytest -n 8 --dist worksteal

.PHONY: test
test: $(VENV)/.test ## run the tests of all behaviour, about four minutes on two cores
	$(PYTEST) -m 'not thorough' $(PYTEST_ARGS)

.PHONY: test-all
test-all: $(VENV)/.test-all ## run all tests, including long random histories, browsers and every schema
	DYNSCHED_THOROUGH=1 $(PYTEST) $(PYTEST_ARGS)

# Only from the command line: a kubeconfig from the environment may be for any cluster.
E2E_GIVEN = $(if $(filter command,$(firstword $(origin $(1)))),$(2))
E2E_KUBECONFIG := $(call E2E_GIVEN,KUBECONFIG,$(abspath $(KUBECONFIG)))
# The cluster that the tests start runs in namespaces, so its networks, mounts and processes end with them.
E2E_ALONE = $(shell [ "$$(id -u)" != 0 ] || echo unshare --net --mount --pid --fork --kill-child --mount-proc)

.PHONY: e2e
e2e: $(VENV)/.test-all ## install and use dynsched on a cluster that runs pods: KUBECONFIG=FILE IMAGE=NAME:TAG, or IMAGE=ARCHIVE
	E2E=1 E2E_KUBECONFIG='$(E2E_KUBECONFIG)' E2E_IMAGE='$(call E2E_GIVEN,IMAGE,$(IMAGE))' E2E_REPLACE='$(REPLACE)' \
	  E2E_FORMER='$(FORMER)' E2E_FORMER_IMAGE='$(FORMER_IMAGE)' \
	  $(if $(E2E_KUBECONFIG),,$(E2E_ALONE)) $(BIN)/python -m pytest tests/e2e --timeout 1800 \
	  -o log_cli=true --log-cli-level INFO $(PYTEST_ARGS)

.PHONY: lint
lint: $(VENV)/.lint ## check code style, format, types, import contracts, Dockerfile, workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --quiet .github/workflows
	@$(MAKE) --no-print-directory types

TYPESCRIPT := typescript@5.9.3

.PHONY: types
types: ## check the types of the page's JavaScript; skipped if npm cannot install TypeScript
	@if npx --yes --package=$(TYPESCRIPT) -- tsc --version >/dev/null 2>&1 </dev/null; then \
	  npx --yes --package=$(TYPESCRIPT) -- tsc -p dynsched/web/page/jsconfig.json; \
	else \
	  echo 'types: skipped, because npx (from npm) cannot install $(TYPESCRIPT)'; \
	fi

.PHONY: format
format: $(VENV)/.lint ## fix lint findings and format the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

.PHONY: docs
docs: $(VENV)/.runtime ## write the generated files: docs/cli.md, the chart's README, the example's base
	$(BIN)/python -m tools.cli_docs docs/cli.md
	$(BIN)/python -m tools.chart_docs charts/dynsched
	rm -rf manifests/overlays/example/base
	cp -r manifests/base manifests/overlays/example/base

# Names in the release: its image, and the URL of the repository.
IMAGE ?= dynsched
SOURCE ?= https://git.example.com/platform/dynsched

# A separate venv, in which every package is pinned by hash.
RELEASE := build/release
$(RELEASE)/.installed: requirements-release.txt | $(BIN)/python
	@rm -rf $(RELEASE)
	@$(BIN)/python -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements-release.txt
	@touch $@

.PHONY: release
release: $(RELEASE)/.installed ## build packages, chart, manifest, SBOM and checksums in dist/ (needs kubectl)
	@rm -rf dist
	$(RELEASE)/bin/python -m tools.release dist --image '$(IMAGE)' --source '$(SOURCE)' $(if $(TAG),--tag '$(TAG)')

# A separate venv, so that manually installed packages do not get into the file.
.PHONY: lock
lock: $(BIN)/python ## rewrite constraints.txt and the requirements with the newest versions that pyproject.toml allows
	rm -rf build/lock
	$(BIN)/python -m venv build/lock
	build/lock/bin/python -m pip install -qq --disable-pip-version-check --upgrade '.[dev]'
	{ sed -n '/^#/p' constraints.txt; \
	  build/lock/bin/python -m pip freeze --local | grep -v '^dynsched ' | sort -f; \
	} > build/constraints.txt
	mv build/constraints.txt constraints.txt
	$(MAKE) --no-print-directory hashes UV=build/lock/bin/uv
	rm -rf build/lock

# The hashes cover all files of a version.
UV := $(RELEASE)/bin/uv
HASHES = $(UV) pip compile -q --generate-hashes --no-header --no-annotate \
  -c constraints.txt -o build/hashes.txt
OF_THE_IMAGE := --python-version 3.12 --python-platform linux
WRITTEN = { sed -n '/^\#/p' $(1); cat build/hashes.txt; } > build/with-comment.txt && mv build/with-comment.txt $(1) && rm build/hashes.txt

.PHONY: hashes
hashes: $(if $(filter $(RELEASE)/%,$(UV)),$(RELEASE)/.installed) ## rewrite the hashes of the image's and the release's packages, for the versions in constraints.txt
	mkdir -p build && rm -f build/hashes.txt
	$(HASHES) $(OF_THE_IMAGE) pyproject.toml
	$(call WRITTEN,requirements.txt)
	echo hatchling | $(HASHES) $(OF_THE_IMAGE) -
	$(call WRITTEN,requirements-build.txt)
	printf '%s\n' click cyclonedx-bom hatchling pathspec pyyaml uv | $(HASHES) --universal --python-version 3.11 -
	$(call WRITTEN,requirements-release.txt)

.PHONY: clean
clean: ## remove the venv, caches and build results
	rm -rf $(VENV) build dist .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
