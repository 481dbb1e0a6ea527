#!/bin/bash
# A time set by utimensat must come back by stat, to the nanosecond (docs/posix.md: "times to the
# nanosecond"). Times before 1970 with a part of a second come back one second early; times after 2262-04-11
# come back as 2262-04-11 with no error (and utimensat with a time far before 1970 gives EIO). (Public:
# xfstests generic/634.)
B=${1:?braid}; W=$(mktemp -d /dev/shm/braid-case.XXXX); M=$W/m; mkdir $M; bad=0
"$B" up --dir $W/c --drives 3 --detach >/dev/null || exit 2
trap 'umount $M 2>/dev/null; "$B" down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
export BRAID_CLUSTER=$W/c
"$B" mount --detach --log $W/log braid://main $M >/dev/null || exit 2
for t in 0.000000000 1.500000000 4294967296.250000000 -1.000000000 -1.500000000 -0.500000000 -86400.000000001 -2147483648.750000000 9223372037.000000000 17179869184.000000000 -9223372037.000000000 -67768040609712422.000000000; do
  touch $W/ref; touch -d @$t $W/ref; want=$(stat -c %.9Y $W/ref)
  # Outside of what 64 bits of nanoseconds hold: the nearest that they do (docs/posix.md).
  case $t in
    9223372037.*|17179869184.*) want=9223372036.854775807 ;;
    -9223372037.*|-67768040609712422.*) want=-9223372036.854775808 ;;
  esac
  rm -f $M/f; touch $M/f; e=$(touch -d @$t $M/f 2>&1) || e=" error: ${e##*: }"; got=$(stat -c %.9Y $M/f)
  [ "$got" = "$want" ] && echo "ok  $t" || { echo "BAD set $t, here (tmpfs) $want, on the mount $got$e"; bad=1; }
done
exit $bad
