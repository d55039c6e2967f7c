# deploy/local/fetch.sh fetches everything that is needed beside Go. Databases are private and end
# with their process.

# Flags for go test, such as GOTESTFLAGS='-race -run Batch'.
GOTESTFLAGS ?=
# Leaves out the drills.
SHORT = -short
# The Go client is a module of its own.
PACKAGES ?= ./... partnerbilling/api/client/...
# The time for which make fuzz runs each fuzz target.
FUZZTIME ?= 1m
# Scenarios of make bench, all of which take about an hour.
BENCH ?= drain large submit fair scale recover backlog webhooks endpoint intents list invitations token mixed overload

.PHONY: help run day bench binaries build test drills fuzz lint fetch forget
.DEFAULT_GOAL := help

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: forget fetch binaries ## Run the whole service on this machine, with private databases in .svc; PHONE=1 for phones in its network
	@$(if $(PHONE),SVC_LISTEN=$${SVC_LISTEN:-0.0.0.0:8080}) exec .svc/bin/svc dev

binaries:
	@mkdir -p .svc/bin
	@echo 'Building svc and svcctl (the first time takes a minute or more) …'
	@go build -o .svc/bin/ ./cmd/svc ./cmd/svcctl

build: binaries ## Build the binaries into .svc/bin
	@go build -o .svc/bin/ ./cmd/loadgen

day: build ## Play a partner's billing day against the service that make run runs
	@.svc/bin/loadgen day

bench: fetch build ## Measure the engine on private, durable servers; BENCH="drain fair" measures only those
	@for scenario in $(BENCH); do printf '\n%s\n' "loadgen $$scenario"; .svc/bin/loadgen $$scenario || exit 1; done

test: fetch ## Run the tests without the drills, on private databases of their own
	@sh deploy/local/fetch.sh chromium || echo 'Without Chromium: the pages are not tested in a browser' >&2
	@sh deploy/local/fetch.sh pgbouncer || echo 'Without PgBouncer: the service is not tested behind a pooler' >&2
	go test -timeout 30m $(SHORT) $(GOTESTFLAGS) $(PACKAGES)

drills: ## Run the tests with the drills, which kill whole servers or take long: half an hour
	@$(MAKE) test SHORT=

fuzz: fetch ## Run every fuzz target for FUZZTIME
	@.ci/fuzz $(FUZZTIME)

lint: ## Check formatting, vet and the linter's rules
	@.ci/lint

fetch:
	@sh deploy/local/fetch.sh

# forget removes the files that a killed service has left, so that they do not pass for those of a
# running one. The lock holds the process's id.
forget:
	@data="$${SVC_DATA_DIR:-.svc}"; kill -0 $$(cat "$$data/lock" 2>/dev/null) 2>/dev/null || (cd "$$data" 2>/dev/null && rm -f sandbox.json sandbox.env process.env) || true
