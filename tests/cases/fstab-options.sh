#!/bin/bash
# docs/mount.md: options that are for mount(8) itself ("user" among them) are passed over. With user, users,
# owner or group in fstab mount(8) itself adds noexec (man mount), which mount.braid refuses; strictatime,
# lazytime, sync, dirsync and noexec (all "filesystem-independent mount options" of mount(8)) too. A helper
# is put at /sbin/mount.braidcase for this run.
B=$(readlink -f ${1:?braid}); W=$(mktemp -d /dev/shm/braid-case.XXXX); M=$W/m; mkdir $M; bad=0
ln -s "$B" $W/mount.braid
printf '#!/bin/bash\nexec %s/mount.braid "$@"\n' $W > /sbin/mount.braidcase; chmod +x /sbin/mount.braidcase
"$B" up --dir $W/c --drives 3 --detach >/dev/null || exit 2
trap 'umount $M 2>/dev/null; "$B" down --dir $W/c >/dev/null 2>&1; rm -rf $W /sbin/mount.braidcase' EXIT
for o in noauto _netdev group noatime user users owner noexec strictatime lazytime sync dirsync; do
  printf 'braid://main %s braidcase %s,cluster=%s/c 0 0\n' $M $o $W > $W/fstab
  if m=$(mount -T $W/fstab $M 2>&1); then echo "ok  $o"; else echo "BAD $o: $m"; case $o in user|users|owner|group|noauto|_netdev) bad=1;; esac; fi
  umount $M 2>/dev/null
done
exit $bad
