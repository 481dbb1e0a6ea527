#!/bin/bash
# A copy out of a volume (`cp -a` / `cp -r`) must not write through a symlink that an earlier `cp -a` of the
# same volume made. Who may write to the volume otherwise writes files anywhere as the user who copies
# (root).
B=$(realpath "$1"); W=$(mktemp -d /dev/shm/braid-case.XXXXXX); export BRAID_CLUSTER=$W/c
trap '$B down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
$B up --detach --dir $W/c --drives 5 >/dev/null || exit 2
mkdir $W/src $W/victim; ln -s $W/victim $W/src/ul
$B cp -aq $W/src braid://main/ || exit 2
$B cp -aq braid://main/src $W/out || exit 2          # day 1: the backup holds the link, as it is
$B rm braid://main/src/ul; $B mkdir braid://main/src/ul; echo EVIL | $B cp -q - braid://main/src/ul/cron
mkdir $W/o2; cp -a $W/out $W/o2/src; mkdir $W/o3; cp -a $W/out $W/o3/src
$B cp ${2:--aq} braid://main/src $W/o2; echo "braid cp -a: rc $?"           # day 2
if [ -e $W/victim/cron ]; then echo "WRONG: braid cp -a wrote $W/victim/cron through the link"; r=1; else echo right; r=0; fi
rm -f $W/victim/cron
$B cp -rq braid://main/src $W/o3; echo "braid cp -r: rc $?"
if [ -e $W/victim/cron ]; then echo "WRONG: braid cp -r wrote through the link"; r=1; fi
# what GNU cp does with the same
rm -f $W/victim/cron; mkdir -p $W/l/src/ul; echo EVIL >$W/l/src/ul/cron; cp -a $W/l/src $W/o3/; echo "GNU cp -a: rc $?; victim: $(ls $W/victim)"
exit $r
