#!/bin/bash
# After `braid down` + `braid up`, files get times in the future; does it add up over restarts?
B=$1; export BRAID_CLUSTER=$(mktemp -d /dev/shm/braid-case-XXXX); D=$BRAID_CLUSTER
trap '$B down --dir $D >/dev/null; rm -rf $D' EXIT
$B up --detach --dir $D --drives 3 >/dev/null
offset() { head -c ${1:-2} /dev/zero | $B cp -q - braid://main/f; $B stat --json braid://main/f | python3 -c "
import json,sys,time,datetime; d=json.load(sys.stdin); k=[k for k in d if 'mod' in k or 'mtime' in k][0]; v=d[k]
t=datetime.datetime.fromisoformat(v.replace('Z','+00:00')).timestamp() if isinstance(v,str) else (v/1000 if v<1e13 else v/1e9)
print('mtime - now: %.2f s' % (t-time.time())); sys.exit(t-time.time() > 5)"; }
echo -n "fresh: "; offset
for i in 1 2 3 4; do $B down --dir $D >/dev/null; $B up --detach --dir $D >/dev/null; echo -n "restart $i: "; offset || r=1; done
sleep ${SLEEP:-20}; echo -n "${SLEEP:-20} s later: "; offset || r=1; exit ${r:-0}
