/* The first four phases of the Andrew benchmark (Howard et al., 1988), in one process and one after another:
 * directories are made, files are copied there, all attributes are looked at, all bytes are read. What is
 * between the phases and the files is either the kernel, or libnfs, an NFS client in user space, so that the
 * same program works on any mount and on an NFS server that no kernel here can mount.
 *
 * usage: andrew SOURCE DIRECTORY        DIRECTORY must not be there
 *        andrew SOURCE nfs://HOST/EXPORT?OPTIONS DIRECTORY
 * Prints the seconds of each phase.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <nfsc/libnfs.h>

enum { NAMES_MAX = 100000, PIECE = 1 << 20 };

static struct nfs_context *nfs; /* NULL: system calls */
static char *directories[NAMES_MAX], *files[NAMES_MAX];
static int directory_count, file_count;
static char piece[PIECE];

static void failed(const char *what, const char *path) {
    fprintf(stderr, "andrew: %s %s: %s\n", what, path, nfs ? nfs_get_error(nfs) : strerror(errno));
    exit(1);
}

static char *joined(const char *above, const char *name) {
    char *path;
    if (asprintf(&path, "%s/%s", above, name) < 0) abort();
    return path;
}

/* All below a local directory, by names relative to `root`. */
static void collect(const char *root, const char *below) {
    char *at = joined(root, below);
    DIR *listing = opendir(at);
    if (!listing) failed("list", at);
    for (struct dirent *entry; (entry = readdir(listing));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        char *name = *below ? joined(below, entry->d_name) : strdup(entry->d_name), *path = joined(root, name);
        struct stat found;
        if (lstat(path, &found)) failed("stat", path);
        if (directory_count == NAMES_MAX || file_count == NAMES_MAX) abort();
        if (S_ISDIR(found.st_mode)) {
            directories[directory_count++] = name;
            collect(root, name);
        } else {
            files[file_count++] = name;
        }
        free(path);
    }
    closedir(listing);
    free(at);
}

static void make_directory(const char *path) {
    if (nfs ? nfs_mkdir(nfs, path) : mkdir(path, 0755)) failed("mkdir", path);
}

static void copy(const char *from, const char *to) {
    int source = open(from, O_RDONLY), target = -1;
    struct nfsfh *handle = NULL;
    if (source < 0) failed("open", from);
    if (nfs ? nfs_creat(nfs, to, 0644, &handle) : (target = open(to, O_WRONLY | O_CREAT | O_EXCL, 0644)) < 0) failed("create", to);
    for (ssize_t got; (got = read(source, piece, PIECE));) {
        if (got < 0) failed("read", from);
        for (ssize_t done = 0; done < got;) {
            ssize_t put = nfs ? nfs_write(nfs, handle, got - done, piece + done) : write(target, piece + done, got - done);
            if (put < 0) failed("write", to);
            done += put;
        }
    }
    close(source);
    if (nfs ? nfs_close(nfs, handle) : close(target)) failed("close", to);
}

/* Looks at the attributes of all below. Returns the bytes of its files. */
static uint64_t scan(const char *at) {
    uint64_t bytes = 0;
    if (nfs) {
        struct nfsdir *listing;
        if (nfs_opendir(nfs, at, &listing)) failed("list", at);
        /* NFS lists names with their attributes: nothing more has to be asked. */
        for (struct nfsdirent *entry; (entry = nfs_readdir(nfs, listing));) {
            if (!strcmp(entry->name, ".") || !strcmp(entry->name, "..")) continue;
            if (S_ISDIR(entry->mode)) {
                char *path = joined(at, entry->name);
                bytes += scan(path);
                free(path);
            } else {
                bytes += entry->size;
            }
        }
        nfs_closedir(nfs, listing);
        return bytes;
    }
    DIR *listing = opendir(at);
    if (!listing) failed("list", at);
    for (struct dirent *entry; (entry = readdir(listing));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        char *path = joined(at, entry->d_name);
        struct stat found;
        if (lstat(path, &found)) failed("stat", path);
        bytes += S_ISDIR(found.st_mode) ? scan(path) : (uint64_t)found.st_size;
        free(path);
    }
    closedir(listing);
    return bytes;
}

static uint64_t read_all(const char *path) {
    int source = -1;
    struct nfsfh *handle = NULL;
    uint64_t bytes = 0;
    if (nfs ? nfs_open(nfs, path, O_RDONLY, &handle) : (source = open(path, O_RDONLY)) < 0) failed("open", path);
    for (ssize_t got; (got = nfs ? nfs_read(nfs, handle, PIECE, piece) : read(source, piece, PIECE));) {
        if (got < 0) failed("read", path);
        bytes += got;
    }
    if (nfs ? nfs_close(nfs, handle) : close(source)) failed("close", path);
    return bytes;
}

static void phase(const char *name) {
    static struct timespec before;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (name) printf("%s %.4f\n", name, (now.tv_sec - before.tv_sec) + (now.tv_nsec - before.tv_nsec) / 1e9);
    before = now;
}

int main(int count, char **arguments) {
    if (count != 3 && count != 4) {
        fprintf(stderr, "usage: andrew SOURCE [nfs://HOST/EXPORT?OPTIONS] DIRECTORY\n");
        return 2;
    }
    const char *source = arguments[1], *root = arguments[count - 1];
    collect(source, "");
    if (count == 4) {
        nfs = nfs_init_context();
        struct nfs_url *url = nfs ? nfs_parse_url_dir(nfs, arguments[2]) : NULL;
        if (!url || nfs_mount(nfs, url->server, url->path)) failed("mount", arguments[2]);
    }
    phase(NULL);
    make_directory(root);
    for (int n = 0; n < directory_count; n++) make_directory(joined(root, directories[n]));
    phase("MakeDir");
    for (int n = 0; n < file_count; n++) copy(joined(source, files[n]), joined(root, files[n]));
    phase("Copy");
    uint64_t scanned = scan(root);
    phase("ScanDir");
    uint64_t bytes = 0;
    for (int n = 0; n < file_count; n++) bytes += read_all(joined(root, files[n]));
    phase("ReadAll");
    if (scanned != bytes) {
        fprintf(stderr, "andrew: the files have %llu bytes, and %llu were read\n", (unsigned long long)scanned, (unsigned long long)bytes);
        return 1;
    }
    return 0;
}
