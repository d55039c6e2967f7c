# deploy/local/fetch.sh fetches everything that is needed beside Go. Databases are private and end
# with their process.

# Flags for go test, such as GOTESTFLAGS='-race -run Batch'.
GOTESTFLAGS ?=
PACKAGES ?= ./...
# Scenarios of make bench, all of which take about an hour.
BENCH ?= drain submit fair scale recover backlog webhooks intents list invitations token mixed overload

.PHONY: help run day bench build test lint fetch forget
.DEFAULT_GOAL := help

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: forget fetch build ## Run the whole service on this machine, with private databases in .svc
	@exec .svc/bin/svc dev

build: ## Build the binaries into .svc/bin
	@mkdir -p .svc/bin
	@go build -o .svc/bin/ ./cmd/...

day: build ## Play a partner's billing day against the service that make run runs
	@.svc/bin/loadgen day

bench: fetch build ## Measure the engine on private, durable servers; BENCH="drain fair" measures only those
	@for scenario in $(BENCH); do printf '\n%s\n' "loadgen $$scenario"; .svc/bin/loadgen $$scenario || exit 1; done

test: fetch ## Run the tests, on private databases of their own
	@sh deploy/local/fetch.sh chromium || echo 'Without Chromium: the console is not tested in a browser' >&2
	go test $(GOTESTFLAGS) $(PACKAGES)

lint: ## Check formatting, vet and the linter's rules
	@.ci/lint

fetch:
	@sh deploy/local/fetch.sh

# forget removes the files that a killed service has left, so that they do not pass for those of a
# running one. The lock holds the process's id.
forget:
	@data="$${SVC_DATA_DIR:-.svc}"; kill -0 $$(cat "$$data/lock" 2>/dev/null) 2>/dev/null || (cd "$$data" 2>/dev/null && rm -f sandbox.json sandbox.env process.env) || true
