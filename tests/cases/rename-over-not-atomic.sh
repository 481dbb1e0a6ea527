#!/bin/bash
# A reader that opens a name which others replace by rename all the time sees ENOENT, or ESTALE from open or
# read. One mount suffices. Source: hanwen/go-fuse#398; also rfc: juicedata/juicefs rename reports. On ext4:
# never.
set -u; B=$1; D=/dev/shm/braid-case-ra-$$; export BRAID_CLUSTER=$D; mkdir -p $D $D.1
trap '{ umount $D.1 || { sleep 1; umount $D.1 || umount -l $D.1; }; } 2>/dev/null; $B down --dir $D >/dev/null 2>&1; rm -rf $D; rmdir $D.1' EXIT
$B up --dir $D --drives 3 --detach >/dev/null || exit 2; $B mount --detach braid://main $D.1 >/dev/null || exit 2
cat > $D/t.py <<'E'
import os,sys,time,errno,multiprocessing as mp
A=sys.argv[1]; q=mp.Queue(); stop=mp.Event()
def put(): 
    with open(A+"/t","wb") as f: f.write(b"x"*5000)
    os.rename(A+"/t",A+"/f")
put()
def reader():
    n=0; bad={}
    while not stop.is_set():
        for st,f in (("open+read",lambda: len(open(A+"/f","rb").read())),("stat",lambda: os.stat(A+"/f").st_size)):
            n+=1
            try:
                if f()!=5000: bad[st+" size"]=bad.get(st+" size",0)+1
            except OSError as e: k=st+" "+errno.errorcode[e.errno]; bad[k]=bad.get(k,0)+1
    q.put((n,bad))
ps=[mp.Process(target=reader) for _ in range(2)]; [p.start() for p in ps]; t=time.time(); r=0
while time.time()-t<6: put(); r+=1
stop.set(); res=[q.get() for _ in ps]; [p.join() for p in ps]
print("renames",r,"readers",res); sys.exit(any(b for _,b in res))
E
python3 $D/t.py $D.1
