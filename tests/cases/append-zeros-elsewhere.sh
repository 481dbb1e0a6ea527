#!/bin/bash
# One program appends (O_APPEND) in mount 1; others of mount 1 read the file; readers of mount 2 see the
# grown size and zeros in place of the records, for up to a second at a time. No bytes are lost in the end.
# Sources: openzfs/zfs#3601, juicedata/juicefs#3761, seaweedfs#7853 (readers beside an appender); known from
# tail -f over NFS.
set -u; B=$1; D=/dev/shm/braid-case-az-$$; export BRAID_CLUSTER=$D; mkdir -p $D $D.1 $D.2
trap '{ umount $D.1 || { sleep 1; umount $D.1 || umount -l $D.1; }; } 2>/dev/null; { umount $D.2 || { sleep 1; umount $D.2 || umount -l $D.2; }; } 2>/dev/null; $B down --dir $D >/dev/null 2>&1; rm -rf $D; rmdir $D.1 $D.2' EXIT
$B up --dir $D --drives 5 --detach >/dev/null || exit 2; $B mount --detach braid://main $D.1 >/dev/null || exit 2; $B mount --detach braid://main $D.2 >/dev/null || exit 2
cat > $D/t.py <<'E'
import os,sys,time,multiprocessing as mp
A,B=sys.argv[1:]; N="/log"; q=mp.Queue(); stop=mp.Event()
def reader(name,d):
    fd=os.open(d+N,os.O_RDONLY); n=z=short=0; t0=None; longest=0
    while not stop.is_set():
        s=os.fstat(fd).st_size
        if s<100: continue
        x=os.pread(fd,100,s-100); n+=1; short+=len(x)<100
        if b"\0" in x: z+=1; t0=t0 or time.time(); longest=max(longest,time.time()-t0)
        else: t0=None
        time.sleep(0.0005)
    q.put((name,n,z,round(longest,2),short))
open(A+N,"w").close(); ps=[mp.Process(target=reader,args=x) for x in (("mount 1",A),("mount 1",A),("mount 2",B),("mount 2",B))]; [p.start() for p in ps]
fd=os.open(A+N,os.O_WRONLY|os.O_APPEND); t=time.time(); ls=t
while time.time()-t<8:
    os.write(fd,b"0123456789"*20); time.sleep(0.002)
    if time.time()-ls>0.2: os.fsync(fd); ls=time.time()
os.close(fd); time.sleep(0.5); stop.set(); res=[q.get() for _ in ps]; [p.join() for p in ps]
for r in sorted(res): print("%s: %d reads of the last 100 bytes, %d with zeros (longest run %.2f s), %d short"%r)
print("zeros in the closed file:",open(B+N,"rb").read().count(b"\0")); sys.exit(any(r[2] for r in res))
E
python3 $D/t.py $D.1 $D.2
