# `make demo` shows it, `make test` proves it. `make help` lists the rest.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

CRD := deploy/crds/jobset.x-k8s.io_jobsets.yaml
# Kubernetes publishes its OpenAPI documents in its own Go module: that of the newest test cluster, so that templates keep its fields.
define CRDGEN
cd e2e/cluster/kubernetes-1.37 && go mod download k8s.io/kubernetes \
  && openapi=$$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)/api/openapi-spec/v3 && cd - >/dev/null \
  && $(CRDGEN_PROGRAM) $$openapi/api__v1_openapi.json $$openapi/apis__batch__v1_openapi.json
endef
CRDGEN_PROGRAM := cargo run --locked --quiet -p jobset-api --features crdgen --bin crdgen --
# rust-toolchain.toml names the compiler. A machine may have it under the name `stable` alone, and not be allowed to fetch it again.
PINNED := $(shell sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
ifeq ($(shell rustc --version 2>/dev/null),)
ifeq ($(word 2,$(shell RUSTUP_TOOLCHAIN=stable rustc --version 2>/dev/null)),$(PINNED))
export RUSTUP_TOOLCHAIN := stable
endif
endif
# What `make test` builds, at once: what features the dependencies get hangs on what is built together, and each selection of
# packages compiles them again.
EVERYTHING := --locked --workspace --all-features
# Where cargo puts programs: .cargo/config.toml names the target, so that all of them are linked statically, as images need them.
# GNU Make hands exported variables to $(shell) from 4.4 on, so this one is handed over by hand.
HOST := $(shell $(if $(RUSTUP_TOOLCHAIN),RUSTUP_TOOLCHAIN='$(RUSTUP_TOOLCHAIN)') rustc -vV 2>/dev/null | sed -n 's/^host: //p')
DEBUG := target/$(HOST)/debug
RELEASE := target/$(HOST)/release
E2E := $(DEBUG)/e2e-cluster
# Makes tests run the programs that users run, with link-time optimization.
SHIPPED := env JOBSET_BUILD=shipped
# Notes what each step took: `--start`, `NAME COMMAND...`, `--print`.
STOPWATCH := e2e/stopwatch
# Tests on clusters wait for most of their time, so how many run at once does not depend on the cores.
# Of them, as many work at once as e2e/tests/seat.rs has seats: the others wait for a cluster that one test has alone.
TESTS_ON_KUBELETS := 24
TESTS_ON_CONTROL_PLANES := 6
# What failed among the tests that run side by side, whose output is mixed, once more at the end.
FAILURES := sed -n '/^failures:$$/,/^test result/p'
KUBELETS_LOG := target/tests-on-kubelets.log
UNIT_LOG := target/unit-tests.log
DEMO_CLUSTER := target/demo/cluster
CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := target/tools/bin/cargo-deny
MDBOOK_VERSION := 0.5.4
MDBOOK := target/tools/bin/mdbook

include deploy/release/targets.mk

.PHONY: help
help: ## Lists the targets that people use first; make help ALL=1 lists all.
	@grep -hE '^[a-z0-9.-]+:.*##$(if $(ALL),\*?,\*) ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9.-]+):.*##\*? (.*)/  \1\t\2/' | expand -t 16

.PHONY: rust
rust:
	@command -v cargo >/dev/null || { echo 'make: cargo is missing: install Rust 1.95 or newer (https://rustup.rs)' >&2; exit 1; }
	@[ -n '$(HOST)' ] || { echo 'make: rustc does not start: run "rustc -vV" to see why, and "rustup toolchain install"' >&2; exit 1; }

.PHONY: tools
tools: rust
	@command -v go >/dev/null || { echo 'make: go is missing: install Go 1.26 or newer (https://go.dev/dl)' >&2; exit 1; }

.PHONY: build
build: rust
	cargo build $(EVERYTHING) --bins

.PHONY: deps
deps: tools build ## Installs the Debian packages that the test cluster needs, where it may; else says which.
	@$(E2E) deps --install

.PHONY: demo
demo: started := $(shell date +%s.%N)
ifdef CONTEXT
demo: build
	@$(DEBUG)/demo --started $(started) --context $(filter-out current,$(CONTEXT)) \
	  $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(TAG),--tag $(TAG))
else
demo: tools ##* Shows a JobSet recover from a failed worker, in place and by recreation. CONTEXT=current: in the cluster of kubectl.
	@$(STOPWATCH) --start demo
	@$(STOPWATCH) 'build of the Rust programs' $(MAKE) --no-print-directory build
	@$(STOPWATCH) 'Debian packages' $(E2E) deps --install
	@$(STOPWATCH) 'build of the Go programs' $(E2E) programs --set cluster
	@$(STOPWATCH) 'demo' $(DEBUG)/demo --started $(started)
	@$(STOPWATCH) --print
endif

.PHONY: demo-keep
demo-keep: started := $(shell date +%s.%N)
demo-keep: deps ## The same, and leaves the cluster up to be looked at.
	@if [ -e $(DEMO_CLUSTER) ]; then $(E2E) down --dir $(DEMO_CLUSTER); fi
	@$(E2E) up --nodes 2 --dir $(DEMO_CLUSTER) --detach >/dev/null
	@$(DEBUG)/demo --started $(started) --cluster $(DEMO_CLUSTER)

.PHONY: demo-down
demo-down: build ## Removes what demo-keep left.
	@$(E2E) down --dir $(DEMO_CLUSTER)

.PHONY: test
test: tools ##* Everything: lints, unit tests, and the tests on a real API server and on real kubelets.
	@$(STOPWATCH) --start test
	@$(STOPWATCH) 'lints' $(MAKE) --no-print-directory lint workflow-check
	@$(STOPWATCH) 'build of programs and tests' cargo build $(EVERYTHING) --bins --tests
	@$(MAKE) --no-print-directory crd-check CRDGEN_PROGRAM=$(DEBUG)/crdgen
	@$(STOPWATCH) 'Debian packages' $(E2E) deps --install
	@$(STOPWATCH) 'build of the Go programs' $(E2E) programs
	@$(STOPWATCH) 'build of the Go suites' $(DEBUG)/conformance --build
	@$(MAKE) --no-print-directory older
	@$(MAKE) --no-print-directory run-tests
	@$(STOPWATCH) --print

.PHONY: older
older: build ## Builds the programs of the commit that those of now have to work with; JOBSET_OLDER names another commit or tag.
	@$(STOPWATCH) 'build of the older programs' $(E2E) older

# Tests on kubelets wait for a third of their time; unit tests, which nothing hurries, get what is left. Tests on control planes come
# afterwards: beside others they miss their limits. With Go's default, half of an API server's CPU seconds here are garbage collection.
.PHONY: run-tests
run-tests: export GOGC := 400
# Contexts say where an error arose; with the frames of the runtime below it, it is not found in a long log.
run-tests: export RUST_LIB_BACKTRACE := 0
run-tests:
	@$(MAKE) --no-print-directory -j2 tests-on-kubelets unit-tests || { for log in $(KUBELETS_LOG) $(UNIT_LOG); do \
	  echo "== failed in $$log:"; $(FAILURES) $$log; done; exit 1; }
	@$(MAKE) --no-print-directory tests-on-control-planes

.PHONY: tests-on-kubelets
tests-on-kubelets:
	@mkdir -p target
	@$(STOPWATCH) 'tests on kubelets' env RUST_TEST_THREADS=$(TESTS_ON_KUBELETS) \
	  cargo test $(EVERYTHING) --test e2e -- $(TESTS) 2>&1 | tee $(KUBELETS_LOG) | sed -u 's/^/[kubelets] /'

.PHONY: unit-tests
unit-tests:
	@mkdir -p target
	@$(STOPWATCH) 'unit tests' nice -n 19 cargo test $(EVERYTHING) --lib --bins --test allocations 2>&1 | tee $(UNIT_LOG)
	@$(STOPWATCH) 'examples in docs' nice -n 19 cargo test $(EVERYTHING) --doc

.PHONY: tests-on-control-planes
tests-on-control-planes:
	@for package in controller webhook agent relay cli; do \
	  $(STOPWATCH) "tests of $$package" env RUST_TEST_THREADS=$(TESTS_ON_CONTROL_PLANES) \
	    cargo test $(EVERYTHING) --test $$package || exit; \
	done

.PHONY: test-long
test-long: deny images-twice release-rehearsal readme docs conformance takeover training breaks hangs clients cert-manager test-ui test-on-1.37 test-older-kubelets ##* What make test has no time for: make deny, images-twice, release-rehearsal, readme, docs, conformance, takeover, training, breaks, hangs, clients, cert-manager, test-ui, and tests on 1.37, 3 h.

# Both tests on the newer Kubernetes: `make test` has linted the programs and run the tests that need no cluster.
.PHONY: programs-of-1.37
programs-of-1.37: tools
	cargo build $(EVERYTHING) --bins --tests
	@$(E2E) deps --install
	@$(STOPWATCH) --start
	@$(STOPWATCH) 'build of the Go programs' env KUBERNETES_VERSION=1.37 $(E2E) programs

.PHONY: test-on-1.37
test-on-1.37: export KUBERNETES_VERSION := 1.37
test-on-1.37: export GOGC := 400
test-on-1.37: programs-of-1.37 ## Runs all tests on clusters of make test once more, on Kubernetes 1.37.
	@$(MAKE) --no-print-directory tests-on-kubelets
	@$(MAKE) --no-print-directory tests-on-control-planes
	@$(STOPWATCH) --print

.PHONY: test-older-kubelets
test-older-kubelets: export KUBERNETES_VERSION := 1.37
test-older-kubelets: export KUBELET_VERSION := 1.36
test-older-kubelets: export GOGC := 400
test-older-kubelets: programs-of-1.37 ## Runs the tests on kubelets once with kubelets of 1.36 under an API server of 1.37.
	@$(MAKE) --no-print-directory tests-on-kubelets TESTS='harness:: kubelet:: readme::'
	@$(STOPWATCH) --print

.PHONY: conformance
conformance: tools ## Runs suites of the Go JobSet, Kueue and Trainer against ours: target/conformance.json. ARGS="--suite webhook", --focus TEXT, --go.
	cargo build $(EVERYTHING) --bins
	@$(E2E) deps --install
	@$(SHIPPED) $(DEBUG)/conformance $(ARGS)

.PHONY: clients
clients: tools deps ## JobSets in Kueue's queues and of Trainer's jobs, beyond those suites, on real kubelets: half an hour.
	@$(E2E) programs
	$(SHIPPED) cargo test $(EVERYTHING) --test e2e -- --ignored --nocapture --test-threads 1 clients::

.PHONY: cert-manager
cert-manager: tools deps ## Certificates of the real cert-manager, installed and replaced as the docs say, on real kubelets: a quarter of an hour.
	@$(E2E) programs
	$(SHIPPED) cargo test $(EVERYTHING) --test e2e -- --ignored --nocapture --test-threads 1 cert_manager::

.PHONY: cargo-deny
cargo-deny: tools
	@test -x $(CARGO_DENY) || cargo install --quiet --locked --root target/tools cargo-deny --version $(CARGO_DENY_VERSION)

.PHONY: deny
deny: cargo-deny ## Checks licences, unwanted crates and the sources of all crates by cargo-deny, which it builds once.
	$(CARGO_DENY) --log-level error check licenses bans sources

.PHONY: advisories
advisories: cargo-deny ## Checks all crates for advisories of RustSec, whose database it fetches, and for yanked versions.
	$(CARGO_DENY) --log-level error check advisories

.PHONY: images-twice
images-twice: tools ## Builds all images in two empty clones of the commit and compares them: half an hour.
	e2e/images-twice

.PHONY: takeover
takeover: tools deps ## Takes over from the Go JobSet on real kubelets, and goes back, three times under load: a quarter of an hour.
	@$(E2E) programs
	$(SHIPPED) cargo test $(EVERYTHING) --test e2e -- --ignored --nocapture --test-threads 1 takeover::

.PHONY: readme
readme: tools deps ## Runs what the README builds, shows and installs, on an empty cluster: five minutes once all is built.
	@$(E2E) programs --set cluster
	cargo test $(EVERYTHING) --test e2e -- --ignored --nocapture --test-threads 1 readme::

.PHONY: breaks
breaks: tools deps ## Breaks JobSets in thirteen ways, and takes the time until explain and conditions name the reason: twenty minutes.
	@$(E2E) programs --set cluster
	$(SHIPPED) cargo test $(EVERYTHING) --test e2e -- --ignored --nocapture --test-threads 1 breaks::

.PHONY: training
training: tools deps ## Trains on real kubelets while workers are killed at random, in place, and compares the loss curve: five minutes. SEED=1.
	@$(E2E) programs --set cluster
	$(SHIPPED) cargo test $(EVERYTHING) --test e2e -- --include-ignored --nocapture --test-threads 1 training::

# The browser is large, so that nobody else needs it. Without a font it has no letters.
.PHONY: chromium
chromium:
	@command -v npm >/dev/null || { echo 'make: npm is missing: install Node.js with npm' >&2; exit 1; }
	@[ -x "$${CHROMIUM:-/usr/bin/chromium}" ] || { apt-get update \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-dejavu-core; }

PAGE_IN_CHROMIUM := cargo test $(EVERYTHING) --test cli -- --ignored --exact --nocapture browser::page_of_5000_pods_in_chromium

.PHONY: test-ui
test-ui: tools deps chromium ## Looks at the page of kubectl jobset ui in Debian's Chromium, with 5,000 Pods: two minutes.
	@$(E2E) programs --set control-plane
	$(PAGE_IN_CHROMIUM)

.PHONY: bench-ui
bench-ui: tools deps chromium plugin ## Measures that page: first paint, a change of 5,000 Pods, memory of the server: target/bench/ui.json.
	@$(E2E) programs --set control-plane
	BENCH=1 KUBECTL_JOBSET=$(CURDIR)/target/kubectl-jobset $(PAGE_IN_CHROMIUM)

.PHONY: screenshots
screenshots: tools deps chromium ## Takes the docs' pictures of that page: docs/src/images/.
	@$(E2E) programs --set control-plane
	SCREENSHOTS=1 $(PAGE_IN_CHROMIUM)

.PHONY: test-certificates
test-certificates: tools deps ## Three replicas get their first certificates, a hundred times, and a hundred rotations under load: some minutes.
	@$(E2E) programs
	CERTIFICATE_ROUNDS=100 cargo test --locked -p jobset-webhook --test webhook -- --include-ignored --nocapture --test-threads 1 rotation::

.PHONY: test-output
test-output: rust ## 100 MB/s of output for a minute through a supervising agent: equal byte by byte, within its memory.
	cargo test --locked -p jobset-agent --test agent -- --ignored --nocapture output_of_a_minute

.PHONY: hangs
hangs: tools deps ## Has a worker of a training hang, 200 times, at random, on real kubelets: when that is noticed, and who is blamed. SEED=1 HANGS=200: twenty minutes.
	@$(E2E) programs --set cluster
	cargo test $(EVERYTHING) --test e2e -- --ignored --nocapture --test-threads 1 hangs::

.PHONY: images
images: build ##* Builds the images of controller, webhook, certs, relay and agent without Docker: target/images/*.tar. ARCH=arm64 for another machine, TAG=1.
	@$(E2E) images $(if $(ARCH),--architecture $(ARCH)) $(if $(TAG),--tag $(TAG))

.PHONY: notices
notices: tools ## Writes deploy/THIRD-PARTY-NOTICES, which every image and the plugin have.
	UPDATE_NOTICES=1 cargo test --locked -p jobset-release --lib

.PHONY: chaos
chaos: deps ##* Random faults for ten minutes: workers, agents, Pods, a kubelet, the API server, the controller, relays.
	@$(SHIPPED) $(DEBUG)/chaos $(ARGS)

.PHONY: picture
picture: deps ## Draws the picture of docs/src/metrics.md from what a Prometheus saw of fifteen failures: three minutes.
	@$(SHIPPED) $(DEBUG)/picture

.PHONY: docs
docs: build ##* Checks the pages of the documentation against code and figures, and builds the site: target/docs/index.html.
	@$(DEBUG)/docs check
	@test -x $(MDBOOK) || cargo install --locked --root target/tools mdbook --version $(MDBOOK_VERSION)
	@$(MDBOOK) build docs --dest-dir $(CURDIR)/target/docs
	@echo 'written: target/docs/index.html'

.PHONY: docs-write
docs-write: build ## Writes the pages that the code gives: API, flags, metrics, events, labels; and the tables of the recorded figures.
	@$(DEBUG)/docs write

.PHONY: docs-record
docs-record: build ## Takes the results of the last demo and benchmarks over into docs/figures, and writes their tables.
	@$(DEBUG)/docs record

.PHONY: bench-deps
bench-deps: tools
	cargo build --locked --release -p jobset-harness -p jobset-bench --bin bench --bin bench-webhook --bin e2e-cluster

.PHONY: bench
bench: bench-deps ##* Measures restarts of 100, 1,000 and 5,000 Pods without kubelets: by watches, by the Go manager, over the stream, by recreation.
	@$(RELEASE)/bench --recreate --watch new,kept

.PHONY: bench-figures
bench-figures: bench-deps ## Measures what the README shows: 20 restarts of 5,000 Pods by the Go manager, and over the stream.
	@$(RELEASE)/bench --agents 5000 --watch new,kept --way go,stream --restarts 20

.PHONY: bench-large
bench-large: bench-deps ## The same with 15,000 Pods, beside 50,000 that belong to no JobSet; without the Go manager.
	@$(RELEASE)/bench --agents 15000 --foreign-pods 50000 --restarts 3 --recreate --way watch
	@$(RELEASE)/bench --agents 15000 --watch new,kept --way stream --annotation-seconds 200

.PHONY: bench-webhook
bench-webhook: bench-deps ## Measures reviews of a JobSet of 42 kB and of a Pod by the admission service, alone and beside heavy ones.
	@$(RELEASE)/bench-webhook

.PHONY: bench-agent
bench-agent: deps ##* Measures the agent and its restarts on real kubelets, without and with the agent stream: memory, requests, seconds.
	@$(DEBUG)/bench-agent
	@$(DEBUG)/bench-agent --stream

.PHONY: bench-fairness
bench-fairness: deps ## Measures restarts beside a namespace that creates 100,000 Jobs, on real kubelets: ARGS="--compare PATH".
	@$(DEBUG)/bench-fairness $(ARGS)

.PHONY: bench-micro
bench-micro: rust ## Measures one reconciliation and an event of a Pod, without a cluster.
	cargo bench --locked -p jobset-rules --bench rules

.PHONY: bench-metrics
bench-metrics: rust ## Measures a scrape of /metrics after ten thousand JobSets have finished, without a cluster.
	cargo test --locked -p jobset-controller --lib metrics::scrape -- --nocapture

.PHONY: fuzz
fuzz: bench-deps ## Sends a million mutated reviews through admission, and what is admitted through the controller's rules.
	PROPTEST_CASES=$${PROPTEST_CASES:-1000000} cargo test --locked --release -p jobset-webhook --test webhook fuzz

.PHONY: model
model: rust ## Model-checks the protocol with larger bounds than make test: three Pods in each setting.
	MODEL_LARGE=1 cargo test --locked --release -p jobset-engine --lib proof::model::tests::properties_hold -- --nocapture --include-ignored --test-threads 1

.PHONY: lint
lint: rust version-check words ##* Format and clippy, warnings denied; one version everywhere; the words of the glossary.
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --all-features -- -D warnings

.PHONY: words
words: ## Checks that texts say what the glossary says, and not what e2e/words.tsv replaces.
	@e2e/words

.PHONY: lines
lines: ## Counts lines of Rust, of product and of tests: COMMIT=HEAD~1.
	@e2e/lines $(COMMIT)

.PHONY: crd
crd: rust ## Generates the CustomResourceDefinition.
	@$(CRDGEN) > $(CRD).new && mv $(CRD).new $(CRD)

.PHONY: manifests
manifests: deps crd ## Renders deploy/kustomize and deploy/monitoring from the chart.
	UPDATE_MANIFESTS=1 cargo test --locked -p jobset-e2e --test e2e chart::render::kustomizations

.PHONY: crd-check
crd-check: rust ## Fails when the committed CustomResourceDefinition is stale.
	@$(CRDGEN) | cmp - $(CRD) || { echo 'make: $(CRD) is stale: run make crd and commit it' >&2; exit 1; }
