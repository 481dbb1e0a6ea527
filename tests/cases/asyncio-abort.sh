#!/bin/bash
# docs/python.md's asyncio example aborts (SIGABRT, rc 134, nothing on stderr) at interpreter exit, about 1
# in 8 runs. PY = a Python with braidfs
B=$1; PY=${PY:-python3}; export BRAID_CLUSTER=$(mktemp -d /dev/shm/braid-case-XXXX)
$B up --detach --dir $BRAID_CLUSTER >/dev/null; trap '$B down --dir $BRAID_CLUSTER; rm -rf $BRAID_CLUSTER' EXIT
cat > $BRAID_CLUSTER/aio.py <<'P'
import asyncio
import braidfs

async def main():
    client = braidfs.AsyncClient()
    async with client.open("braid://main/async", "w+") as file:
        await file.write(b"0123456789")
        return await asyncio.gather(*(file.pread(2, offset) for offset in (0, 4, 8)))

assert asyncio.run(main()) == [b"01", b"45", b"89"]
P
n=0; for i in $(seq ${RUNS:-60}); do timeout 60 $PY $BRAID_CLUSTER/aio.py >/dev/null 2>&1 || n=$((n+1)); done 2>/dev/null
echo "failed: $n of ${RUNS:-60}"
[ "$n" = 0 ]
