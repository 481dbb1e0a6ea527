#!/usr/bin/env bash
# "Upgrade one process at a time" of docs/operations.md, with two builds. A manager and four
# drives of the OLD build hold files. Each process in turn is stopped and started as of the NEW build, while
# clients of both builds write and read all the time, in an encrypted volume too. Then each goes back to the
# OLD one, unless the new build's state refuses it with words. No request may fail, and every file must
# compare.
#
# usage: tests/upgrade.sh OLD_BRAID NEW_BRAID      exit 0 only if all of it held
set -euo pipefail
old=$(realpath "${1:?OLD_BRAID}")
new=$(realpath "${2:?NEW_BRAID}")
for braid in "$old" "$new"; do
  [ -x "$braid" ] || { echo "no binary at $braid" >&2; exit 2; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/braid-upgrade.XXXXXX")
declare -A pid=()
loops=()
cleanup() {
  touch "$work/enough"
  for loop in "${loops[@]}"; do kill "$loop" 2>/dev/null || true; done
  for name in "${!pid[@]}"; do kill -9 "${pid[$name]}" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "$1" >&2; tail -n 5 "$work"/*.log >&2; exit 1; }
wait_for() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2; shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || fail "gave up waiting for $what"
    sleep 0.2
  done
}

port=0
manager() { # BRAID
  "$1" manager serve --dir "$work/manager" --listen "127.0.0.1:$port" >>"$work/manager.log" 2>&1 &
  pid[manager]=$!
}
drive() { # BRAID NAME
  "$1" drive serve --dir "$work/$2" --name "$2" --host "$2" --manager "127.0.0.1:$port" \
    --token-file "$work/manager/join.token" >>"$work/$2.log" 2>&1 &
  pid[$2]=$!
}
stop() { # NAME: as a service manager does
  kill -TERM "${pid[$1]}"
  wait "${pid[$1]}" || true
  unset "pid[$1]"
}
up_is() { [ "$("$new" drive ls --json | grep -o '"state": *"up"' | wc -l)" = "$1" ]; }
up_is_or_ended() { ! kill -0 "${pid[manager]}" 2>/dev/null || up_is 4; }
is_whole() { "$new" check --all braid://main && "$new" check --all braid://secret; }

# Runs a command, again if no manager ran at the moment when it began: programs say so at once, and begin
# nothing. All else that fails is a failure.
begun() { # NAME COMMAND...
  local name=$1; shift
  until "$@" 2>"$work/$name.now"; do
    if ! grep -q "nothing listens there" "$work/$name.now"; then
      cat "$work/$name.now" >>"$work/$name.said"
      return 1
    fi
    sleep 0.1
  done
}
# Writes, reads and compares as one build's client, until it is enough; each failure is a line.
client() { # BRAID NAME
  local n=0 volume
  while [ ! -e "$work/enough" ]; do
    n=$((n + 1))
    for volume in main secret; do
      begun "$2" "$1" cp "$work/data" "braid://$volume/$2-$((n % 5))" >/dev/null ||
        echo "write $n in $volume" >>"$work/$2.failed"
      begun "$2" "$1" cp "braid://$volume/$2-$((n % 5))" - | cmp -s - "$work/data" ||
        echo "read $n in $volume" >>"$work/$2.failed"
    done
    echo "$n" >"$work/$2.rounds"
  done
}
are_well() {
  for name in old new; do
    [ ! -s "$work/$name.failed" ] || {
      tail -n 5 "$work/$name.said" "$work/$name.failed" >&2
      fail "a client of the $name build failed $1"
    }
  done
}
turn() { # BRAID WORD: all processes, one after another
  echo "== the manager is of the $2 build"
  stop manager
  manager "$1"
  wait_for 60 "four drives at the manager of the $2 build" up_is 4
  "$1" cp braid://main/first - | cmp - "$work/data" || fail "the first file differs"
  are_well "beside a manager of the $2 build"
  for name in b1 b2 b3 b4; do
    echo "== drive $name is of the $2 build"
    "$1" drive pause "$name"
    stop "$name"
    drive "$1" "$name"
    wait_for 60 "drive $name of the $2 build" up_is 4
    wait_for 60 "what $name missed" is_whole
    "$1" drive resume "$name"
    are_well "when $name became of the $2 build"
  done
}

head -c 6000001 /dev/urandom >"$work/data"
echo "== a manager and four drives of the old build: $("$old" --version)"
port=$((20000 + $$ % 20000))
manager "$old"
wait_for 30 "the manager's tokens" test -s "$work/manager/cluster.toml" -a -s "$work/manager/join.token"
export BRAID_CLUSTER="$work/manager/cluster.toml"
for name in b1 b2 b3 b4; do drive "$old" "$name"; done
wait_for 30 "four drives" up_is 4
"$old" volume create main --scheme raid5 --unit 64K
head -c 32 /dev/urandom >"$work/volume.key"
export BRAID_VOLUME_KEYS="secret=$work/volume.key"
"$old" volume create secret --scheme raid5 --unit 64K --encrypt --key-file "$work/volume.key"
"$old" cp "$work/data" braid://main/first
client "$old" old &
loops+=($!)
client "$new" new &
loops+=($!)
turn "$new" new

echo "== back to the old build"
stop manager
manager "$old"
wait_for 60 "the manager of the old build, or its refusal" up_is_or_ended
if kill -0 "${pid[manager]}" 2>/dev/null; then
  turn "$old" old
else
  grep "newer release" "$work/manager.log" || fail "the old build does not say why it does not take the state"
  manager "$new"
  wait_for 60 "four drives" up_is 4
fi
touch "$work/enough"
wait "${loops[@]}"
are_well "at the end"
is_whole
echo "upgrade: no request failed in $(cat "$work/old.rounds") rounds of the old build's client and" \
  "$(cat "$work/new.rounds") of the new one's; every file compared"
