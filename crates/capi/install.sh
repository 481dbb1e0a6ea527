#!/bin/sh
# Makes libbraid.so of the archive that cargo built, and installs it with braid.h and braid.pc.
# Usage: install.sh ARCHIVE; PREFIX (default /usr/local), LIBDIR (PREFIX/lib) and DESTDIR as usual.
set -eu
archive=$1
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
destdir=${DESTDIR:-}
here=$(dirname "$0")
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")

mkdir -p "$destdir$libdir/pkgconfig" "$destdir$prefix/include"
# All of the archive's objects are asked for by the functions that C calls; what nobody needs is dropped.
undefined=$(sed -n 's/^ *\(braid_[a-z_]*\);$/-Wl,-u,\1/p' "$here/braid.map")
# shellcheck disable=SC2086
${CC:-cc} -shared -o "$destdir$libdir/libbraid.so.1" -Wl,-soname,libbraid.so.1 \
    "-Wl,--version-script,$here/braid.map" -Wl,--gc-sections -Wl,-z,relro,-z,now -Wl,--no-undefined \
    $undefined "$archive" -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
ln -sf libbraid.so.1 "$destdir$libdir/libbraid.so"
cp "$here/include/braid.h" "$destdir$prefix/include/braid.h"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@VERSION@|$version|" \
    "$here/braid.pc.in" >"$destdir$libdir/pkgconfig/braid.pc"
