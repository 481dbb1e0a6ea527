#!/usr/bin/env bash
# "A cluster on three hosts" of docs/operations.md, in three network namespaces on this machine (root;
# iproute2). Hosts a, b, c have 10.77.0.1-3 on one bridge; each runs two drives; a runs the manager. A file
# goes in from c, host b is cut off and its drives are killed, the file comes out right on c; a new file is
# written meanwhile; b's drives come back empty under new names, are rebuilt, and host a's first drive is
# killed: both files still compare.
#
# usage: tests/three-hosts.sh [BRAID_BINARY]      exit 0 only if every comparison held
set -euo pipefail
cd "$(dirname "$0")/.."
braid=$(realpath "${1:-target/release/braid}")
[ -x "$braid" ] || { echo "no binary at $braid: run \`make build\` first" >&2; exit 2; }
command -v ip >/dev/null || { apt-get update && apt-get install -y --no-install-recommends iproute2; }

work=$(mktemp -d "${TMPDIR:-/tmp}/braid-three-hosts.XXXXXX")
declare -A pid=()
tag=$$
net() { echo "bh$tag-$1"; }
cleanup() {
  for name in "${!pid[@]}"; do kill_drive "$name"; done
  for h in a b c sw; do ip netns del "$(net $h)" 2>/dev/null || true; done
  rm -rf "$work"
}
kill_drive() { # NAME: SIGKILL, and no word from the shell about it
  kill -9 "${pid[$1]}" 2>/dev/null || true
  wait "${pid[$1]}" 2>/dev/null || true
  unset "pid[$1]"
}
trap cleanup EXIT

# One namespace is the switch, three are hosts.
ip netns add "$(net sw)"
ip -n "$(net sw)" link add br0 type bridge
ip -n "$(net sw)" link set br0 up
n=0
for h in a b c; do
  n=$((n + 1))
  ip netns add "$(net $h)"
  ip -n "$(net sw)" link add "to-$h" type veth peer name eth0 netns "$(net $h)"
  ip -n "$(net sw)" link set "to-$h" master br0 up
  ip -n "$(net $h)" addr add "10.77.0.$n/24" dev eth0
  ip -n "$(net $h)" link set eth0 up
  ip -n "$(net $h)" link set lo up
done
on() { local h=$1; shift; ip netns exec "$(net "$h")" "$@"; }
wait_for() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2; shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "gave up waiting for $what" >&2; tail -n 5 "$work"/*.log >&2; exit 1; }
    sleep 0.1
  done
}
drive() { # HOST ADDRESS PORT NAME
  mkdir -p "$work/$4"
  # Not through a function: the pid must be the drive's own, not a shell's.
  ip netns exec "$(net "$1")" "$braid" drive serve --dir "$work/$4/braid" --name "$4" --host "$1" --listen "$2:$3" \
    --manager 10.77.0.1:7400 --token-file "$work/join.token" >"$work/$4.log" 2>&1 &
  pid[$4]=$!
}
up_count() { on c "$braid" drive ls --json | grep -o '"state": *"up"' | wc -l; }
has_up() { [ "$(up_count)" -ge "$1" ]; }
# says_of DRIVE PATTERN: what the status says of the drive matches it.
says_of() { on a "$braid" status | grep -qE "^$1 .*$2"; }

echo "== manager on a, two drives on each host"
ip netns exec "$(net a)" "$braid" manager serve --dir "$work/manager" --listen 10.77.0.1:7400 >"$work/manager.log" 2>&1 &
pid[manager]=$!
wait_for 20 "the manager's tokens" test -s "$work/manager/cluster.toml" -a -s "$work/manager/join.token"
cp "$work/manager/join.token" "$work/join.token"
export BRAID_CLUSTER="$work/manager/cluster.toml"
n=0
for h in a b c; do
  n=$((n + 1))
  for d in 1 2; do drive $h "10.77.0.$n" "740$d" "$h$d"; done
done
wait_for 30 "six drives" has_up 6
on c "$braid" drive ls
on c "$braid" volume create media --scheme 'rs(4,2)' --unit 512K

echo "== in and out, from c"
head -c 100000000 /dev/urandom >"$work/one"
head -c 30000001 /dev/urandom >"$work/two"
on c "$braid" cp "$work/one" braid://media/one
on c "$braid" stat braid://media/one
on c "$braid" cp braid://media/one - | cmp - "$work/one"
# What c read from others came by sendfile, from its own drives by a copy.
wait_for 20 "b1 to say that it sent" says_of b1 'reads (9[0-9]|100) % sendfile'
wait_for 20 "c1 to say that it copied" says_of c1 'reads 0 % sendfile'

echo "== host b dies: its link is cut, its drives are killed"
ip -n "$(net b)" link set eth0 down
kill_drive b1
kill_drive b2
on c "$braid" cp braid://media/one - | cmp - "$work/one"
on c "$braid" cp "$work/two" braid://media/two
on c "$braid" cp braid://media/two - | cmp - "$work/two"

echo "== b comes back with empty disks"
ip -n "$(net b)" link set eth0 up
drive b 10.77.0.2 7403 b3
drive b 10.77.0.2 7404 b4
wait_for 30 "b's new drives" has_up 6
on a "$braid" drive replace b1 b3
on a "$braid" drive replace b2 b4
on a "$braid" rebuild b3
on a "$braid" rebuild b4
on c "$braid" check --all braid://media

echo "== host a's first drive dies"
kill_drive a1
on c "$braid" cp braid://media/one - | cmp - "$work/one"
on c "$braid" cp braid://media/two - | cmp - "$work/two"
echo "three hosts: every comparison held"
