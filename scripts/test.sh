#!/usr/bin/env bash
# All checks and tests, in the order in which they are cheap; stops at the first
# that fails. Run it by `make test`.
#
# It needs Go, a C compiler (for the race detector) and Redis. As root on Debian
# it installs the latter two if they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

GO=${GO:-go}

section() { printf '\n== %s\n' "$*"; }

fail() {
	printf 'test.sh: %s\n' "$*" >&2
	exit 1
}

have() { command -v "$1" >/dev/null; }

# missing_packages prints the Debian packages of the tools that are not there.
missing_packages() {
	have redis-server || [[ -n ${SPILLGATE_REDIS_SERVER:-} ]] || echo redis-server
	have redis-cli && have redis-benchmark || echo redis-tools
	have "$("$GO" env CC | cut -d' ' -f1)" || printf '%s\n' gcc libc6-dev
}

# install_packages installs without leaving a Redis daemon behind. RUNLEVEL=1
# tells init scripts that services are not started now. systemd does not listen
# to it, so there the service is switched off again; it is ours to stop, because
# redis-server is installed here only where there was none.
install_packages() {
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "$@"
	if [[ " $* " == *' redis-server '* && -d /run/systemd/system ]]; then
		systemctl disable --now redis-server.service
	fi
}

section tools
have "$GO" || fail "no Go in PATH: install the version that go.mod names, see https://go.dev/dl"
mapfile -t packages < <(missing_packages)
if ((${#packages[@]} > 0)); then
	if ((EUID != 0)) || ! have apt-get; then
		fail "missing: ${packages[*]}. Install them (Debian, as root: apt-get install ${packages[*]}) and try again"
	fi
	install_packages "${packages[@]}"
fi
"$GO" version
"${SPILLGATE_REDIS_SERVER:-redis-server}" --version

section gofmt
unformatted=$("$("$GO" env GOROOT)/bin/gofmt" -l .)
[[ -z $unformatted ]] || fail $'these files are not formatted; run make fmt:\n'"$unformatted"

section go vet
"$GO" vet ./...

section staticcheck
"$GO" tool staticcheck ./...

if [[ -f bench/compare/go.mod ]]; then
	section bench/compare
	(cd bench/compare && "$GO" vet ./... && "$GO" test ./...)
fi

section go test
"$GO" test -race -shuffle=on -timeout 20m ./...
section the simulator in full, which has nothing for the race detector to find and would be slow under it
"$GO" test -timeout 20m ./internal/sim

section all passed
