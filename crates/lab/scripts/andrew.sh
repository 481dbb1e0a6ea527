#!/usr/bin/env bash
# The Andrew benchmark's five phases (MakeDir, Copy, ScanDir, ReadAll, Make) over a generated source tree of
# 420 files: on a local ext4, on a mount of a cluster whose drives are beside it, and on an NFS server of the
# same ext4. ROUNDS rounds (default 5), the places in turn; medians of the seconds, and the ratios of the
# mount to the other two. All is below PLACE (default /dev/shm, and so in memory). Wants root, FUSE, a C
# compiler, make, libnfs, and for NFS nfs-ganesha with its VFS back end, and rpcbind.
#
# How far NFS is comparable: the kernel need not know NFS, so its client is libnfs in the program itself
# (andrew.c), NFSv3 over TCP. It has neither system calls nor a page cache: an NFS that is mounted pays for
# the way through a kernel as Braid's mount does, but answers ScanDir and ReadAll, after Copy, partly from
# what the kernel kept, as Braid's mount can. Closing a file commits its bytes to the server's ext4; Braid
# stores them on five drives. Make runs compilers, and so on mounts only. The NFS server has no redundancy.
#
# usage: crates/lab/scripts/andrew.sh BRAID
#   NFS   set to nothing: leave NFS out
set -euo pipefail
braid=${1:?the braid binary} rounds=${ROUNDS:-5}
here=$(realpath "$(dirname "$0")")
# shellcheck source=tests/on-a-mount.sh
. "$here/../../../tests/on-a-mount.sh"
servers=()
# shellcheck disable=SC2317 # what was sourced calls it
also_ended() {
    local pid
    # The NFS server before its port mapper, which it tells that it goes.
    for pid in "${servers[@]}"; do
        kill "$pid" 2>/dev/null || true
        timeout 20 tail --pid="$pid" -f /dev/null || kill -9 "$pid" 2>/dev/null || true
    done
    umount "$place/local" 2>/dev/null || true
}
for tool in cc make bc mkfs.ext4; do command -v $tool >/dev/null || missing "no $tool" "make andrew, as root"; done
begin andrew
cc -O2 -o "$place/andrew" "$here/andrew.c" -lnfs || missing "andrew.c does not compile" "apt-get install libnfs-dev"
truncate -s 2G "$place/ext4"
mkfs.ext4 -q "$place/ext4"
mkdir "$place/local"
mount -o loop "$place/ext4" "$place/local"
mounted mount
columns=(local mount)
if [ -z "${NFS-yes}" ]; then
    :
elif ! command -v ganesha.nfsd rpcbind >/dev/null || ! ls /usr/lib/*/ganesha/libfsalvfs.so >/dev/null 2>&1; then
    echo "without NFS; this brings it: apt-get install nfs-ganesha-vfs rpcbind" >&2
else
    mkdir "$place/local/export" "$place/ganesha"
    cat >"$place/ganesha/conf" <<SERVER
NFS_CORE_PARAM {
    Protocols = 3; NFS_Port = 12049; MNT_Port = 12050; Bind_addr = 127.0.0.1;
    Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;
}
NFSV4 { Graceless = true; RecoveryRoot = $place/ganesha; }
EXPORT {
    Export_Id = 1; Path = $place/local/export; Pseudo = /export; Access_Type = RW;
    Squash = No_Root_Squash; SecType = sys; Protocols = 3; Transports = TCP; FSAL { Name = VFS; }
}
LOG { Default_Log_Level = CRIT; }
SERVER
    # The server does not start without a port mapper.
    if ! [ -S /run/rpcbind.sock ] || ! rpcinfo >/dev/null 2>&1; then
        rpcbind -f >"$place/ganesha/rpcbind" 2>&1 &
        mapper=$!
        for ((waited = 0; waited < 50; waited++)); do rpcinfo >/dev/null 2>&1 && break; sleep 0.2; done
    fi
    ganesha.nfsd -F -f "$place/ganesha/conf" -L "$place/ganesha/log" -p "$place/ganesha/pid" >/dev/null 2>&1 &
    servers+=("$!" ${mapper:+"$mapper"})
    export_url="nfs://127.0.0.1$place/local/export?nfsport=12049&mountport=12050"
    for ((waited = 0; waited < 100; waited++)); do
        timeout 10 nfs-ls "$export_url" >/dev/null 2>&1 && break
        kill -0 "${servers[0]}" 2>/dev/null || break
        sleep 0.2
    done
    if timeout 10 nfs-ls "$export_url" >/dev/null 2>&1; then
        columns+=(nfs)
    else
        echo "without NFS, which does not run here: $(grep -E 'CRIT|MAJ|FATAL' "$place/ganesha/log" | tail -n 3)" >&2
    fi
fi

python3 - "$place/source" <<'MADE'
import os, random, sys
root = sys.argv[1]
random.seed(1)
for d in range(20):
    at = f"{root}/part{d:02}"
    os.makedirs(at)
    with open(f"{at}/part.h", "w") as file:
        file.write(f"#ifndef PART{d}\n#define PART{d}\n" + "".join(f"int f{d}_{n}(int);\n" for n in range(20)) + "#endif\n")
    for n in range(20):
        with open(f"{at}/f{n}.c", "w") as file:
            file.write(f'#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include "part.h"\n')
            for k in range(random.randrange(2, 30)):
                file.write(f"/* {'comment ' * random.randrange(20)}*/\nstatic int g{k}(int x)\n{{\n    char text[64];\n"
                           f'    snprintf(text, sizeof text, "%d", x * {k});\n    return atoi(text) + (int)strlen(text);\n}}\n\n')
            file.write(f"int f{d}_{n}(int x)\n{{\n    return g0(x) + g1(x);\n}}\n")
with open(f"{root}/main.c", "w") as file:
    file.write("".join(f'#include "part{d:02}/part.h"\n' for d in range(20)))
    calls = " + ".join(f"f{d}_{n}({n})" for d in range(20) for n in range(20))
    file.write(f"#include <stdio.h>\nint main(void)\n{{\n    printf(\"%d\\n\", {calls});\n    return 0;\n}}\n")
with open(f"{root}/Makefile", "w") as file:
    file.write("OBJECTS := $(patsubst %.c,%.o,$(wildcard part*/*.c) main.c)\n"
               "program: $(OBJECTS)\n\tcc -o $@ $^\n%.o: %.c\n\tcc -O0 -c -o $@ $<\n")
MADE

declare -A took=()
# Prints the seconds of the first four phases, as andrew.c does.
phases() {
    case $2 in
        nfs) timeout 600 "$place/andrew" "$place/source" "$export_url" "/$1" ;;
        *) timeout 600 "$place/andrew" "$place/source" "$place/$2/$1" ;;
    esac
}
for ((round = 1; round <= rounds; round++)); do
    for column in "${columns[@]}"; do
        phases "round-$round" "$column" >"$place/phases"
        total=0
        while read -r phase seconds; do
            took[$phase/$column]+="$seconds "
            total=$(echo "$total + $seconds" | bc)
        done <"$place/phases"
        took[first four/$column]+="$total "
        [ "$column" != nfs ] || { rm -r "$place/local/export/round-$round"; continue; }
        from=$(date +%s.%N)
        timeout 600 make -s -C "$place/$column/round-$round" program
        to=$(date +%s.%N)
        "$place/$column/round-$round/program" >"$place/$column.said"
        took[Make/$column]+="$(echo "$to - $from" | bc) "
        took[all five/$column]+="$(echo "$total + $to - $from" | bc) "
        rm -r "${place:?}/$column/round-$round"
    done
    cmp -s "$place/local.said" "$place/mount.said" || { echo "the programs say different things" >&2; exit 1; }
done
median() { printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"; }
divided() { [ "$2" = - ] && { echo -; return; }; printf '%.2f' "$(echo "$1 / ($2 + 0.00005)" | bc -l)"; }
printf '%-12s' 'seconds'
printf '%10s' "${columns[@]}"
printf '%14s' 'mount/local' 'mount/nfs'
echo
for phase in MakeDir Copy ScanDir ReadAll Make 'first four' 'all five'; do
    printf '%-12s' "$phase"
    declare -A middle=([local]=- [mount]=- [nfs]=-)
    for column in "${columns[@]}"; do
        read -ra numbers <<<"${took[$phase/$column]:-}"
        [ ${#numbers[@]} = 0 ] || middle[$column]=$(printf %.4f "$(median "${numbers[@]}")")
        printf '%10s' "${middle[$column]}"
    done
    printf '%14s' "$(divided "${middle[mount]}" "${middle[local]}")" "$(divided "${middle[mount]}" "${middle[nfs]}")"
    echo
done
