# Two commands: `make demo` shows Braid at work, `make test` is everything CI checks.
SHELL := /bin/bash
CARGO ?= cargo
export RUST_BACKTRACE ?= 1
# Where cargo puts what it builds.
TARGET_DIR = $(shell $(CARGO) metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')

.PHONY: lab posix posix-suites mount-trees mount-files mount-soak mount-fsx mount-peers setup-mount andrew demo test quick python wheel cases setup setup-etcd setup-python setup-full store-full store-model index-memory many-files build format lint clippy docs units fuzz-smoke fuzz-datagram setup-wireshark wireshark kill-loop kill-managers rounds three-hosts three-managers wire-capture upgrade capi setup-capi setup-wasm capi-valgrind send-ways perf soak udp clean

## A whole cluster on this machine: files in and out, a drive killed, read degraded, rebuilt, compared.
demo: build
	"$(TARGET_DIR)/release/braid" demo $(FILES)

## Format, lints, docs, unit, property and end-to-end tests, the Python package, fuzz smoke.
test: setup format clippy docs units python fuzz-smoke

## While working: all but the slow tests (real processes, the store's storms), in a few minutes.
quick: setup setup-etcd setup-wasm format clippy
	$(CARGO) test --workspace --exclude braid-capi --exclude braid-store --exclude braid-cli --exclude braid-lab --locked
	$(CARGO) test -p braid-capi -p braid-store -p braid-cli -p braid-lab --lib --bins --locked

# What shows datagrams (contrib/wireshark).
setup-wireshark:
	@{ command -v tshark && command -v dumpcap; } >/dev/null || \
	{ apt-get update && apt-get install -y --no-install-recommends tshark; }

## By hand: the Wireshark dissector on a capture of every kind of datagram, against what it showed before.
wireshark: setup-wireshark
	contrib/wireshark/try.sh

# What a fresh Debian machine with Rust may lack: a C linker, and the protobuf compiler for etcd's client.
setup:
	@{ command -v cc && command -v protoc && test -f /usr/include/google/protobuf/api.proto; } >/dev/null || \
	{ apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev protobuf-compiler libprotobuf-dev; }

# The etcd on which the tests of several managers run.
setup-etcd:
	@{ command -v etcd && command -v etcdctl; } >/dev/null || \
	{ apt-get update && apt-get install -y --no-install-recommends etcd-server etcd-client; }

# The binary without debug sections; these are beside it, in braid.debug, where debuggers and backtraces find
# them.
build: setup
	$(CARGO) build --release --locked -p braid-cli
	tools/split-debug.sh "$(TARGET_DIR)/release/braid"

## The binary of experiments (docs/bench.md): `braid-lab bench`, `braid-lab sim swift-1991`, `braid-lab demo`.
lab: setup
	$(CARGO) build --release --locked -p braid-lab

format:
	$(CARGO) fmt --all --check

lint: clippy
	$(CARGO) test --locked -p braid-tidy

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

units: posix-suites setup-etcd setup-capi setup-wasm
	BRAID_POSIX_SUITES="$(TARGET_DIR)/posix" BRAID_STORE_MODEL_SECONDS=$${BRAID_STORE_MODEL_SECONDS:-20} \
	tools/test-lanes.sh $(CARGO)

# The suites that a mount must pass (docs/posix.md). Each is built once, quickly: they wait for the mount.
posix-suites: setup
	for suite in pjdfstest@0.2.2 fsx@0.3.2; do \
	  test -x "$(TARGET_DIR)/posix/bin/$${suite%@*}" || \
	  CARGO_TARGET_DIR="$(TARGET_DIR)/posix/build" $(CARGO) install --quiet --debug --locked --root "$(TARGET_DIR)/posix" "$$suite" || exit 1; \
	done

## A mount against the world's own suites, as root.
posix: posix-suites
	BRAID_POSIX_SUITES="$(TARGET_DIR)/posix" $(CARGO) test -p braid-cli --locked --test e2e -- --nocapture posix::

# The Python package's own tests, with real processes.
python: wheel
	PATH="$(TARGET_DIR)/python/bin:$$PATH" python -m pytest --quiet -rs crates/python/tests

# The Python package: a wheel with the products that the other tests have built. What its tests use of Python
# is pinned, in an environment below the target folder.
wheel: setup-python
	set -e; \
	environment="$(TARGET_DIR)/python"; \
	test -x "$$environment/bin/pip" || python3 -m venv "$$environment"; \
	export PATH="$$environment/bin:$$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1; \
	pip install --quiet -r crates/python/tests/requirements.txt; \
	BRAID_WHEEL_PROFILE=dev pip install --quiet --no-build-isolation --no-deps --force-reinstall .

# Debian has Python's venv apart.
setup-python: setup
	@python3 -c 'import ensurepip, venv' 2>/dev/null || \
	{ apt-get update && apt-get install -y --no-install-recommends python3-venv; }

## The C library: installs libbraid.so, braid.h and braid.pc; PREFIX=/usr/local, LIBDIR and DESTDIR as usual.
capi: setup
	$(CARGO) build --release --locked -p braid-capi
	PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" \
	crates/capi/install.sh "$(TARGET_DIR)/release/libbraid_capi.a"

# What the examples of modules are built with: Rust's library for WebAssembly, clang and its linker.
setup-wasm: setup
	@test -d "$$(rustc --print target-libdir --target wasm32-unknown-unknown)" || rustup target add wasm32-unknown-unknown || \
	echo "Rust has no target wasm32-unknown-unknown here: the example in Rust is not run"
	@{ command -v clang && command -v wasm-ld; } >/dev/null || \
	{ apt-get update && apt-get install -y --no-install-recommends clang lld; }

# What the tests of the C library need: a C++ compiler and pkg-config.
setup-capi: setup
	@{ command -v c++ && command -v pkg-config && command -v nm; } >/dev/null || \
	{ apt-get update && apt-get install -y --no-install-recommends g++ libc6-dev binutils pkg-config; }

## By hand: the C library's test programs under valgrind, which finds bad accesses and leaks.
capi-valgrind: setup-capi
	@command -v valgrind >/dev/null || { apt-get update && apt-get install -y --no-install-recommends valgrind libc6-dbg; }
	BRAID_CAPI_UNDER="valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite --fair-sched=yes" \
	$(CARGO) test --locked -p braid-cli -p braid-capi --test programs

# In the workspace's target folder: what both need is built once.
fuzz-smoke:
	CARGO_TARGET_DIR="$(TARGET_DIR)" $(CARGO) run --locked --manifest-path fuzz/Cargo.toml --bin smoke

## By hand: the client's tests and the end-to-end tests with data in datagrams.
udp: setup setup-etcd setup-wasm
	tools/udp.sh $(CARGO)

## By hand: N=10000000 datagrams that nobody would send, and N/10 sequences of events on a pair of endpoints,
## each of which must end in delivery or in an error; SEED repeats them.
fuzz-datagram: setup
	$(CARGO) build --release --locked --manifest-path fuzz/Cargo.toml --bin smoke
	smoke="$$($(CARGO) metadata --format-version 1 --no-deps --manifest-path fuzz/Cargo.toml | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')/release/smoke" && \
	"$$smoke" --only datagram $(or $(N),10000000) $(or $(SEED),1) && \
	"$$smoke" --only datagram_events $$(( $(or $(N),10000000) / 10 )) $(or $(SEED),1)

## By hand, for some hours, as root: what the other tests do for a short time, with a line for each:
## SEEDS=0..2000 of the torture, with programs on mounts and without, each mutant, the store's faults and
## model, rounds of killed processes, and mounts under a mixed load and fsx.
soak: setup setup-etcd posix-suites build
	SEEDS=$(or $(SEEDS),0..2000) BRAID="$(TARGET_DIR)/release/braid" FSX="$(TARGET_DIR)/posix/bin/fsx" \
	tools/soak.sh $(CARGO)

## By hand, as root: small inputs that failed once, one after another (tests/cases);
## BRAID_CASES="deep-tree full" runs these.
cases: wheel
	PY="$(TARGET_DIR)/python/bin/python" BRAID_CASES="$(BRAID_CASES)" tests/cases/run.sh "$(TARGET_DIR)/debug/braid"

## By hand: rounds of copy-and-compare while processes are killed; ROUNDS=200.
kill-loop: build
	tests/kill-loop.sh $(or $(ROUNDS),200)

## By hand: the same with three managers and their etcd, of which one, two or all are killed or stopped, with
## drives or without; ROUNDS=500 takes an hour. SEED repeats a sequence.
kill-managers: build setup-etcd
	tests/kill-managers.sh $(or $(ROUNDS),500) $(SEED)

## By hand: rounds of SIGKILL and SIGSTOP (writers, drives, manager) under eight writers of one file;
## ROUNDS=1000 takes a quarter of an hour.
rounds: setup
	BRAID_ROUNDS=$(or $(ROUNDS),1000) BRAID_ROUNDS_SEED=$(or $(SEED),1) \
	$(CARGO) test --locked -p braid-cli --test e2e -- --nocapture rounds::no_

## By hand, as root: the three managers of docs/operations.md in four network namespaces; first one is lost,
## then all.
three-managers: build
	tests/three-managers.sh

## By hand, as root: all packets of a cluster that does about all that there is are recorded, and searched for
## secrets, names, and what files of private and encrypted volumes hold.
wire-capture: build setup-etcd
	@{ command -v ip && command -v python3; } >/dev/null || \
	{ apt-get update && apt-get install -y --no-install-recommends iproute2 python3; }
	$(CARGO) build --release --locked -p braid-lab --example wire_capture
	tests/wire-capture.sh "$(TARGET_DIR)/release/braid" "$(TARGET_DIR)/release/examples/wire_capture"

## By hand, as root: the three hosts of docs/operations.md in three network namespaces.
three-hosts: build
	tests/three-hosts.sh

## By hand: a cluster of the last release is upgraded to this tree's build, and taken back, one process at a
## time, under load; OLD=REVISION is the release before: by default the newest tag.
upgrade: build
	tools/old-build.sh "$(TARGET_DIR)" $(OLD)
	tests/upgrade.sh "$(TARGET_DIR)/old/release/braid" "$(TARGET_DIR)/release/braid"

## By hand, as root: what programs take on a tree of many small files, and cargo on a crate, on a local ext4,
## on a mount, and on those of others that are installed (`make mount-peers`); FILES=20000, PEERS= for none.
mount-trees: build setup-mount
	PATH="$(TARGET_DIR)/peers:$$PATH" crates/lab/scripts/mount-trees.sh "$(TARGET_DIR)/release/braid" $(or $(FILES),20000)

## By hand, as root: large files and single small operations through a mount; MIB=1024.
mount-files: build setup-mount
	crates/lab/scripts/mount-files.sh "$(TARGET_DIR)/release/braid" $(or $(MIB),1024)

## By hand, as root: a mixed load on a mount, and whether memory stays flat; MINUTES=15.
mount-soak: build
	tests/mount-soak.sh "$(TARGET_DIR)/release/braid" $(or $(MINUTES),15) $(SEED)

## By hand, as root: a million random operations, each checked, on one mount, on two in turn, and while drives
## die; OPERATIONS=1000000 RUNS="one turns killed" SEED=...
mount-fsx: build posix-suites
	tests/mount-fsx.sh "$(TARGET_DIR)/release/braid" "$(TARGET_DIR)/posix/bin/fsx" $(or $(OPERATIONS),1000000) \
	$(or $(SEED),"$$RANDOM") $(if $(RUNS),"$(RUNS)")

## By hand, as root: the Andrew benchmark on a mount, locally, and through NFS; ROUNDS=5, NFS= for none.
andrew: build setup-mount
	@{ command -v make && command -v nfs-ls && command -v ganesha.nfsd && command -v rpcbind && \
	test -e /usr/include/nfsc/libnfs.h && ls /usr/lib/*/ganesha/libfsalvfs.so; } >/dev/null 2>&1 || \
	{ apt-get update && apt-get install -y --no-install-recommends make libnfs-dev libnfs-utils nfs-ganesha nfs-ganesha-vfs rpcbind; }
	ROUNDS=$(or $(ROUNDS),5) crates/lab/scripts/andrew.sh "$(TARGET_DIR)/release/braid"

# What the measurements of a mount need besides.
setup-mount: setup
	@{ command -v bc && command -v git && command -v mkfs.ext4; } >/dev/null || \
	{ apt-get update && apt-get install -y --no-install-recommends bc git e2fsprogs; }

## By hand, as root: installs what `make mount-trees` compares with: GlusterFS, and SeaweedFS if a recent Go
## is there (some minutes, and 5 GB of its caches).
mount-peers:
	@command -v glusterd >/dev/null || \
	{ apt-get update && apt-get install -y --no-install-recommends glusterfs-server glusterfs-client; }
	@command -v go >/dev/null || echo "without SeaweedFS: there is no Go"
	command -v go >/dev/null && ! test -x "$(TARGET_DIR)/peers/weed" || exit 0; \
	mkdir -p "$(TARGET_DIR)/peers/build" && cd "$(TARGET_DIR)/peers/build" && rm -f go.mod go.sum && \
	go mod init peers && go get -tool $(WEED) >said 2>&1 && go build -p 1 -ldflags='-s -w' -o ../weed $(firstword $(subst @, ,$(WEED)))

# Version 4.53.
WEED := github.com/seaweedfs/seaweedfs/weed@v0.0.0-20261109003541-7506e5f91cd6

## By hand: what reads cost drives by sendfile and by copies; takes 5 GB of memory for a minute.
send-ways: build
	crates/lab/scripts/send-ways.sh 9 "$(TARGET_DIR)/release/braid"

## By hand: small operations in two commits, in turn, and what moved by more than 3 %; OLD=main~1 NEW=HEAD.
perf: setup
	@command -v jq >/dev/null || { apt-get update && apt-get install -y --no-install-recommends jq; }
	crates/lab/scripts/perf.sh $(or $(OLD),HEAD~1) $(or $(NEW),HEAD)

# The tools that make an ext4 and an xfs.
setup-full: setup
	@{ command -v mkfs.ext4 && command -v mkfs.xfs; } >/dev/null || \
	{ apt-get update && apt-get install -y --no-install-recommends e2fsprogs xfsprogs; }

## By hand, as root: a store on small ext4 and xfs file systems. It is filled until it refuses, emptied,
## filled again, and then left without space that another process took.
store-full: setup-full
	$(CARGO) build --release --locked -p braid-lab --example fill_disk
	tests/store-full.sh "$(TARGET_DIR)/release/examples/fill_disk"

## By hand: the index's memory. A million objects with ten million extents are opened and served below 1 GiB.
## Takes 15 GB of disk for a while.
index-memory: setup
	$(CARGO) build --release --locked -p braid-lab --example index_memory
	place=$$(mktemp -d) && trap 'rm -rf "$$place"' EXIT && \
	"$(TARGET_DIR)/release/examples/index_memory" "$$place/store" 1000000 10 1 scattered 1024

## By hand: what ten million files cost the manager, and whether its rates stay the same as they grow;
## FILES=... Takes 4 GB of memory (PLACE=/dev/shm, or a directory on a disk) and some minutes.
many-files: setup
	$(CARGO) build --release --locked -p braid-lab --example many_files
	place=$$(mktemp -d -p $(or $(PLACE),/dev/shm)) && trap 'rm -rf "$$place"' EXIT && \
	"$(TARGET_DIR)/release/examples/many_files" "$$place" $(or $(FILES),10000000)

## By hand: ten minutes of random operations, crashes and faults; BRAID_STORE_MODEL_SEED=... repeats them.
store-model: setup
	BRAID_STORE_MODEL_SECONDS=600 $(CARGO) test --release --locked -p braid-store --test store -- --nocapture storm

clean:
	$(CARGO) clean
