#!/bin/bash
# a drive's disk is full so that no file of the default volume can be written: status must not say "all is
# well". And the manager's full disk must not be exit 10 ("bytes differ").
B=$(realpath "$1"); W=$(mktemp -d /dev/shm/braid-case.XXXXXX); export BRAID_CLUSTER=$W/c
trap '$B down --dir $W/c >/dev/null 2>&1; umount $W/c/drive-1 $W/c/manager 2>/dev/null; rm -rf $W' EXIT
$B up --detach --dir $W/c --drives 5 >/dev/null || exit 2; $B down --dir $W/c >/dev/null
for x in drive-1:48m manager:2m; do d=${x%:*}; mv $W/c/$d $W/$d.o; mkdir $W/c/$d; mount -t tmpfs -o size=${x#*:},mode=700 tmpfs $W/c/$d; cp -a $W/$d.o/. $W/c/$d/; done
$B up --detach --dir $W/c >/dev/null || exit 2; r=0
head -c 30000000 /dev/urandom >$W/f; for i in 1 2 3 4 5 6 7 8; do $B cp -q $W/f braid://main/f$i 2>$W/e || { echo "cp rc $?: $(cut -c1-120 $W/e)"; break; }; done
sleep 8; $B status >$W/s; rc=$?; echo "status rc $rc: $(grep 'all is well\|at risk\|full' $W/s | head -1)"; # It may be well again, as the space of the copy that failed is freed: then a small file fits.
[ $rc = 0 ] && { head -c 300000 $W/f | $B cp -q - braid://main/small || r=1; }
dd if=/dev/zero of=$W/c/manager/junk bs=4K status=none 2>/dev/null; for i in $(seq 100); do echo x | $B cp -q - braid://main/s$i 2>$W/e; c=$?; [ $c != 0 ] && break; done; echo "manager's disk full: cp rc $c: $(cut -c1-150 $W/e)"; [ $c = 9 ] || r=1; rm $W/c/manager/junk; exit $r
