#!/usr/bin/env bash
# What an eavesdropper sees (docs/operations.md, "What can be read on the network"), with each host a network
# namespace on one bridge (root; iproute2, etcd-server, python3). All packets are recorded while three
# managers with their own etcd, drives that join with tokens, and clients with tokens do about all that there
# is: volumes of each kind are made and used by the command line and by a mount, names change, keys are
# turned, a token is revoked, a drive is replaced and the leading manager is killed. Then the packets are
# searched for every secret, every name and, of the private and the encrypted volume, every piece of the
# files. What the plain volume's files hold must all be found: that the search finds is proved by that.
#
# usage: tests/wire-capture.sh BRAID WIRE_CAPTURE      exit 0 only if nothing is seen that is to be hidden
set -euo pipefail
braid=$(realpath "${1:?BRAID}")
capture=$(realpath "${2:?WIRE_CAPTURE}")
for program in ip etcd python3 "$braid" "$capture"; do
  command -v "$program" >/dev/null || { echo "no $program: make wire-capture installs and builds all" >&2; exit 2; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/braid-wire-capture.XXXXXX")
tag=$$
net() { echo "bwc$tag-$1"; }
declare -A pid=()
declare -A ip_of=()
end() { # NAME: SIGKILL, and no word from the shell about it
  kill -9 "${pid[$1]}" 2>/dev/null || true
  wait "${pid[$1]}" 2>/dev/null || true
  unset "pid[$1]"
}
cleanup() {
  [ -z "${pid[client]:-}" ] || umount -l "$work/mount" 2>/dev/null || true
  for h in "${!pid[@]}"; do end "$h"; done
  for h in sw "${!ip_of[@]}"; do ip netns del "$(net "$h")" 2>/dev/null || true; done
  [ -n "${KEEP:-}" ] && echo "kept: $work" || rm -rf "$work"
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

ip netns add "$(net sw)"
ip -n "$(net sw)" link add br0 type bridge
ip -n "$(net sw)" link set br0 up
declare -A ip_of=([client]=10.79.0.21)
for n in 1 2 3; do ip_of[manager-$n]=10.79.0.$n; done
for n in 1 2 3 4 5 6; do ip_of[drive-$n]=10.79.0.1$n; done
for h in "${!ip_of[@]}"; do
  ip netns add "$(net "$h")"
  ip -n "$(net sw)" link add "to-$h" type veth peer name eth0 netns "$(net "$h")"
  ip -n "$(net sw)" link set "to-$h" master br0 up
  ip -n "$(net "$h")" addr add "${ip_of[$h]}/24" dev eth0
  ip -n "$(net "$h")" link set eth0 up
  ip -n "$(net "$h")" link set lo up
done
on() { local h=$1; shift; nsenter "--net=/run/netns/$(net "$h")" "$@"; }
serve() { # HOST COMMAND...: in the background; its log and its process have the host's name
  local h=$1; shift
  nsenter "--net=/run/netns/$(net "$h")" "$@" >"$work/$h.out" 2>>"$work/$h.log" &
  pid[$h]=$!
}
by() { on client "$braid" --cluster "$cluster" "$@"; }

serve sw "$capture" record "$work/packets.pcap"
wait_for 10 "the recorder" test -s "$work/packets.pcap"

echo "== three managers, each joined by a token"
cluster="$work/manager-1/cluster.toml"
serve manager-1 "$braid" cluster init --hosts 10.79.0.1,10.79.0.2,10.79.0.3 --dir "$work/manager-1"
wait_for 60 "the commands for the others" grep -q "to start this one again" "$work/manager-1.out"
members() { [ "$(by cluster ls --json | grep -c '"healthy": true')" = "$1" ]; }
for n in 2 3; do
  grep -A1 "on 10.79.0.$n:" "$work/manager-1.out" | grep -o 'braid1\.[^ ]*' >"$work/token-manager-$n"
  serve "manager-$n" "$braid" cluster join --token-file "$work/token-manager-$n" --manager 10.79.0.1:7400 \
    --listen "10.79.0.$n:7400" --dir "$work/manager-$n"
  wait_for 120 "$n members" members "$n"
done

echo "== five drives, each joined by a token of its own"
drive() { # NUMBER: serves it
  [ -e "$work/token-drive-$1" ] || by token new "token-of-drive-$1" --role drive --out "$work/token-drive-$1" >/dev/null
  serve "drive-$1" "$braid" drive serve --dir "$work/directory-of-drive-$1" --name "name-of-drive-$1" --host "host-of-drive-$1" \
    --no-calibration --listen "10.79.0.1$1:7401" --manager 10.79.0.1:7400 --token-file "$work/token-drive-$1"
}
for n in 1 2 3 4 5; do drive $n; done
up() { [ "$(by drive ls --json | grep -o '"state": *"up"' | wc -l)" -ge "$1" ]; }
wait_for 60 "five drives" up 5

echo "== volumes: plain, private, encrypted"
head -c 32 /dev/urandom >"$work/key-file"
# A key command that knows the data key itself, so that it can be searched for.
cat >"$work/key-command" <<'COMMAND'
#!/bin/sh
read -r line
case $1 in
wrap) printf '%s\n' "$line" >"$2/data-key"; head -c 40 /dev/urandom | base64 -w0; echo ' key-command-of-the-test' ;;
unwrap) cat "$2/data-key" ;;
esac
COMMAND
chmod +x "$work/key-command"
sed -i "s#\"\$2/data-key\"#$work/data-key#" "$work/key-command"
shape=(--scheme raid5 --width 5 --unit 64K)
by volume create volume-in-the-clear "${shape[@]}"
by volume create volume-that-is-private "${shape[@]}" --data privacy
by volume create volume-that-is-sealed "${shape[@]}" --encrypt --key-command "$work/key-command"
by volume rekey volume-that-is-sealed --key-command "$work/key-command" --new-key-file "$work/key-file"
by token new token-of-the-laptop --volumes volume-in-the-clear,volume-that-is-private,volume-that-is-sealed \
  --out "$work/laptop.toml" >/dev/null
by token new token-to-be-revoked --out "$work/revoked.toml" >/dev/null
as() { on client "$braid" --cluster "$work/laptop.toml" --volume-key "volume-that-is-sealed=$work/key-file" "$@"; }

echo "== files: written, read, renamed, listed, copied, by commands and in a mount"
hex() { od -An -v -tx1 "$1" | tr -d ' \n'; }
head -c 32 /dev/urandom >"$work/control"
printf 'name-for-control' >"$work/control-name"
{
  for of in control control-name; do cat "$work/$of"; hex "$work/$of"; base64 -w0 "$work/$of"; done
  head -c 3000000 /dev/urandom
} >"$work/in-the-clear"
truncate -s 3000000 "$work/in-the-clear"
for kind in that-is-private that-is-sealed; do head -c 3000000 /dev/urandom >"$work/$kind"; done
for kind in in-the-clear that-is-private that-is-sealed; do
  head -c 20000 /dev/urandom >"$work/small-$kind"
  at="braid://volume-$kind"
  as mkdir "$at/first-directory"
  as cp "$work/$kind" "$at/first-directory/first-name-$kind"
  as cp "$work/small-$kind" "$at/first-directory/small-file-$kind"
  as mv "$at/first-directory" "$at/second-directory"
  as mv "$at/second-directory/first-name-$kind" "$at/second-directory/second-name-$kind"
  as ln -s target-of-the-link "$at/second-directory/link-of-$kind"
  as ls -l "$at/second-directory" >/dev/null
  as cat "$at/second-directory/second-name-$kind" | cmp - "$work/$kind"
  as cp "$at/second-directory/small-file-$kind" "$at/copied-file-$kind"
  by snapshot make "$at" snapshot-of-the-test >/dev/null
done
mkdir "$work/mount"
for kind in in-the-clear that-is-private that-is-sealed; do
  serve client "$braid" --cluster "$work/laptop.toml" --volume-key "volume-that-is-sealed=$work/key-file" \
    mount "braid://volume-$kind" "$work/mount"
  wait_for 30 "the mount" mountpoint -q "$work/mount"
  head -c 8000 /dev/urandom >"$work/piece-$kind"
  for at in 100001 700003 1900005; do # parts of stripes, which drives send on to each other
    dd if="$work/piece-$kind" of="$work/mount/second-directory/second-name-$kind" bs=8000 oflag=seek_bytes seek=$at conv=notrunc status=none
  done
  sync -f "$work/mount"
  python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.attribute-of-the-test", b"value-of-the-attribute")' \
    "$work/mount/second-directory/second-name-$kind"
  umount "$work/mount"
  wait "${pid[client]}" || fail "the mount failed"
  unset "pid[client]"
done
second() { echo "braid://volume-$1/second-directory/second-name-$1"; }
for kind in in-the-clear that-is-private that-is-sealed; do as cat "$(second $kind)" >"$work/then-$kind"; done

# What is hidden beside what the state has: it is noted before it is gone.
note() { echo "$*" >>"$work/wanted"; }
note_keys() {
  local of
  for of in "$work"/directory-of-drive-*/drive.toml; do
    note hidden drive "$(sed -n 's/^name = "\(.*\)"/\1/p' "$of")" "$(sed -n 's/^drive = "\(.*\)"/\1/p' "$of")" \
      "$(sed -n 's/^master_key = "\(.*\)"/\1/p' "$of")"
  done
}
note_etcd() { # the keys of etcd's certificates, which each start of a manager makes anew: 32 bytes after 16
  local of
  for of in "$work"/manager-[123]/etcd-tls/*.pem; do
    [ "$(basename "$of")" = ca.pem ] || note hidden secret "key-of-etcd" \
      "$(sed -n '/BEGIN.*PRIVATE/,/END/p' "$of" | grep -v -- --- | base64 -d | tail -c +17 | head -c 32 | hex -)"
  done
}
note_token() { note hidden secret "of-$1" "$(cut -d. -f5 <<<"$(grep -o 'braid1\.[^"]*' "$2")")"; }
by manager backup "$work/backup-1" >/dev/null
note_keys
note_etcd

echo "== keys are turned, a token is revoked"
by key rotate --all >/dev/null
turned() { grep -q '^key_number = 2' "$work"/directory-of-drive-5/drive.toml; }
wait_for 60 "the drives' turns" turned
by token revoke token-to-be-revoked
on client "$braid" --cluster "$work/revoked.toml" ls braid://volume-in-the-clear 2>/dev/null && fail "a revoked token lists"
note_keys
note_etcd

echo "== the leading manager is killed, and comes back"
leader() { by cluster ls | sed -n 's/^10.79.0.\([123]\):7400 *leads.*/\1/p' | head -n 1; }
first=$(leader)
end "manager-$first"
cluster="$work/manager-$((first % 3 + 1))/cluster.toml"
wait_for 60 "another leader" by ls braid://volume-in-the-clear
for kind in in-the-clear that-is-private that-is-sealed; do as cat "$(second $kind)" | cmp - "$work/then-$kind"; done
serve "manager-$first" "$braid" manager serve --dir "$work/manager-$first"
wait_for 120 "three members" members 3

echo "== a drive is killed, misses writes and comes back; another is lost, and a new one takes its place"
end drive-1
for kind in in-the-clear that-is-private that-is-sealed; do
  as cp "$work/small-$kind" "braid://volume-$kind/written-degraded-$kind"
  as cat "$(second $kind)" | cmp - "$work/then-$kind"
done
drive 1
wait_for 60 "five drives" up 5
by heal --watch >/dev/null
by check --all braid://volume-in-the-clear
end drive-2
drive 6
wait_for 60 "five drives" up 5
replaced() { by drive replace name-of-drive-2 name-of-drive-6; }
wait_for 60 "the new drive in the place of the old one" replaced
by rebuild name-of-drive-6
by heal --watch >/dev/null
for kind in in-the-clear that-is-private that-is-sealed; do by check --all "braid://volume-$kind"; done
end drive-3
for kind in in-the-clear that-is-private that-is-sealed; do as cat "$(second $kind)" | cmp - "$work/then-$kind"; done
drive 3
wait_for 60 "five drives" up 5

echo "== the search"
by manager backup "$work/backup-2" >/dev/null
note_keys
note_etcd
for h in "${!pid[@]}"; do [ "$h" = sw ] || end "$h"; done
end sw
for n in 1 2; do note hidden state "$work/backup-$n"; done
for n in 2 3; do note_token "token-manager-$n" "$work/token-manager-$n"; done
for n in 1 2 3 4 5 6; do note_token "token-drive-$n" "$work/token-drive-$n"; done
note_token laptop "$work/laptop.toml"
note_token to-be-revoked "$work/revoked.toml"
note_token admin "$work/manager-1/cluster.toml"
note hidden secret data-key "$(base64 -d "$work/data-key" | od -An -v -tx1 | tr -d ' \n')"
note hidden secret key-file "$(hex "$work/key-file")"
for kind in in-the-clear that-is-private that-is-sealed; do
  for name in first-name small-file copied-file second-name link-of written-degraded; do note hidden name "$name-$kind"; done
done
for name in first-directory second-directory target-of-the-link snapshot-of-the-test attribute-of-the-test value-of-the-attribute; do
  note hidden name "$name"
done
for kind in that-is-private that-is-sealed; do
  for of in "" small- piece- then-; do note hidden file "$of$kind" "$work/$of$kind"; done
done
for of in "" small- piece-; do note shown file "${of}in-the-clear" "$work/${of}in-the-clear"; done
note shown secret control "$(hex "$work/control")"
note shown name name-for-control
"$capture" search "$work/packets.pcap" "$work/wanted"
echo "wire capture: nothing that is to be hidden is seen"
