#!/bin/bash
# A stranger's connections must not write the manager's log without bound (it is on the disk of the
# manager's state). exit 0 = fewer than 2,000 lines for 10 s of garbage connections
B=$(realpath "$1"); W=$(mktemp -d /dev/shm/braid-case.XXXXXX); export BRAID_CLUSTER=$W/c
trap '$B down --dir $W/c >/dev/null 2>&1; rm -rf $W' EXIT
$B up --detach --dir $W/c --drives 2 >/dev/null || exit 2
python3 - $(grep -o '127.0.0.1:[0-9]*' $W/c/cluster.toml | head -1) <<'P'
import socket,sys,time
h,p=sys.argv[1].split(':'); e=time.time()+10; n=0
while time.time()<e:
    s=socket.create_connection((h,int(p))); s.sendall(b'G'*64); s.close(); n+=1
print('connections',n)
P
sleep 1; n=$(wc -l <$W/c/logs/manager.log); echo "lines $n, bytes $(stat -c %s $W/c/logs/manager.log)"; tail -1 $W/c/logs/manager.log; [ $n -lt 2000 ]
