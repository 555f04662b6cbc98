# What a person or CI types. `make` alone lists it.
#
# KUBE_VERSION=1.37   another Kubernetes for controlplane, demo and tests (tests/controlplane/versions.env)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
KUBE_VERSION ?=
KEEP ?=
# Errors of tests are told by their messages; a trace of the test runner's innards hides them.
export RUST_LIB_BACKTRACE ?= 0
ifneq ($(strip $(KUBE_VERSION)),)
export KUBE_VERSION
endif

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1	\2/' | expand -t 18

.PHONY: controlplane
controlplane: ## build etcd, Kubernetes and kwok once per machine (about 8 minutes the first time)
	@tests/controlplane/build.sh controlplane

.PHONY: build
build: ## build the offhours binary
	$(CARGO) build --bin offhours

.PHONY: demo
demo: controlplane build ## a namespace falls asleep, is held, and comes back (KEEP=1 leaves it running)
	@KEEP=$(KEEP) $(CARGO) run -q -p e2e --bin demo

.PHONY: fmt-check
fmt-check: ## formatting
	$(CARGO) fmt --all --check

.PHONY: clippy
clippy: ## lints, warnings are errors
	$(CARGO) clippy --workspace --all-targets -- -D warnings

.PHONY: deny
deny: ## bans, licences and sources of dependencies (cargo-deny)
	@.ci/deny

.PHONY: drift
drift: build ## generated files are what the code generates (DRIFT=write writes them)
	@.ci/drift

.PHONY: test
test: controlplane build ## unit, property and end-to-end tests (12 minutes at most, warm)
	$(CARGO) test --workspace
	@echo "SKIPPED the long suites: they are in make test-long"

# Two runs, because what is ignored for its length is ignored in both.
.PHONY: test-long
test-long: controlplane build ## what is too long for make test: exhaustive suites, and the other Kubernetes version
	$(CARGO) test --workspace -- --ignored
	@tests/controlplane/other-versions.sh | while read -r version; do \
	  echo "== Kubernetes $$version"; \
	  KUBE_VERSION=$$version tests/controlplane/build.sh controlplane; \
	  KUBE_VERSION=$$version $(CARGO) test -p harness -p e2e </dev/null; \
	done

.PHONY: bench-schedule
bench-schedule: ## cost of questions to a schedule, beside croner
	$(CARGO) bench -p shared --bench schedule
