/* A module for `braid run wasm` that merges: it counts lines, 16 bytes at a time.
 *
 *     clang --target=wasm32 -O2 -msimd128 -nostdlib -Wl,--no-entry contrib/methods/lines.c -o lines.wasm
 *     braid run wasm braid://main/log module=./lines.wasm
 */

#define BRAID_IMPORT(name) __attribute__((import_module("braid"), import_name(name)))
#define BRAID_EXPORT(name) __attribute__((export_name(name)))

typedef unsigned char u8;
typedef unsigned long long u64;
typedef u8 u8x16 __attribute__((vector_size(16), aligned(1)));

BRAID_IMPORT("emit") void emit(const void *at, unsigned length);
BRAID_IMPORT("fail") void fail(const void *at, unsigned length);

static u8 input[1 << 20];
static u64 lines;

BRAID_EXPORT("braid_abi_1") void braid_abi_1(void) {}

/* Where the next input is to be written: there is never more than one. */
BRAID_EXPORT("alloc") void *alloc(unsigned length) {
    if (length > sizeof input)
        fail("a record is longer than 1 MiB", 29);
    return input;
}

/* Whole records; `offset` is the place of the first byte in the file. */
BRAID_EXPORT("block") void block(const u8 *at, unsigned length, u64 offset) {
    const u8 *end = at + length;
    (void)offset;
    while (end - at >= 16) {
        /* A byte of `found` counts to 255 before it is added up. */
        u8x16 found = {0};
        for (int i = 0; i < 255 && end - at >= 16; i++, at += 16)
            found -= (u8x16)(*(const u8x16 *)at == (u8)'\n');
        for (int i = 0; i < 16; i++)
            lines += found[i];
    }
    for (; at < end; at++)
        lines += *at == '\n';
}

/* Another instance's partial answer. */
BRAID_EXPORT("merge") void merge(const u64 *at, unsigned length) {
    if (length != sizeof lines)
        fail("a partial answer has 8 bytes", 28);
    lines += *at;
}

BRAID_EXPORT("finish") void finish(void) {
    emit(&lines, sizeof lines);
}

/* The answer for people. */
BRAID_EXPORT("answer") void answer(void) {
    char text[21];
    char *at = text + sizeof text;
    u64 left = lines;
    *--at = '\n';
    do
        *--at = (char)('0' + left % 10);
    while (left /= 10);
    emit(at, (unsigned)(text + sizeof text - at));
}
