#!/bin/sh
# Moves the debug sections of BINARY into BINARY.debug beside it. The binary names that file, so debuggers and
# its own backtraces find it; without it the program runs the same. Harmless to repeat: a binary without debug
# sections is left.
#
#   tools/split-debug.sh BINARY
set -eu
binary=$1
debug=$binary.debug
if ! readelf --sections --wide "$binary" | grep -q '\.debug_line'; then
    exit 0
fi
objcopy --only-keep-debug "$binary" "$debug"
chmod a-x "$debug"
# Replaced as a whole: the build's own copy, which may be the same file by another name, stays as it is.
objcopy --strip-debug --add-gnu-debuglink="$debug" "$binary" "$binary.new"
mv "$binary.new" "$binary"
