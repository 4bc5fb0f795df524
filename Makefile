.DEFAULT_GOAL := help
.PHONY: help run build test fmt bench

GO ?= go

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## run an agent with the defaults: memory store, RESP on ./spillgate.sock
	./spillgate agent --resp unix://./spillgate.sock

build: ## build ./spillgate
	$(GO) build -o spillgate ./cmd/spillgate

test: ## check and test everything; as root on Debian it installs what is missing
	GO='$(GO)' ./scripts/test.sh

fmt: ## format all Go files
	"$$($(GO) env GOROOT)/bin/gofmt" -w .

bench: ## run the benchmarks of all packages
	$(GO) test -run '^$$' -bench . -benchmem ./...
