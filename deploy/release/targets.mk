# Targets that make a release, included by the Makefile. .github/workflows/release.yml runs them; each can be run anywhere.

CARGO_CYCLONEDX_VERSION := 0.5.9
CARGO_CYCLONEDX := target/tools/bin/cargo-cyclonedx
# Programs of Go modules. Tests may have built Helm already.
GO_INSTALL := env CGO_ENABLED=0 GOFLAGS= GOTOOLCHAIN=local GOWORK=off GOBIN=$(CURDIR)/target/tools/bin go install -trimpath
ACTIONLINT := target/tools/bin/actionlint
CRANE := target/tools/bin/crane
HELM := $(firstword $(wildcard target/cluster-programs/helm-*/helm) target/tools/bin/helm)
# Rust's names of the machines that the plugin is built for.
TRIPLE_linux_amd64 := x86_64-unknown-linux-gnu
TRIPLE_linux_arm64 := aarch64-unknown-linux-gnu
TRIPLE_darwin_amd64 := x86_64-apple-darwin
TRIPLE_darwin_arm64 := aarch64-apple-darwin
# Debian's C compilers link for another machine as well. They come with `make cross-deps`.
CC_amd64 := x86_64-linux-gnu-gcc
CC_arm64 := aarch64-linux-gnu-gcc
HOST_SYSTEM := $(if $(findstring darwin,$(HOST)),darwin,linux)
HOST_ARCH := $(if $(filter aarch64-%,$(HOST)),arm64,amd64)
PLUGIN_SYSTEM := $(or $(SYSTEM),$(HOST_SYSTEM))
PLUGIN_ARCH := $(or $(ARCH),$(HOST_ARCH))
PLUGIN_TRIPLE = $(or $(TRIPLE_$(PLUGIN_SYSTEM)_$(PLUGIN_ARCH)),$(error there is no plugin for $(PLUGIN_SYSTEM) on $(PLUGIN_ARCH)))
PLUGIN_FOREIGN = $(filter-out $(HOST),$(PLUGIN_TRIPLE))
PLUGIN = target/kubectl-jobset$(if $(PLUGIN_FOREIGN),-$(PLUGIN_SYSTEM)-$(PLUGIN_ARCH))
PLUGIN_CROSS = $(if $(and $(PLUGIN_FOREIGN),$(filter linux,$(PLUGIN_SYSTEM))),env \
  CC_$(subst -,_,$(PLUGIN_TRIPLE))=$(CC_$(PLUGIN_ARCH)) CARGO_TARGET_$(shell tr a-z- A-Z_ <<<$(PLUGIN_TRIPLE))_LINKER=$(CC_$(PLUGIN_ARCH)))

.PHONY: version-check
version-check: ## Checks that Cargo.toml, the chart, manifests, docs and CHANGELOG.md have one version.
	@deploy/release/version check

.PHONY: version-write
version-write: ## Writes the version of Cargo.toml into the other files. VERSION=1.2.3 becomes the version first.
	@deploy/release/version write $(VERSION)

.PHONY: workflow-check
workflow-check: $(ACTIONLINT) ## Checks .github/workflows by actionlint, which it builds once.
	@$(ACTIONLINT) -shellcheck= -pyflakes=

.PHONY: plugin
plugin: rust ##* Builds kubectl-jobset, the plugin of kubectl: target/kubectl-jobset, static on Linux. ARCH=arm64, on a Mac SYSTEM=darwin.
	$(PLUGIN_CROSS) cargo build --locked --release -p jobset-cli --bin kubectl-jobset --target $(PLUGIN_TRIPLE)
	install -m 755 target/$(PLUGIN_TRIPLE)/release/kubectl-jobset $(PLUGIN)

.PHONY: plugin-archive
plugin-archive: plugin ## Packs the plugin with completions and licences: target/dist/kubectl-jobset_*.tar.gz. ARCH=arm64.
	@$(if $(PLUGIN_FOREIGN),$(MAKE) --no-print-directory plugin ARCH= SYSTEM=)
	@COMPLETIONS_OF=target/kubectl-jobset deploy/release/plugin-archive $(PLUGIN) $(PLUGIN_SYSTEM) $(PLUGIN_ARCH)

.PHONY: cross-deps
cross-deps: ## Installs what builds for ARCH=arm64 need on another machine with Debian or Ubuntu.
	rustup target add $(TRIPLE_linux_$(ARCH))
	apt-get update
	apt-get install -y --no-install-recommends $(if $(filter arm64,$(ARCH)),gcc-aarch64-linux-gnu libc6-dev-arm64-cross,gcc-x86-64-linux-gnu libc6-dev-amd64-cross)

.PHONY: chart-package
chart-package: $(HELM) ## Packages the chart, and what it renders to: target/dist/jobset-*. IMAGES=ghcr.io/owner/name PROJECT_URL=https://... DIGESTS=FILE
	@$(if $(DIGESTS),DIGESTS=$(DIGESTS)) deploy/release/chart-package $(HELM)

.PHONY: sbom
sbom: tools ## Lists what each program is made of, in CycloneDX: target/dist/*.cdx.json.
	@test -x $(CARGO_CYCLONEDX) || cargo install --quiet --locked --root target/tools cargo-cyclonedx --version $(CARGO_CYCLONEDX_VERSION)
	@deploy/release/sbom $(CARGO_CYCLONEDX)

.PHONY: checksums
checksums: ## Writes target/dist/SHA256SUMS.
	@cd target/dist && find . -type f -not -name SHA256SUMS -not -path './images/*' -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS
	@cat target/dist/SHA256SUMS

.PHONY: release-notes
release-notes: ## Prints the text of a release from CHANGELOG.md: VERSION=1.2.3 (default: the version of Cargo.toml).
	@deploy/release/notes $(or $(VERSION),"$$(deploy/release/version)")

.PHONY: release-check
release-check: version-check ## Fails unless TAG is the version with a v before, and CHANGELOG.md says what it brings.
	@[[ "$(TAG)" == "v$$(deploy/release/version)" ]] || { echo "make: the tag '$(TAG)' is not v$$(deploy/release/version)" >&2; exit 1; }
	@deploy/release/notes "$(TAG)" >/dev/null

.PHONY: release-rehearsal
release-rehearsal: images plugin-archive chart-package sbom $(CRANE) $(HELM) ## Builds what a release has, and pushes it to a registry on this machine.
	@deploy/release/rehearse $(CRANE) $(HELM)
	@deploy/release/notes "$$(deploy/release/version)"
	@$(MAKE) --no-print-directory checksums

# The following need IMAGES and a login.

.PHONY: registry-login
registry-login: $(CRANE) # Helm reads the same file.
	@$(CRANE) auth login "$$REGISTRY" --username "$$REGISTRY_USER" --password-stdin

.PHONY: push-images
push-images: $(CRANE)
	@deploy/release/push-images $(CRANE) $(PROGRAMS)

.PHONY: push-chart
push-chart: $(HELM)
	@deploy/release/push-chart $(HELM)

target/tools/bin/actionlint: deploy/release/tools/go.mod deploy/release/tools/go.sum
	@cd deploy/release/tools && $(GO_INSTALL) github.com/rhysd/actionlint/cmd/actionlint
	@touch $@

target/tools/bin/crane: deploy/release/tools/go.mod deploy/release/tools/go.sum
	@cd deploy/release/tools && $(GO_INSTALL) github.com/google/go-containerregistry/cmd/crane
	@touch $@

target/tools/bin/helm: e2e/cluster/helm/go.mod e2e/cluster/helm/go.sum
	@cd e2e/cluster/helm && $(GO_INSTALL) helm.sh/helm/v4/cmd/helm
	@touch $@
