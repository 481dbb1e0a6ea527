#!/bin/bash
# Ctrl-C in `with ...open(...) as f: f.write(...)`: KeyboardInterrupt is replaced by OSError EBUSY from
# close(), so `except KeyboardInterrupt` misses it and `except Exception` swallows it.
B=$1; PY=${PY:-python3}; export BRAID_CLUSTER=$(mktemp -d /dev/shm/braid-case-XXXX)
$B up --detach --dir $BRAID_CLUSTER >/dev/null; trap '$B down --dir $BRAID_CLUSTER; rm -rf $BRAID_CLUSTER' EXIT
$PY - <<'P'
import os, signal, threading, time, fsspec, braidfs, random
def later(s): time.sleep(s); os.kill(os.getpid(), signal.SIGINT)
bad = False; fs = fsspec.filesystem("braid"); client = braidfs.Client(); block = b"y" * (16 << 20)
for what in ("fsspec wb", "fsspec w+b", "Client w", "Client w buffered"):
    for i in range(4):
        t = threading.Thread(target=later, args=(0.3 + random.random() / 5,)); t.start()
        try:
            if what.startswith("fsspec"): h = fs.open("main/x", what.split()[1])
            else: h = client.open("braid://main/x", "w", **({"buffering": 1 << 20} if "buf" in what else {}))
            with h as f:
                for _ in range(10000): f.write(block); f.seek(0) if what != "fsspec wb" else None
        except KeyboardInterrupt: print(what, "-> KeyboardInterrupt (expected)")
        except Exception as e: bad = True; print(what, "->", type(e).__name__, str(e)[:90], "| context:", type(e.__context__).__name__)
        t.join()
raise SystemExit(bad)
P
