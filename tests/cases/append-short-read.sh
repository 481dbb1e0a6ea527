#!/bin/bash
# One mount: while a program appends (O_APPEND), another that asks for the size and then reads up to it is
# told EOF (0 bytes) now and then. Rare (some in a million reads; more with several readers). Without
# O_APPEND, and on ext4: never. Kin: openzfs/zfs#3601, ovh/svfs#17.
set -u; B=$1; D=/dev/shm/braid-case-as-$$; export BRAID_CLUSTER=$D; mkdir -p $D $D.1
trap '{ umount $D.1 || { sleep 1; umount $D.1 || umount -l $D.1; }; } 2>/dev/null; $B down --dir $D >/dev/null 2>&1; rm -rf $D; rmdir $D.1' EXIT
$B up --dir $D --drives 5 --detach >/dev/null || exit 2; $B mount --detach braid://main $D.1 >/dev/null || exit 2
cat > $D/t.py <<'E'
import os,sys,time,multiprocessing as mp
A=sys.argv[1]; N="/log"; stop=mp.Event(); q=mp.Queue()
def reader(by_name):
    fd=os.open(A+N,os.O_RDONLY); n=0; sh={}
    while not stop.is_set():
        s=os.stat(A+N).st_size if by_name else os.fstat(fd).st_size
        if s<100: continue
        x=os.pread(fd,100,s-100); n+=1
        if len(x)<100: sh[len(x)]=sh.get(len(x),0)+1
    q.put((n,sh))
open(A+N,"w").close(); ps=[mp.Process(target=reader,args=(k,)) for k in (False,True)]; [p.start() for p in ps]; fd=os.open(A+N,os.O_WRONLY|os.O_APPEND); t=time.time()
while time.time()-t<10: os.write(fd,b"0123456789"*20); time.sleep(0.001)
stop.set(); res=[q.get() for _ in ps]; print("reads, and {length: number} of those that were short:",res); sys.exit(any(s for _,s in res))
E
python3 $D/t.py $D.1
