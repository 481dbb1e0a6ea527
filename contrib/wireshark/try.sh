#!/bin/bash
# Runs the dissector on datagrams.pcapng, real traffic of the transport's tests, and compares what it shows of
# each datagram with datagrams.txt. Needs tshark (`make setup-wireshark`).
#
#   contrib/wireshark/try.sh
#   contrib/wireshark/try.sh --shown      writes datagrams.txt anew, after a change of the dissector
#   contrib/wireshark/try.sh --anew       as root: captures the traffic anew, and writes both files
set -euo pipefail
cd "$(dirname "$0")"

command -v tshark >/dev/null || { echo "tshark is not here: the dissector was not tried"; exit 0; }

fields=(frame.number ip.dsfield.ecn)
while read -r field; do
    fields+=("$field")
done < <(sed -n 's/^f\.[a-z_]* = ProtoField\.[a-z0-9]*("\(braid-datagram[.a-z_]*\)".*/\1/p' braid_datagram.lua)

dissect() {
    local wanted=()
    for field in "${fields[@]}"; do wanted+=(-e "$field"); done
    tshark -r "$1" -X lua_script:braid_datagram.lua -o 'gui.column.format:"Protocol","%p","Info","%i"' 2>/dev/null
    # Of a long field the beginning.
    tshark -r "$1" -X lua_script:braid_datagram.lua -T fields -E header=y -E separator='|' "${wanted[@]}" \
        2>/dev/null | sed -E 's/([0-9a-f]{64})[0-9a-f]+/\1.../g'
}

# The traffic of some tests, in a network namespace of their own.
capture() {
    local binary pid
    binary=$(cd ../.. && cargo test -p braid-transport --test transport --locked --no-run --message-format=json 2>/dev/null |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1)
    unshare --net bash -euc '
        ip link set lo up
        dumpcap -q -i lo -f udp -w "$1" & pid=$!
        for step in {1..100}; do test -s "$1" && break; sleep 0.1; done
        for name in a_full who_ a_peer_that; do "$2" "datagrams::$name" --test-threads 1; done
        sleep 1; kill $pid; wait $pid || true' capture "$1" "$binary"
}

if [ "${1:-}" = --anew ]; then
    all=$(mktemp /tmp/braid-datagrams-XXXXXX)
    trap 'rm -f "$all"' EXIT
    capture "$all"
    tshark -r "$all" -w datagrams.pcapng -F pcapng 2>/dev/null
fi
if [ -n "${1:-}" ]; then
    dissect datagrams.pcapng >datagrams.txt
fi

dissected=$(dissect datagrams.pcapng)
diff -u datagrams.txt - <<<"$dissected" || { echo "the dissector shows something else"; exit 1; }
for kind in Open Retry Accept Refused Versions Unknown Data; do
    grep -q "^BRAID $kind " <<<"$dissected" || { echo "the capture has no $kind"; exit 1; }
done
echo "the dissector shows $(grep -c ^BRAID datagrams.txt) datagrams, of all kinds, as before"
