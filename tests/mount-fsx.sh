#!/usr/bin/env bash
# Random operations on a file, each checked against a model, OPERATIONS of them in each of three runs:
#   one     fsx on one mount, with mappings, holes, syncs, closes and pages dropped
#   turns   two mounts of one volume take turns with the file (two-mounts.py): each closes it before the other
#           opens it
#   two     the same, but the other also opens it while it is written, and is to see all; more than
#           docs/posix.md promises, so it is not run unless named
#   killed  fsx as in `one`, while one drive after another is killed with SIGKILL, started again and healed
# The volume's unit is 16 KiB, so that the file's 256 KiB are four stripes and nearly every operation crosses
# units. Wants root and FUSE.
#
# usage: tests/mount-fsx.sh BRAID FSX [OPERATIONS [SEED [RUNS]]]     exit 0 only if no byte was wrong
#   KEEP=DIRECTORY   where to put what is known of a failure
set -euo pipefail
braid=${1:?the braid binary} fsx=$(realpath "${2:?the fsx binary}") operations=${3:-1000000}
seed=${4:-$((RANDOM * 32768 + RANDOM))} runs=${5:-one turns killed}
here=$(realpath "$(dirname "$0")")
# shellcheck source=tests/on-a-mount.sh
. "$here/on-a-mount.sh"
[ -x "$fsx" ] || missing "no fsx at $fsx" "make posix-suites"
# What does not end in this time hangs.
longest=${LONGEST_SECONDS:-14400}
work="" healer=""
# shellcheck disable=SC2317 # what was sourced calls it
also_ended() {
    # `timeout` passes it on.
    [ -z "$work" ] || kill "$work" 2>/dev/null || true
    [ -z "$healer" ] || kill -9 "$healer" 2>/dev/null || true
}
begin fsx
"$braid" volume create fine --unit 16K >/dev/null
cat >"$place/fsx.toml" <<'WEIGHTS'
[weights]
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 5
close_open = 2
invalidate = 1
fsync = 1
fdatasync = 1
posix_fallocate = 1
punch_hole = 3
sendfile = 2
posix_fadvise = 5
copy_file_range = 2
WEIGHTS

# Runs a command in the background, and waits for it. What it said is shown if it fails.
run() {
    local what=$1 from code=0; shift
    from=$(date +%s)
    echo "$what: seed $seed, $operations operations"
    timeout "$longest" "$@" >"$place/$what.said" 2>&1 &
    work=$!
    wait "$work" || code=$?
    work=""
    if [ "$code" != 0 ]; then
        tail -n 60 "$place/$what.said"
        [ -z "${KEEP:-}" ] || cp -r "$place"/{*.said,*.log,artifacts} "$KEEP" || true
        echo "$what: seed $seed: FAILED with $code after $(($(date +%s) - from)) s"
        failed=1
    else
        tail -n 1 "$place/$what.said"
        echo "$what: $operations operations in $(($(date +%s) - from)) s, no byte wrong"
    fi
}
# By pieces, each with a seed of its own and a file that is new: fsx 0.3.2 leaves the mappings that it read by
# in place, which makes it ever slower, until at some 65,000 of them the kernel gives it no more.
# shellcheck disable=SC2317 # another shell runs it
pieces() {
    local at=$1 made piece=20000 now=$seed
    for ((made = 0; made < operations; made += piece, now++)); do
        [ $((operations - made)) -ge "$piece" ] || piece=$((operations - made))
        "$fsx" -q -N "$piece" -S "$now" -f "$place/fsx.toml" -P "$place/artifacts" "$at-$now" ||
            { echo "piece of $piece operations, seed $now"; return 1; }
        rm "$at-$now"
    done
    echo "seeds $seed to $((now - 1))"
}
export -f pieces
export fsx seed operations place
of_fsx() { run "$1" bash -c "pieces $place/$1/file"; }

# Every twenty seconds a drive dies, is away for some seconds, comes back, and is brought up to date.
deaths() {
    local drive deaths=0
    RANDOM=$((seed % 32768))
    while sleep 10; do
        drive=drive-$((RANDOM % 6 + 1))
        kill -9 "$(pid_of $drive)" 2>/dev/null || true
        sleep 5
        up || { echo "$drive does not come back"; exit 1; }
        timeout 180 "$braid" rebuild $drive >"$place/rebuild.said" 2>&1 ||
            { echo "rebuild of $drive: $(cat "$place/rebuild.said")"; exit 1; }
        deaths=$((deaths + 1))
        echo $deaths >"$place/deaths"
        sleep 5
    done
}

failed=0
mkdir "$place/artifacts"
for what in $runs; do
    case $what in
        one)
            mounted one fine
            of_fsx one
            unmounted one || failed=1
            ;;
        two | turns)
            plain=()
            [ "$what" = two ] || plain=(--turns-only)
            mounted here fine
            mounted there fine
            run "$what" python3 "$here/two-mounts.py" "${plain[@]}" "$place/here/$what" "$place/there/$what" \
                "$operations" "$seed"
            unmounted here || failed=1
            unmounted there || failed=1
            ;;
        killed)
            mounted killed fine
            echo 0 >"$place/deaths"
            deaths >"$place/deaths.said" 2>&1 &
            healer=$!
            of_fsx killed
            if kill -0 "$healer" 2>/dev/null; then
                kill "$healer" 2>/dev/null || true
            else
                cat "$place/deaths.said"
                failed=1
            fi
            wait "$healer" 2>/dev/null || true
            healer=""
            echo "killed: a drive was killed and healed $(cat "$place/deaths") times"
            up
            unmounted killed || failed=1
            ;;
        *) echo "no such run: $what" >&2; exit 2 ;;
    esac
    # Every unit matches its parity.
    timeout 300 "$braid" check --all braid://fine >"$place/check.said" 2>&1 ||
        { tail -n 5 "$place/check.said"; failed=1; }
done
exit "$failed"
