#!/bin/bash
# `braid check --all` ends with exit code 3 if a file is removed while it walks; does it check the rest?
# Source: apache/arrow-rs#5800, fsspec walks.
set -u; B=$1; D=/dev/shm/braid-case-cv-$$; export BRAID_CLUSTER=$D; mkdir -p $D $D.1
trap 'kill $C 2>/dev/null; wait $C 2>/dev/null; { umount $D.1 || { sleep 1; umount $D.1 || umount -l $D.1; }; } 2>/dev/null; $B down --dir $D >/dev/null 2>&1; rm -rf $D; rmdir $D.1' EXIT
$B up --dir $D --drives 3 --detach >/dev/null || exit 2; $B mount --detach braid://main $D.1 >/dev/null || exit 2
mkdir $D.1/a; for i in $(seq 300); do echo $i > $D.1/a/keep$i; done; mkdir $D.1/z; for i in $(seq 50); do echo $i > $D.1/z/k$i; done
( i=0; while :; do i=$((i+1)); for k in 1 2 3 4 5 6 7 8; do : > $D.1/a/tmp$k-$i; done; rm -f $D.1/a/tmp*-$i; done ) & C=$!
sleep 0.5; rc=0; for n in 1 2 3 4 5; do timeout 60 $B check --all braid://main > $D/out 2>$D/err; r=$?; echo "check --all: rc $r, files reported ok $(grep -c 'keep.* ok\|/k[0-9]* *.*ok' $D/out) of 350; $(head -1 $D/err)"; [ $r = 0 ] || rc=1; done
mkdir $D/cp; timeout 60 $B cp -q -r braid://main $D/cp 2>$D/err; echo "cp -r: rc $?, kept files copied $(ls $D/cp/a $D/cp/z | grep -c '^k') of 350; $(head -1 $D/err)"
exit $rc
