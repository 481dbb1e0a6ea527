#!/usr/bin/env bash
# Rounds of copy-and-compare on a cluster with three managers and the etcd that Braid runs for them, in which
# processes are killed with SIGKILL or stopped with SIGSTOP at a random moment: a manager, its etcd alone, a
# whole host with its drives, two managers, all three, everything (as by a power cut), a drive, a client.
# Files and a tree are copied meanwhile, and names are made, moved and removed. What was killed is started
# again by the command that starts it always, and nobody helps otherwise. Then what was acknowledged is
# compared: a copy that exited 0 must be there whole, one that did not must have left the old file or the new
# one, and each name must be where the last acknowledged change has put it.
#
# Three hosts are three addresses of this machine, with a manager and two drives each.
#
# usage: tests/kill-managers.sh [ROUNDS [SEED]]      exit 0 only if nothing acknowledged was lost
#   BRAID          the binary [target/release/braid]
#   KILL_LOOP_DIR  where to work [TMPDIR or /tmp]; logs of a failure stay there
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-500}
seed=${2:-$((RANDOM * 32768 + RANDOM))}
braid=$(realpath "${BRAID:-${CARGO_TARGET_DIR:-target}/release/braid}")
[ -x "$braid" ] || { echo "no binary at $braid: run \`make build\` first" >&2; exit 2; }
command -v etcd >/dev/null || { echo "no etcd: run \`make setup-etcd\` first" >&2; exit 2; }
echo "kill-managers: $rounds rounds, seed $seed"
RANDOM=$((seed % 32768))

work=$(mktemp -d "${KILL_LOOP_DIR:-${TMPDIR:-/tmp}}/braid-kill-managers.XXXXXX")
net=127.$((1 + $$ / 250 % 250)).$((1 + $$ % 250))
hosts=(1 2 3)
drives=(d11 d12 d21 d22 d31 d32) # dHN: drive N of host H
declare -A pid=() etcd=() jobs=()
keep_logs=
cleanup() {
  for p in "${pid[@]}" "${etcd[@]}" "${jobs[@]}"; do
    kill -CONT "$p" 2>/dev/null || true
    kill -9 "$p" 2>/dev/null || true
    wait "$p" 2>/dev/null || true
  done
  [ -n "$keep_logs" ] || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
round=0
lost() {
  echo "kill-managers: round $round, seed $seed: $* (logs: $work)" >&2
  keep_logs=yes
  tail -n 8 "$work"/*.log >&2 || true
  exit 1
}
wait_for() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2; shift 2
  until "$@" >"$work/wait.out" 2>&1; do
    [ $SECONDS -lt $end ] || lost "gave up waiting for $what: $(tail -n 3 "$work/wait.out")"
    sleep 0.3
  done
}
milliseconds() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }

# The processes. A host's manager and its drives are always started by the same commands.
manager() { # HOST [WORDS...]: serves the host's manager
  local host=$1; shift
  [ $# -gt 0 ] || set -- manager serve
  "$braid" "$@" --dir "$work/m$host" >>"$work/m$host.out" 2>>"$work/m$host.log" </dev/null &
  pid[m$host]=$!
  unset "etcd[$host]"
}
drive() { # NAME
  local host=${1:1:1}
  "$braid" drive serve --dir "$work/$1" --name "$1" --host "host-$host" --no-calibration \
    --listen "$net.$host:0" --manager "$net.1:7400,$net.2:7400,$net.3:7400" \
    --token-file "$work/m1/join.token" >/dev/null 2>>"$work/$1.log" </dev/null &
  pid[$1]=$!
}
start() { case $1 in m*) manager "${1:1}" ;; *) drive "$1" ;; esac; }
etcd_of() { etcd[$1]=$(pgrep -P "${pid[m$1]}" -x etcd) || unset "etcd[$1]"; }
strike() { # SIGNAL NAME...: a manager with its etcd (mH), without it (oH), its etcd alone (eH), or a drive
  local signal=$1 all=() name; shift
  for name in "$@"; do
    case $name in
      m* | e*) etcd_of "${name:1}"; all+=(${etcd[${name:1}]:-}) ;;&
      m* | o*) all+=("${pid[m${name:1}]}") ;;
      d*) all+=("${pid[$name]}") ;;
    esac
  done
  [ ${#all[@]} = 0 ] || kill "-$signal" "${all[@]}" 2>/dev/null || true
  # Only the killed ones are waited for, so that their addresses are free.
  [ "$signal" = KILL ] || return 0
  for name in "$@"; do
    case $name in m* | d*) wait "${pid[$name]}" 2>/dev/null || true ;; esac
  done
}
leader() { # the manager that said last that it leads
  local found
  found=$(grep -H 'the manager leads' "$work"/m?.log | sed 's/^.*\/m\(.\)\.log:/\1 /' | sort -k2,2)
  found=${found##*$'\n'}
  echo "${found:0:1}"
}

# What the cluster is asked.
counts() { # NUMBER PATTERN WORDS...: the JSON of a command has the pattern so often
  local wanted=$1 pattern=$2; shift 2
  [ "$(timeout 60 "$braid" "$@" --json | grep -oE "$pattern" | wc -l)" = "$wanted" ]
}
settled() { # all of it runs and nothing is stale
  wait_for 120 "three healthy members" counts 3 '"healthy": *true' cluster ls
  wait_for 120 "six drives" counts 6 '"state": *"up"' drive ls
  timeout 180 "$braid" heal --watch >"$work/heal.out" 2>&1 ||
    lost "it does not heal: $(tail -n 2 "$work/heal.out")"
}
# The hash of a file's bytes in the cluster; "none" if there is no such file.
stored() {
  local code=0 hash
  hash=$(set -o pipefail; timeout 180 "$braid" cat "braid://main/$1" 2>"$work/err" | sha256sum) || code=$?
  case $code in
    0) echo "${hash%% *}" ;;
    3) echo none ;;
    *) echo "unreadable ($(cat "$work/err"))" ;;
  esac
}

# Names. Worker 0 has files, worker 1 directories, four each: each is made, moved and removed in turn. The
# file places/THING has the places where a thing may be: one, or two after a change whose answer is not known,
# with which the worker leaves it alone until that was looked up.
things=8
worker() { # NUMBER SEED
  local n=0 thing places place to code
  RANDOM=$2
  while [ ! -e "$work/stop" ]; do
    thing=$((RANDOM % (things / 2) * 2 + $1)) n=$((n + 1))
    milliseconds $((RANDOM % 60))
    places=$(<"$work/places/$thing") place=$places to=$thing-$round-$n
    [ "${places/ /}" = "$places" ] || continue
    if [ "$place" = none ]; then
      case $1 in
        0) set -- 0 cp -q "$work/thing-$thing" "braid://main/names/$to" ;;
        1) set -- 1 mkdir "braid://main/names/$to" ;;
      esac
    elif ((RANDOM % 3)); then
      set -- "$1" mv "braid://main/names/$place" "braid://main/names/$to"
    else
      set -- "$1" rm -r "braid://main/names/$place"
      to=none
    fi
    echo "$place $to" >"$work/places/$thing"
    code=0
    timeout 180 "$braid" "${@:2}" >"$work/worker-$1.err" 2>&1 || code=$?
    case $code in
      0) echo "$to" >"$work/places/$thing"; echo . >>"$work/changes" ;;
      3 | 4) echo "round $round: ${*:2}: $(<"$work/worker-$1.err")" >>"$work/wrong" ;;
    esac
  done
}
# Compares all names with where they may be, and notes where they are.
look() {
  local thing place found listed
  [ ! -s "$work/wrong" ] || lost "what was acknowledged is denied: $(<"$work/wrong")"
  listed=" $(timeout 180 "$braid" ls braid://main/names 2>"$work/err" | tr -d / | tr '\n' ' ') " ||
    lost "the names cannot be listed: $(<"$work/err")"
  for ((thing = 0; thing < things; thing++)); do
    found=()
    for place in $listed; do [[ $place != "$thing"-* ]] || found+=("$place"); done
    [ ${#found[@]} -le 1 ] || lost "thing $thing has several names: ${found[*]}"
    [[ " $(<"$work/places/$thing") " = *" ${found[0]:-none} "* ]] ||
      lost "thing $thing is at ${found[0]:-none}, and was acknowledged to be at $(<"$work/places/$thing")"
    echo "${found[0]:-none}" >"$work/places/$thing"
  done
}
content() { # THING: compares the bytes of a file
  local place hash
  place=$(<"$work/places/$1")
  [ "$place" != none ] || return 0
  hash=$(stored "names/$place")
  [ "$hash" = "$(sha256sum <"$work/thing-$1" | cut -d' ' -f1)" ] || lost "names/$place has other bytes: $hash"
}

# Begin.
manager 1 cluster init --hosts "$net.1,$net.2,$net.3"
export BRAID_CLUSTER=$work/m1/cluster.toml
wait_for 60 "the first manager" grep -q "to start this one again" "$work/m1.out"
for h in 2 3; do
  grep -A1 "on $net.$h:" "$work/m1.out" | grep -o 'braid1\.[^ ]*' >"$work/m$h.token"
  manager $h cluster join --token-file "$work/m$h.token" --manager "$net.1:7400" --listen "$net.$h:7400"
  wait_for 120 "manager $h" test -s "$work/m$h/cluster.toml"
done
for d in "${drives[@]}"; do drive "$d"; done
settled
"$braid" volume create main --scheme 'rs(2,2)' --unit 64K >/dev/null
# The last one that joined knows of all managers.
cp "$work/m3/cluster.toml" "$work/cluster.toml"
export BRAID_CLUSTER=$work/cluster.toml
mkdir "$work/places" "$work/tree"
for ((thing = 0; thing < things; thing++)); do
  echo none >"$work/places/$thing"
  head -c $((RANDOM % 9000 + 1)) /dev/urandom >"$work/thing-$thing"
done
"$braid" mkdir braid://main/names
"$braid" mkdir braid://main/trees
sources=8
for ((i = 0; i < sources; i++)); do
  head -c $(((RANDOM * 32768 + RANDOM) % 12000000 + i)) /dev/urandom >"$work/source-$i"
  hash[i]=$(sha256sum <"$work/source-$i" | cut -d' ' -f1)
done
for ((i = 0; i < 40; i++)); do head -c $((RANDOM * 3)) /dev/urandom >"$work/tree/f$i"; done

copy() { # SOURCE NAME PAUSE: with a pause, of two parts through a pipe, so that the file is open meanwhile
  if [ "$3" = 0 ]; then
    exec timeout 180 "$braid" cp -q "$work/source-$1" "braid://main/$2" 2>"$work/copy.err"
  fi
  exec timeout 180 "$braid" cp -q - "braid://main/$2" 2>"$work/copy.err" \
    < <(exec <"$work/source-$1"; head -c 3000000; milliseconds "$3"; cat)
}
declare -A held=() done_to=()
acknowledged=0 failed=0 tree=
begun=$SECONDS
for ((round = 1; round <= rounds; round++)); do
  # All is drawn here, in the same order, whatever happens.
  name=file-$((RANDOM % 8)) source=$((RANDOM % sources)) before=${held[$name]:-none}
  pause=$((RANDOM % 2 * (RANDOM % 3000 + 1))) fault=$((RANDOM % 20)) at=$((RANDOM % 500))
  host=$((RANDOM % 3 + 1)) d=${drives[RANDOM % 6]} of_leader=$((RANDOM % 2)) other=file-$((RANDOM % 8))
  # A quarter of the times for longer than the manager's lease in etcd.
  away=$((RANDOM % 4 ? RANDOM % 1500 : RANDOM % 2000 + 5500))
  # Sometimes it is struck again while it starts.
  times=$((RANDOM % 4 ? 1 : 2)) again=$((RANDOM % 2500))
  with_tree=$((RANDOM % 4 == 0)) seeds=($RANDOM $RANDOM) thing=$((RANDOM % (things / 2) * 2))
  [ $of_leader = 0 ] || host=$(leader)
  second=$((host % 3 + 1))
  # What is struck, and by what. A copy goes on unless no majority of managers runs, or too few drives.
  signal=KILL goes_on=yes
  elsewhere=d$((host % 3 + 1))$((RANDOM % 2 + 1))
  case $fault in
    0 | 1 | 2) kind=manager struck=("m$host") ;;
    3 | 4) kind=etcd struck=("e$host") ;;
    5 | 6) kind=manager-stopped struck=("o$host") signal=STOP ;;
    7 | 8) kind=etcd-stopped struck=("e$host") signal=STOP ;;
    9 | 10) kind=host struck=("m$host" "d${host}1" "d${host}2") ;;
    11) kind=host-stopped struck=("m$host" "d${host}1" "d${host}2") signal=STOP ;;
    12) kind=two-managers struck=("m$host" "m$second") goes_on= ;;
    13) kind=three-managers struck=(m1 m2 m3) goes_on= ;;
    14) kind=three-etcds struck=(e1 e2 e3) goes_on= ;;
    15) kind=everything struck=(m1 m2 m3 "${drives[@]}") goes_on= ;;
    16) kind=drive struck=("$d") ;;
    17) kind=drive-and-manager struck=("m$host" "$elsewhere") ;;
    18) kind=drive-stopped struck=("$d") signal=STOP ;;
    19) kind=client struck=() goes_on= ;;
  esac

  rm -f "$work/stop" "$work/tree.json"
  copy $source "$name" $pause & jobs[copy]=$!
  for n in 0 1; do worker $n "${seeds[n]}" & jobs[worker-$n]=$!; done
  if [ $with_tree = 1 ]; then
    timeout 180 "$braid" cp -r --json "$work/tree" "braid://main/trees/$round" \
      >"$work/tree.json" 2>"$work/tree.err" &
    jobs[tree]=$!
    if [ -n "$tree" ]; then
      timeout 180 "$braid" rm -r "braid://main/trees/$tree" >/dev/null 2>"$work/rm.err" & jobs[rm]=$!
    fi
  fi
  milliseconds $at
  if [ $kind = client ]; then
    pkill -9 -x braid -P "${jobs[copy]}" 2>/dev/null || true # the child of timeout
  else
    for ((n = 1; n <= times; n++)); do
      strike $signal "${struck[@]}"
      milliseconds $away
      for s in "${struck[@]}"; do
        case $signal$s in KILLe*) ;; KILL*) start "$s" ;; esac
      done
      [ $signal = KILL ] || strike CONT "${struck[@]}"
      [ $n = $times ] || milliseconds $again
      away=$again
    done
  fi
  echo "$(date +%T) round $round: $signal ${struck[*]} ($kind), $times times" >>"$work/rounds"
  done_to[$kind]=$((${done_to[$kind]:-0} + 1))

  declare -A code=()
  for job in copy tree rm; do
    [ -n "${jobs[$job]:-}" ] || continue
    code[$job]=0
    { wait "${jobs[$job]}"; } 2>/dev/null || code[$job]=$?
    unset "jobs[$job]"
    [ ${code[$job]} = 0 ] && acknowledged=$((acknowledged + 1)) && continue
    echo "round $round: with $kind ($away ms) $job ended with ${code[$job]}: $(tail -n 1 "$work/$job.err")"
    [ -z "$goes_on" ] || failed=$((failed + 1))
  done
  touch "$work/stop"
  for n in 0 1; do wait "${jobs[worker-$n]}" || true; unset "jobs[worker-$n]"; done
  for p in "${!pid[@]}"; do kill -0 "${pid[$p]}" 2>/dev/null || lost "$p has ended by itself ($kind)"; done

  # A command fails at once while no manager has a socket yet.
  [ -n "$goes_on" ] || wait_for 120 "an answer" timeout 60 "$braid" ls braid://main
  now=$(stored "$name")
  if [ "${code[copy]}" = 0 ]; then
    [ "$now" = "${hash[source]}" ] || lost "$name was acknowledged and is not there: $now ($kind)"
  else
    [ "$now" = "$before" ] || [ "$now" = "${hash[source]}" ] ||
      lost "$name is neither what it was nor what it was to be: $now ($kind)"
  fi
  held[$name]=$now
  now=$(stored "$other")
  [ "$now" = "${held[$other]:-none}" ] || lost "$other was lost: $now ($kind)"
  look
  content $thing
  if [ $with_tree = 1 ]; then
    rm -rf "$work/back"; mkdir "$work/back"
    timeout 180 "$braid" cp -qr braid://main/trees "$work/back" 2>"$work/err" || lost "trees: $(<"$work/err")"
    [ "${code[rm]:-1}" != 0 ] || [ ! -e "$work/back/trees/$tree" ] ||
      lost "the removed tree $tree is there ($kind)"
    copied=$work/back/trees/$round
    [ "${code[tree]}" != 0 ] || diff -r "$work/tree" "$copied" >/dev/null ||
      lost "a tree lacks something ($kind)"
    for f in $(grep -oE '"target": *"[^"]*/f[0-9]+"' "$work/tree.json" | grep -oE 'f[0-9]+'); do
      cmp -s "$work/tree/$f" "$copied/$f" || lost "$f of a tree was acknowledged and differs ($kind)"
    done
    [ "${code[rm]:-0}" = 0 ] || timeout 180 "$braid" rm -rf "braid://main/trees/$tree" ||
      lost "the tree $tree stays"
    tree=$round
    if [ "${code[tree]}" != 0 ]; then
      timeout 180 "$braid" rm -rf "braid://main/trees/$tree" || lost "the tree $tree stays"
      tree=
    fi
  fi
  # What drives missed is brought up to date, so that the next death finds full redundancy.
  case $kind in host* | everything | drive*) settled ;; esac
  ((round % 20)) || echo "round $round, $((SECONDS - begun)) s: $acknowledged copies and" \
    "$(wc -l <"$work/changes") names acknowledged, none lost"
done

settled
for name in "${!held[@]}"; do
  now=$(stored "$name")
  [ "$now" = "${held[$name]}" ] || lost "$name was lost: $now"
done
for ((thing = 0; thing < things; thing += 2)); do content $thing; done
timeout 300 "$braid" check --all braid://main >"$work/check.out" 2>&1 ||
  lost "check: $(tail -n 3 "$work/check.out")"
counted=$(for k in "${!done_to[@]}"; do printf ' %s %s' "$k" "${done_to[$k]}"; done)
echo "kill-managers: $rounds rounds, $((SECONDS - begun)) s; $acknowledged copies and" \
  "$(wc -l <"$work/changes") names acknowledged, nothing lost; struck:$counted"
[ $failed = 0 ] || { echo "kill-managers: $failed copies failed although they could have gone on"; exit 1; }
