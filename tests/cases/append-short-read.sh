#!/bin/bash
# One mount: while a program appends (O_APPEND), another that asks for the size and then reads up to it was
# told EOF (0 bytes) now and then, some in a million reads, as each read of a new page had the manager give
# what was appended its place, and programs and the kernel waited for that. Kin: openzfs/zfs#3601,
# ovh/svfs#17. So: what was appended is read while the manager is stopped, and a read is short for no longer
# than the kernel needs to end the other's write (docs/posix.md).
set -u; B=$1; D=/dev/shm/braid-case-as-$$; export BRAID_CLUSTER=$D; mkdir -p $D $D.1
trap '{ umount $D.1 || { sleep 1; umount $D.1 || umount -l $D.1; }; } 2>/dev/null; $B down --dir $D >/dev/null 2>&1; rm -rf $D; rmdir $D.1' EXIT
$B up --dir $D --drives 5 --detach >/dev/null || exit 2; $B mount --detach braid://main $D.1 >/dev/null || exit 2
M=$(pgrep -f "manager serve .*$D/")
cat > $D/t.py <<'E'
import os,signal,sys,threading,time,multiprocessing as mp
A=sys.argv[1]; N="/log"; stop=mp.Event(); q=mp.Queue()
fd=os.open(A+"/new",os.O_RDWR|os.O_APPEND|os.O_CREAT); read=[]; os.write(fd,b"0123456789"*10)
one=threading.Thread(target=lambda: read.append(os.pread(fd,100,0)),daemon=True)
os.kill(int(sys.argv[2]),signal.SIGSTOP); one.start(); one.join(2); waited=not read
os.kill(int(sys.argv[2]),signal.SIGCONT); one.join(); os.close(fd)
print("a read of what was appended, without the manager:", "waits" if waited else len(read[0]))
def reader(by_name):
    fd=os.open(A+N,os.O_RDONLY); n=0; sh={}; stays=0
    while not stop.is_set():
        s=os.stat(A+N).st_size if by_name else os.fstat(fd).st_size
        if s<100: continue
        x=os.pread(fd,100,s-100); n+=1
        if len(x)<100:
            sh[len(x)]=sh.get(len(x),0)+1; end=time.time()+1
            while len(os.pread(fd,100,s-100))<100:
                if time.time()>end: stays+=1; break
    q.put((n,sh,stays))
open(A+N,"w").close(); ps=[mp.Process(target=reader,args=(k,)) for k in (False,True)]; [p.start() for p in ps]; fd=os.open(A+N,os.O_WRONLY|os.O_APPEND); t=time.time()
while time.time()-t<10: os.write(fd,b"0123456789"*20); time.sleep(0.001)
stop.set(); res=[q.get() for _ in ps]; print("reads, {length: number} of those that were short, how many stayed so:",res); sys.exit(waited or any(stays for *_,stays in res))
E
python3 $D/t.py $D.1 $M
