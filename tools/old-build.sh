#!/usr/bin/env bash
# Builds `braid` of an earlier revision, by default of the newest tag, into TARGET_DIR/old.
#
# usage: tools/old-build.sh TARGET_DIR [REVISION]
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:?TARGET_DIR}
revision=${2:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
[ -n "$revision" ] || { echo "there is no tag: fetch the tags (git fetch --tags), or give OLD=REVISION" >&2; exit 2; }
tree=$(mktemp -d "${TMPDIR:-/tmp}/braid-old.XXXXXX")
trap 'rm -rf "$tree"' EXIT
git archive "$revision" | tar -x -C "$tree"
echo "building $revision"
CARGO_TARGET_DIR="$(realpath -m "$target")/old" "${CARGO:-cargo}" build --release --locked \
  --manifest-path "$tree/Cargo.toml" -p braid-cli
