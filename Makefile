# The only entry. `make demo` shows the product, `make test` proves it, `make check` is the reviewer.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

help: ## What there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

build: toolchain ## Both programs for this machine, optimised
	cargo build --release --locked --bins

demo: programs ## Emulated clouds, three pods, their credentials, and the load that proves it (under a minute)
	demo/run

test: test-parts test-build ## Every test, real client libraries included
	scripts/run-tests run --doc

test-build: toolchain
	scripts/run-tests build

cluster-test: toolchain test-parts redirect-parts ## Tests against a real etcd and kube-apiserver (root; the first time builds them, some minutes)
	scripts/cluster-test

redirect-test: toolchain redirect-parts ## Tests of the redirect's programs and rules in this kernel (root, control groups of version 2)
	scripts/redirect-test

e2e: toolchain test-parts ## A real kubelet's node, the agent's chart and image on it, the tool's image in real pods (root; the first time builds Kubernetes)
	scripts/e2e

ebpf: ebpf-tools ## Compiles the redirect's programs for the kernel anew (Debian 12's clang 14); the object is committed
	scripts/ebpf build

check: toolchain deny-tool ebpf-tools ## Formatting, lints, dependency rules, docs, and each crate alone whose dependencies changed
	scripts/check

check-each: toolchain ## Each crate alone, all of them (before a release)
	scripts/check-each --all

bench: image build ## Figures of what ships beside its peers', as ratios from one run (installs ab and wrk)
	benches/run

scenarios: programs ## Stories from the field, retold and done better (root; 23 minutes, seven with SHORT=1)
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

# SEAWALL_BIN names a folder that has both programs: then they are not built.
programs: $(if $(SEAWALL_BIN),toolchain,build)

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

.PHONY: help build demo test test-build cluster-test redirect-test e2e ebpf check check-each bench scenarios image dist image-twice fuzz programs toolchain test-parts deny-tool ebpf-tools redirect-parts
