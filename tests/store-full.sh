#!/usr/bin/env bash
# A store on an ext4 and an xfs file system of 350 MiB each. Several threads fill it until it refuses; it is
# overwritten while 95 % full, emptied and filled again. Then another process takes the free space just before
# the store writes, makes a segment, writes a checkpoint or syncs, so that the file system returns ENOSPC,
# which must have happened. Every acknowledged byte is compared, and the space must come back (root;
# e2fsprogs, xfsprogs, loop devices).
#
# usage: tests/store-full.sh [FILL_DISK_BINARY]      exit 0 only if all of it held on both
set -euo pipefail
cd "$(dirname "$0")/.."
fill=$(realpath "${1:-target/release/examples/fill_disk}")
[ -x "$fill" ] || { echo "no binary at $fill: run \`make store-full\`" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "only root can mount file systems: run this as root" >&2; exit 2; }

work=$(mktemp -d "${TMPDIR:-/tmp}/braid-store-full.XXXXXX")
cleanup() {
  ! mountpoint -q "$work/disk" || umount "$work/disk"
  rm -rf "$work"
}
trap cleanup EXIT
mkdir "$work/disk"

for kind in ext4 xfs; do
  command -v "mkfs.$kind" >/dev/null || { echo "mkfs.$kind is missing: run \`make setup-full\`" >&2; exit 2; }
  truncate -s 350M "$work/image"
  "mkfs.$kind" -q "$work/image"
  mount -o loop "$work/image" "$work/disk" ||
    { echo "cannot mount an image of $kind: are there loop devices, and $kind in the kernel?" >&2; exit 2; }
  echo "== $kind"
  "$fill" "$work/disk"
  umount "$work/disk"
  rm "$work/image"
done
echo "store-full: everything held"
