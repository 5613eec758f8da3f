# The only entry. `make demo` shows the product, `make test` proves it, `make check` is the reviewer.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

help: ## What there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

build: toolchain ## Both programs, optimised
	cargo build --release --locked --bins

demo: build ## Emulated clouds, three pods, their credentials, and the load that proves it (under a minute)
	demo/run

test: toolchain test-parts ## Every test, real client libraries included
	cargo test --workspace --locked --no-fail-fast

cluster-test: toolchain test-parts redirect-parts ## Tests against a real etcd and kube-apiserver (root; the first time builds them, about ten minutes)
	scripts/cluster-test

redirect-test: toolchain redirect-parts ## Tests of the redirect's programs and rules in this kernel (root, control groups of version 2)
	scripts/redirect-test

e2e: toolchain test-parts ## A real kubelet's node, the agent's chart and image on it, the tool's image in real pods (root; the first time builds Kubernetes)
	scripts/e2e

ebpf: ebpf-tools ## Compiles the redirect's programs for the kernel anew (Debian 12's clang 14); the object is committed
	scripts/ebpf build

check: toolchain deny-tool ebpf-tools ## Formatting, lints, dependency rules, docs, each crate alone
	scripts/check

bench: build ## Figures beside their peers', as ratios from one run (installs ab and wrk)
	benches/run

scenarios: build ## Stories from the field, retold and done better (root; 23 minutes, seven with SHORT=1)
	for run in scenarios/*/run; do "$$run" $(if $(SHORT),--short); done

# Another architecture, by cross compilation: make image TARGET=aarch64-unknown-linux-musl
TARGET ?= x86_64-unknown-linux-musl

image: toolchain ## Static programs, and an OCI layout of each, without a daemon (target/image)
	scripts/image $(TARGET)

dist: toolchain ## The same, and archives with checksums and bills of materials (target/dist)
	scripts/image --dist $(TARGET)

image-twice: toolchain ## Builds what is committed in two places, and compares every digest (before a release)
	scripts/image --twice $(TARGET)

fuzz: ## A minute for each fuzz target (needs nightly and cargo-fuzz)
	fuzz/run

toolchain:
	@scripts/setup toolchain

test-parts:
	@scripts/setup test-parts

deny-tool:
	@scripts/setup deny

ebpf-tools:
	@scripts/setup ebpf

redirect-parts:
	@scripts/setup redirect

.PHONY: help build demo test cluster-test redirect-test e2e ebpf check bench scenarios image dist image-twice fuzz toolchain test-parts deny-tool ebpf-tools redirect-parts
