# What a person or CI types. `make` alone lists it.
#
# KUBE_VERSION=1.37   another Kubernetes for controlplane, demo and tests (tests/controlplane/versions.env)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
KUBE_VERSION ?=
ARGOCD_VERSION ?=
ARCH ?=
KEEP ?=
# Errors of tests are told by their messages; a trace of the test runner's innards hides them.
export RUST_LIB_BACKTRACE ?= 0
ifneq ($(strip $(KUBE_VERSION)),)
export KUBE_VERSION
endif
ifneq ($(strip $(ARGOCD_VERSION)),)
export ARGOCD_VERSION
endif

# One binary for demo, tests and drift check, so that none of them builds another while it runs.
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
export OFFHOURS_BIN ?= $(TARGET)/debug/offhours

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1	\2/' | expand -t 18

.PHONY: controlplane
controlplane: ## build etcd, Kubernetes and kwok once per machine (about 8 minutes the first time)
	@tests/controlplane/build.sh controlplane

.PHONY: chart-tools
chart-tools: ## build helm, kubeconform, helm-unittest and promtool once per machine (some minutes the first time)
	@tests/controlplane/build.sh helm kubeconform helm-unittest promtool

# With the examples, dependencies get the features that tests ask of them: what this compiles, `make test` finds.
.PHONY: build
build: ## build the programs
	$(CARGO) build --workspace --bins --examples

.PHONY: demo
demo: controlplane build ## a namespace falls asleep, is held, and comes back (KEEP=1 leaves it running)
	@KEEP=$(KEEP) $(TARGET)/debug/demo

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
test: controlplane chart-tools ## unit, property and end-to-end tests (12 minutes at most, warm)
	PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED-2026} $(CARGO) test --workspace --no-fail-fast
	@echo "SKIPPED the life of a release: it is in make test-install"
	@echo "SKIPPED the long suites: they are in make test-long"
	@echo "SKIPPED nights under the real Argo CD, Flux and KEDA: they are in make test-argocd, test-flux and test-keda"

.PHONY: chart-test
chart-test: controlplane chart-tools ## what the chart renders and refuses (part of make test)
	$(CARGO) test -p e2e --test install

.PHONY: alerts-test
alerts-test: ## when each alert rule fires and when it does not, by promtool (part of make test)
	@tests/controlplane/build.sh promtool
	$(CARGO) test -p e2e --test install alerts

.PHONY: test-install
test-install: controlplane chart-tools ## a release's whole life on a control plane, under the chart's own roles
	$(CARGO) test --workspace --no-run
	$(CARGO) test --workspace --test install lifecycle -- --ignored --test-threads=1

# ARCH=arm64 (or amd64) is the other one, by cross build.
.PHONY: image-test
image-test: ## the image's root file system, built without a container engine, and the binary in it
	@.ci/image $(ARCH)

.PHONY: sbom
sbom: ## what the binary is made of, as CycloneDX: target/sbom/offhours.cdx.json
	@.ci/sbom

# OFFHOURS_TEST_LONG=1 makes the sampled suites whole; properties get other inputs at each run.
.PHONY: test-long
test-long: controlplane chart-tools ## what is too long for make test: exhaustive suites, and the other Kubernetes version
	OFFHOURS_TEST_LONG=1 $(CARGO) test --profile long -p shared --no-fail-fast
	OFFHOURS_TEST_LONG=1 $(CARGO) test --workspace --exclude shared --no-fail-fast
	@tests/controlplane/other-versions.sh | while read -r version; do \
	  echo "== Kubernetes $$version"; \
	  KUBE_VERSION=$$version tests/controlplane/build.sh controlplane; \
	  KUBE_VERSION=$$version $(CARGO) test -p harness -p e2e </dev/null; \
	done

.PHONY: fuzz
fuzz: ## fuzz the parsers of schedules for FUZZ_SECONDS (needs a nightly compiler)
	@.ci/fuzz

# Their programs are no part of `make controlplane`: they take up to a quarter of an hour each to build, once per machine. What is
# waited for there are others, so that many nights pass at once.
BESIDE = $(CARGO) test -p e2e --test beside
BESIDE_OPTIONS = -- --ignored --test-threads=6

.PHONY: test-argocd
test-argocd: controlplane build ## nights under the real Argo CD (ARGOCD_VERSION=2.14 for another one than 3.2)
	@command -v redis-server >/dev/null || { \
	  echo "Argo CD needs redis-server, which is not on PATH; install it (Debian, Ubuntu: apt-get install redis-server)" >&2; exit 1; }
	@GOFLAGS="-p=2 $$GOFLAGS" nice tests/controlplane/build.sh argocd
	$(BESIDE) argocd:: $(BESIDE_OPTIONS)

.PHONY: test-flux
test-flux: controlplane build ## nights under the real kustomize-controller and helm-controller of Flux
	@GOFLAGS="-p=2 $$GOFLAGS" nice tests/controlplane/build.sh flux
	$(BESIDE) flux:: $(BESIDE_OPTIONS)

.PHONY: test-keda
test-keda: controlplane build ## nights under the real operator of KEDA
	@GOFLAGS="-p=2 $$GOFLAGS" nice tests/controlplane/build.sh keda
	$(BESIDE) keda:: $(BESIDE_OPTIONS)

.PHONY: bench-schedule
bench-schedule: ## cost of questions to a schedule, beside croner
	$(CARGO) bench -p shared --bench schedule

.PHONY: fixtures
fixtures: controlplane ## record anew what clients send to the webhook, for its unit tests
	@tests/controlplane/build.sh helm
	$(CARGO) test -p e2e --test suite -- --ignored --exact webhook::fixtures::record_what_clients_send

# One call for all benches through an API server: one set of features, hence dependencies are compiled once.
.PHONY: bench-build
bench-build: controlplane
	$(CARGO) build --release --workspace --bin offhours --bin bench-scheduler --bench webhook

.PHONY: bench-webhook
bench-webhook: bench-build ## what the webhook costs a request through a real API server, beside none and a bare server (20 minutes)
	OFFHOURS_BIN=$(TARGET)/release/offhours $(CARGO) bench --workspace --bench webhook

# BENCH_PAIRS, BENCH_OBJECTS, BENCH_WATCHED and BENCH_IDLE_SECONDS make it shorter or longer.
.PHONY: bench-scheduler
bench-scheduler: bench-build ## the scheduler beside a raw loop of the same PATCHes (about 20 minutes)
	OFFHOURS_BIN=$(TARGET)/release/offhours $(TARGET)/release/bench-scheduler
