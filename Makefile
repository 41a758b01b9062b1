# make run       serve with the defaults, data in .sailplane/
# make test      every test of the library (root module), around it (module test/) and of the cluster registry
# make lint      the linters and formatters of .golangci.yml; stale generated files
# make fmt       format as `make lint` wants it
# make bench     measure, beside kube-apiserver, and write docs/performance; takes hours of a quiet machine
# make compatibility  run real programs against the server, and write docs/compatibility.md; builds them, for an hour
# make soak      1,000 rounds of faults for each storage, in .soak/; takes hours, and goes on where it was stopped;
#                then an hour of faults of servers behind another one (each alone: soak-storage, soak-federation)
# make rolling   replace running servers of an earlier version by this one, under load, on each storage that servers share
# make fuzz      10,000,000 damaged requests, in .fuzz/; takes hours, and goes on where it was stopped
# make siege     attack a server, and measure what its other tenants notice; takes half an hour of a quiet machine
# make compile   compile what the tests are made of
# make generate  write the generated OpenAPI definitions again
# make vuln      known vulnerabilities in what both modules use; skipped where their database cannot be reached
# make build     bin/sailplane
# make release   archives of the binary, SBOMs and checksums in dist/; compiles for four platforms
# make image     a container image of a release, with buildah
#
# Compiling the Kubernetes libraries is most of the time of a first run. So
# there are two builds of them and no more: without cgo for everything (the
# build that a machine with only Go makes), and with cgo and the race detector
# where concurrency lives. Every target shares the first; do not add flags
# to one of them that change how packages are compiled (-trimpath, -tags, -gcflags).

.PHONY: run build release image compile test test-library test-around test-race lint fmt bench compatibility soak soak-storage soak-federation siege fuzz rolling generate vuln clean
.NOTPARALLEL:

export CGO_ENABLED ?= 0

LINT_VERSION := v2.15.0
LINT := bin/golangci-lint-$(LINT_VERSION)

GOTESTSUM_VERSION := v1.13.0
GOTESTSUM := bin/gotestsum-$(GOTESTSUM_VERSION)

# The time is for a machine that is small and busy: what hangs is ended sooner, by tests.
# A test that fails is run again, alone; the names of those that pass then are in FLAKY.
# What all tests of a phase printed is in bin/tests. `make lint` vets: here vet would
# read all packages below for a second time, for minutes.
FLAKY := bin/flaky-tests
GOTEST := bin/gotest -gotestsum $(CURDIR)/$(GOTESTSUM) -flaky $(FLAKY)
TEST = $(GOTEST) -log bin/tests/$@.json -timeout 60m -vet=off -p 5
# A profile beside a main package would compile everything below it once more. Without what only debuggers
# read, linking takes two thirds of the processors' time, and each package of tests is linked. Compiler and
# linker let more garbage pile up; tests must not.
compile test-library test-around test-race lint soak soak-storage soak-federation siege fuzz rolling: export GOFLAGS := $(GOFLAGS) -pgo=off -ldflags=-s '-toolexec=env GOGC=400'
# go test notices changed files in its own module only: the scripts and tests
# around the library read those of the other one, so no result of theirs is kept.
# More packages run at once than there are processors, which would wait for disks and clocks: five of the library, where a
# package waits most, and three around it, where it is a server and its clients. They run in the order they are named in:
# what takes longest comes first.
LONG = $(addprefix ./,$(wildcard $(addprefix pkg/,storage/etcd storage/sqlite apis verify internal/kept internal/projected authn)))
LONG_AROUND = $(patsubst test/%,./%,$(wildcard $(addprefix test/,etcdserve federation storage databases replicas script examples security \
	faults lending lending/life crash chart migration moving hostile)))
TEST_AROUND = $(GOTEST) -dir test -log bin/tests/$@-around.json -timeout 60m -vet=off -count=1 -p 3

# $(call phase,NAME,COMMAND) runs the command and says how long it took.
phase = @echo "== $(1)"; begin=$$(date +%s); { $(2); } || exit $$?; echo "== $(1): $$(($$(date +%s) - begin)) s"

run: build
	exec bin/sailplane serve --data-dir .sailplane

build:
	go build -o bin/ ./cmd/sailplane

# RELEASE has further flags, as in: make release RELEASE="-targets linux/amd64".
release:
	go run ./hack/release -dist $(DIST) $(RELEASE) ./cmd/sailplane

# The image trusts the certificate authorities that this machine trusts, or those of
# the file ROOTS. BUILDER may be another program that builds, as in: make image BUILDER=podman.
DIST := dist
IMAGE := sailplane
BUILDER := buildah
ARCH = $(shell go env GOARCH)
ARCHIVE = $(wildcard $(DIST)/sailplane_*_linux_$(ARCH).tar.gz)
ROOTS = $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem))

image:
	@test -n "$(ARCHIVE)" || { echo "$(DIST) has no release for linux/$(ARCH): make release RELEASE=\"-targets linux/$(ARCH)\""; exit 1; }
	@test -n "$(ROOTS)" || { echo "there are no certificate authorities: install ca-certificates, or set ROOTS to a file in PEM"; exit 1; }
	rm -rf $(DIST)/image && mkdir -p $(DIST)/image/data $(DIST)/image/root/etc/ssl/certs $(DIST)/image/root/var/lib
	cp $(ROOTS) $(DIST)/image/root/etc/ssl/certs/ca-certificates.crt
	tar -xzf $(ARCHIVE) -C $(DIST)/image/root sailplane LICENSE THIRD-PARTY-LICENSES
	$(BUILDER) build --file config/container/Containerfile --tag $(IMAGE) --platform linux/$(ARCH) \
		--build-arg VERSION=$(word 2,$(subst _, ,$(notdir $(ARCHIVE)))) $(DIST)/image

# The names of flaky tests come last, whatever failed. They are no failure.
test:
	@rm -f $(FLAKY)
	@$(MAKE) --no-print-directory test-library test-around test-race; code=$$?; \
	if test -s $(FLAKY); then cat $(FLAKY); elif test -e $(FLAKY); then echo "no flaky tests"; fi; exit $$code

# What the tests are made of, so that they find it compiled, and the one program that they run
# which takes minutes.
COMPILE = go list -export -deps
compile:
	$(call phase,compile for the tests,$(COMPILE) ./... >/dev/null && \
		{ ! $(CC_IS_HERE) || CGO_ENABLED=1 $(COMPILE) -race $(STORAGES) $(CONCURRENT) >/dev/null; } && \
		cd test && $(COMPILE) ./... >/dev/null && \
		cd bench/peers && $(COMPILE) k8s.io/kubernetes/cmd/kube-apiserver >/dev/null)

# With a C compiler, tests of CONCURRENT run with the race detector alone, those of STORAGES also here:
# with cgo they have another build of SQLite.
LIBRARY = { go list -e ./...; ! $(CC_IS_HERE) || go list -e $(CONCURRENT); } | sort | uniq -u | sed "s,^$$(go list -m),.,"

test-library: gotest
	$(call phase,tests of the library,$(TEST) $(LONG) $$($(LIBRARY)))

test-around: gotest
	$(call phase,tests around the library,$(TEST_AROUND) $(LONG_AROUND) ./...)
	$(call phase,tests of the cluster registry,$(GOTEST) -dir examples/clusterregistry -log bin/tests/$@-registry.json -timeout 60m -vet=off -count=1 ./...)

# STORAGES and CONCURRENT are where concurrency lives, RACES where it does on databases, and FILL what
# fills a storage, or has another test of the same code beside it.
STORAGES = $(addprefix ./pkg/storage/,$(addsuffix /...,etcd sqlite memory storagetest))
CONCURRENT = $(addprefix ./pkg/,$(addsuffix /...,planetest quota storageapi internal/etcdserve lifecycle controlplane backup aggregator feed admit \
	authz encryption internal/election internal/store internal/polled internal/source internal/stream internal/tied))
RACES = ^TestCommitOrder$$|^TestContract$$/./^(watches|writes|revisions)
CC_IS_HERE = command -v "$$(go env CC)" >/dev/null
FILL = -skip '^TestHistoryIsBounded$$|^TestFull$$|/^scale$$/^(50000|a_day)|^TestContract$$/^whole$$'

# The race detector needs a C compiler, which also gives these tests the cgo
# build of sqlite. Where there is none they are left out, but not in CI. What fills
# a storage is left out as well: the tests of the library have it, and it takes longest.
test-race: export CGO_ENABLED = 1
test-race: gotest
	@$(CC_IS_HERE) && exit 0; \
	echo "== tests with the race detector: there is no C compiler ($$(go env CC)): install gcc"; \
	test -z "$$SAILPLANE_CI"
	$(call phase,tests with the race detector, \
		! $(CC_IS_HERE) || { \
		$(TEST) -race $(FILL) $(STORAGES) $(CONCURRENT) && \
		{ $(TEST_AROUND) -race ./stress/... & \
		$(GOTEST) -dir test -log bin/tests/$@-databases.json -timeout 60m -vet=off -count=1 -race -run '$(RACES)' ./databases; \
		code=$$?; wait $$! && (exit $$code); }; })

# A linter works like the compiler, which takes 15% less of the processors where more garbage piles up.
lint tools: export GOGC := 400
lint: $(LINT)
	$(call phase,lint of the library,$(LINT) run --allow-parallel-runners ./...)
	$(call phase,generated files are up to date,go run ./hack/openapi -check & go run ./hack/validation -check; code=$$?; wait $$! && (exit $$code))
	$(call phase,lint around the library,cd test && ../$(LINT) run --allow-parallel-runners --config ../.golangci.yml ./...)
	$(call phase,lint of the cluster registry,cd examples/clusterregistry && ../../$(LINT) run --allow-parallel-runners --config ../../.golangci.yml ./...)
	$(call phase,lint of the kubebuilder project,cd examples/kubebuilder && for tags in "" envtest; do \
		../../$(LINT) run --allow-parallel-runners --config ../../.golangci.yml --build-tags "$$tags" ./... || exit; done)

fmt: $(LINT)
	$(LINT) fmt ./...
	cd test && ../$(LINT) fmt --config ../.golangci.yml ./...
	cd examples/clusterregistry && ../../$(LINT) fmt --config ../../.golangci.yml ./...

# What `make test` and `make lint` need beside Go.
.PHONY: tools gotest
tools: $(LINT) $(GOTESTSUM)

gotest: $(GOTESTSUM)
	@CGO_ENABLED=0 go build -o bin/ ./hack/gotest

$(GOTESTSUM):
	CGO_ENABLED=0 GOBIN=$(CURDIR)/bin go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION) || { \
		echo "gotestsum $(GOTESTSUM_VERSION), which runs the tests, was not downloaded and built: try again with a network, or set GOPROXY"; exit 1; }
	mv bin/gotestsum $@

$(LINT):
	CGO_ENABLED=0 GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv bin/golangci-lint $@

# The servers to compare with are built once, from test/bench/peers, into the user's
# cache. BENCH has further flags, as in: make bench BENCH="-only start,idle".
bench:
	go -C test run ./bench -docs ../docs/performance $(BENCH)

# The programs are built once, into the user's cache. COMPATIBILITY has further flags, as in:
# make compatibility COMPATIBILITY="-only crossplane,kro".
compatibility:
	go -C test run -pgo=off ./compatibility -page ../docs/compatibility.md $(COMPATIBILITY)

# SOAK and FEDERATION have further flags, as in: make soak SOAK="-engines sqlite -faults power" FEDERATION="-for 10m".
soak: soak-storage soak-federation

soak-storage:
	go -C test run ./faults/soak -rounds 1000 -dir ../.soak $(SOAK)

soak-federation:
	go -C test run ./federation/soak $(FEDERATION)

# SIEGE has further flags, as in: make siege SIEGE="-storages memory -attacks 'bad keys'".
siege:
	go -C test run ./siege $(SIEGE)

# FUZZ has further flags, as in: make fuzz FUZZ="-only 4711".
fuzz:
	go -C test run ./fuzz -dir ../.fuzz $(FUZZ)

# BEFORE is the commit or tag of the earlier version.
rolling:
	@test -n "$(BEFORE)" || { echo "say which version: make rolling BEFORE=v0.8.0"; exit 1; }
	go -C test test -vet=off -count=1 -v -timeout 30m -run 'TestRollingUpgrade' ./replicas -before $(BEFORE)

generate:
	go run ./hack/openapi
	go run ./hack/validation

# Its database is as new as the day; the program is not.
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

vuln:
	$(call phase,known vulnerabilities,go run ./hack/vuln -with $(GOVULNCHECK) . test)

clean:
	rm -rf bin dist
