#!/usr/bin/env bash
# The client's tests and the end-to-end tests with data in datagrams (docs/transport.md). Usage: udp.sh CARGO
set -uo pipefail
cd "$(dirname "$0")/.."
cargo=${1:-cargo}
export BRAID_TRANSPORT=${BRAID_TRANSPORT:-udp}
"$cargo" test --workspace --locked --no-fail-fast --test cluster --test e2e -- --test-threads 3
