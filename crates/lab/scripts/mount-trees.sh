#!/usr/bin/env bash
# What programs take on a tree of many small files: on a local ext4, on a mount of a cluster whose drives are
# beside it, and on the mounts of others (peers.sh). FILES files of 0 to 8 KiB in directories of a hundred,
# and a crate of 200 modules without dependencies that cargo builds there. Each line: seconds, and the ratio
# to the local ones. The ext4 is on a loop device; its image and all else are below PLACE (default /dev/shm,
# and so in memory; some 12 GB for 20,000 files with both peers). Wants root, FUSE, git, bc, cargo.
#
# usage: crates/lab/scripts/mount-trees.sh BRAID [FILES]
#   PEERS      which others to measure too [those of glusterfs, seaweedfs that are installed; none: PEERS=]
#   STEP_MAX   seconds after which a step is given up, and shown as > that [1800]
set -euo pipefail
braid=${1:?the braid binary} files=${2:-20000} step_max=${STEP_MAX:-1800}
here=$(realpath "$(dirname "$0")")
# shellcheck source=tests/on-a-mount.sh
. "$here/../../../tests/on-a-mount.sh"
# shellcheck source=crates/lab/scripts/peers.sh
. "$here/peers.sh"
# shellcheck disable=SC2317 # what was sourced calls it
also_ended() {
    peers_ended
    umount "$place/local" 2>/dev/null || true
}
for tool in git bc cargo mkfs.ext4; do command -v $tool >/dev/null || missing "no $tool" "make mount-trees, as root"; done
begin trees
places=(local mount)
truncate -s 6G "$place/ext4"
mkfs.ext4 -q "$place/ext4"
mkdir "$place/local" "$place/source"
mount -o loop "$place/ext4" "$place/local"
mounted mount
for peer in ${PEERS-glusterfs seaweedfs}; do
    lacks=$("${peer}_missing")
    if [ -n "$lacks" ]; then
        echo "without $peer; this brings it: $lacks" >&2
    elif "${peer}_begin" "$place/$peer-mount"; then
        places+=("$peer")
    else
        echo "without $peer: it does not run here" >&2
    fi
done
where() { case $1 in local | mount) echo "$place/$1" ;; *) echo "$place/$1-mount" ;; esac; }

python3 - "$place/source" "$files" <<'MADE'
import os, random, sys
root, files = sys.argv[1], int(sys.argv[2])
random.seed(1)
for n in range(files):
    directory = f"{root}/tree/{n // 100:04}"
    os.makedirs(directory, exist_ok=True)
    with open(f"{directory}/{n}", "wb") as file:
        file.write(random.randbytes(random.randrange(8192)))
# The crate: each module has some types and functions, and uses the one before.
os.makedirs(f"{root}/crate/src")
with open(f"{root}/crate/Cargo.toml", "w") as file:
    file.write('[package]\nname = "many"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n')
for n in range(200):
    before = f"super::m{n - 1}::sum(&Point::new(x, y).list())" if n else "x + y"
    with open(f"{root}/crate/src/m{n}.rs", "w") as file:
        file.write(f"""
#[derive(Debug, Clone, PartialEq)]
pub struct Point {{ pub x: u64, pub y: u64 }}
impl Point {{
    pub fn new(x: u64, y: u64) -> Self {{ Point {{ x, y }} }}
    pub fn list(&self) -> Vec<u64> {{ (0..self.x % 7).map(|n| n.wrapping_mul(self.y)).collect() }}
    pub fn text(&self) -> String {{ format!("{n}: {{:?}}", self) }}
}}
pub fn sum(numbers: &[u64]) -> u64 {{ numbers.iter().fold({n}, |a, b| a.wrapping_add(*b)) }}
pub fn next(x: u64, y: u64) -> u64 {{ {before} }}
""")
with open(f"{root}/crate/src/main.rs", "w") as file:
    file.write("".join(f"mod m{n};\n" for n in range(200)))
    file.write('fn main() {\n' + "".join(
        f'    println!("{{}} {{}}", m{n}::next({n}, 3), m{n}::Point::new(1, 2).text());\n' for n in range(200)) + "}\n")
MADE
tar -C "$place/source" -cf "$place/tree.tar" tree
tar -C "$place/source" -cf "$place/crate.tar" crate

# Runs a command in the current directory. Sets `took`: seconds, or > and the bound, or FAILED.
timed() {
    local from to code=0
    from=$(date +%s.%N)
    timeout "$step_max" "$@" >"$place/said" 2>&1 || code=$?
    to=$(date +%s.%N)
    case $code in
        0) took=$(printf %.2f "$(echo "$to - $from" | bc)") ;;
        124) took=">$step_max" ;;
        *)
            took=FAILED
            echo "$PWD: $* failed with $code: $(tail -n 3 "$place/said")" >&2
            ;;
    esac
}
divided() { [[ $1$2 == *[!0-9.]* ]] && { echo -; return; }; printf '%.1f' "$(echo "$1 / ($2 + 0.005)" | bc -l)"; }
declare -A seconds=()
# The same in all places.
step() {
    local what=$1 at; shift
    printf '%-26s' "$what"
    for at in "${places[@]}"; do
        cd "$(where "$at")"
        timed "$@"
        seconds[$what/$at]=$took
        if [ "$at" = local ]; then printf '%9s' "$took"; else printf '%11s%8s' "$took" "$(divided "$took" "${seconds[$what/local]}")"; fi
        cd "$place"
    done
    echo
}
printf '%-26s%9s' "$files files; seconds" local
for at in "${places[@]:1}"; do printf '%11s%8s' "$at" ratio; done
echo
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b GIT_CONFIG_GLOBAL=/dev/null
step 'tar x' tar xf "$place/tree.tar"
step 'cp -r' cp -r tree copy
step 'find with sizes, first' find tree -size +1k
step 'find with sizes, second' find tree -size +1k
# It finds nothing, and says so by its exit code.
step 'grep -r' sh -c '! grep -r nothing-like-this tree'
step 'git init, add, commit' sh -c 'git -C tree init -q && git -C tree add . && git -C tree commit -qm c'
step 'git clone' git clone -q tree clone
step 'git status' git -C clone status
step 'rm -r' rm -r copy clone
tar xf "$place/crate.tar" -C "$place/local"
for at in "${places[@]:1}"; do tar xf "$place/crate.tar" -C "$(where "$at")"; done
unset CARGO_TARGET_DIR
step 'cargo build' cargo build -q --offline --manifest-path crate/Cargo.toml
step 'it runs' crate/target/debug/many
step 'cargo build, one changed' sh -c 'echo "// changed" >>crate/src/m7.rs && cargo build -q --offline --manifest-path crate/Cargo.toml'
second="find with sizes, second"
echo "goal: tar x brings in at least 2,500 files a second; here $(divided "$files" "${seconds[tar x/mount]}")"
echo "goal: the second find takes at most 3 times local's; here" \
    "$(divided "${seconds[$second/mount]}" "${seconds[$second/local]}")"
