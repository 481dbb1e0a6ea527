/*
 * Every function of braid.h, against the cluster that BRAID_CLUSTER names. Its argument is a directory of
 * its own on that cluster; the second one a rate in bytes a second that can be promised.
 */
#include <braid.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "line %d: %s: errno %d, %s\n", __LINE__, #what, errno, braid_error());           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* The call failed with this errno, and its message has these words. */
#define FAILED(call, number, words)                                                                          \
    do {                                                                                                     \
        errno = 0;                                                                                           \
        CHECK(call);                                                                                         \
        CHECK(errno == (number));                                                                            \
        CHECK(strstr(braid_error(), words) != NULL);                                                         \
    } while (0)

static const char *place;
static braid_client *client;

/* A name in this program's own directory; the next but three calls use its memory again. */
static const char *at(const char *name)
{
    static char names[4][512];
    static int next;
    next = (next + 1) % 4;
    snprintf(names[next], sizeof names[next], "%s/%s", place, name);
    return names[next];
}

static braid_file *opened(const char *name, int flags)
{
    braid_file *file = braid_open(client, at(name), flags, NULL);
    CHECK(file != NULL);
    return file;
}

static void fill(unsigned char *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)((i * 31 + i / 251 + seed) & 0xff);
}

static void names(void)
{
    braid_facts stat;
    CHECK(braid_mkdir(client, at("dir"), 0750) == 0);
    CHECK(braid_stat(client, at("dir"), &stat) == 0);
    CHECK(S_ISDIR(stat.mode) && (stat.mode & 07777) == 0750 && stat.uid == getuid());
    FAILED(braid_mkdir(client, at("dir"), 0) == -1, EEXIST, "dir");
    CHECK(braid_close(opened("dir/b", O_WRONLY | O_CREAT)) == 0);
    CHECK(braid_close(opened("dir/a", O_WRONLY | O_CREAT | O_EXCL)) == 0);
    FAILED(braid_open(client, at("dir/a"), O_WRONLY | O_CREAT | O_EXCL, NULL) == NULL, EEXIST, "dir/a");
    FAILED(braid_rmdir(client, at("dir")) == -1, ENOTEMPTY, "dir");
    FAILED(braid_unlink(client, at("dir")) == -1, EISDIR, "dir");
    FAILED(braid_rmdir(client, at("dir/a")) == -1, ENOTDIR, "dir/a");
    FAILED(braid_opendir(client, at("dir/a")) == NULL, ENOTDIR, "dir/a");
    FAILED(braid_stat(client, at("none"), &stat) == -1, ENOENT, "none");
    FAILED(braid_stat(client, "braid://", &stat) == -1, EINVAL, "volume");

    braid_directory *directory = braid_opendir(client, at("dir"));
    CHECK(directory != NULL);
    braid_entry entry;
    CHECK(braid_readdir(directory, &entry) == 1 && strcmp(entry.name, "a") == 0);
    CHECK(S_ISREG(entry.stat.mode) && entry.stat.size == 0);
    CHECK(braid_readdir(directory, &entry) == 1 && strcmp(entry.name, "b") == 0);
    CHECK(braid_readdir(directory, &entry) == 0 && braid_readdir(directory, &entry) == 0);
    CHECK(braid_closedir(directory) == 0);

    CHECK(braid_rename(client, at("dir/a"), at("dir/b")) == 0);
    CHECK(braid_truncate(client, at("dir/b"), 1000) == 0);
    CHECK(braid_stat(client, at("dir/b"), &stat) == 0 && stat.size == 1000);
    CHECK(braid_unlink(client, at("dir/b")) == 0);
    CHECK(braid_rmdir(client, at("dir")) == 0);

    braid_volume rows[2];
    ssize_t volumes = braid_volumes(client, rows, 2);
    CHECK(volumes >= 1 && strcmp(rows[0].name, "main") == 0 && rows[0].unit_bytes > 0);
    CHECK(braid_volumes(client, NULL, 0) == volumes);
}

static void bytes(void)
{
    enum { LENGTH = 3000000 };
    unsigned char *out = malloc(LENGTH), *in = malloc(LENGTH);
    CHECK(out && in);
    fill(out, LENGTH, 1);
    braid_open_options options;
    memset(&options, 0, sizeof options);
    options.layout = "raid5 2+1 unit=64K";
    options.mode = 0600;
    braid_file *file = braid_open(client, at("bytes"), O_RDWR | O_CREAT | O_TRUNC, &options);
    CHECK(file != NULL);
    CHECK(braid_stripe_bytes(file) == 128 << 10);
    CHECK(braid_pwrite(file, out, LENGTH, 0) == LENGTH);
    CHECK(braid_sync(file) == 0);
    memset(in, 0, LENGTH);
    CHECK(braid_pread(file, in, LENGTH, 0) == LENGTH && memcmp(in, out, LENGTH) == 0);
    CHECK(braid_pread(file, in, 100, LENGTH - 40) == 40);
    CHECK(braid_pread(file, in, 100, LENGTH + 5) == 0);
    CHECK(braid_pread(file, NULL, 0, 0) == 0);

    braid_facts stat;
    CHECK(braid_fstat(file, &stat) == 0);
    CHECK(stat.size == LENGTH && S_ISREG(stat.mode) && (stat.mode & 07777) == 0600 && stat.links == 1);

    /* Vectors: what follows each other in the file. */
    struct iovec vectors[] = {{out + 7, 1000}, {out + 7 + 1000, 0}, {out + 1007, 2000}, {out + 3007, 600000}};
    CHECK(braid_pwritev(file, vectors, 4, 500007) == 603000);
    struct iovec back[] = {{in, 1500}, {in + 1500, 601500}};
    CHECK(braid_preadv(file, back, 2, 500007) == 603000 && memcmp(in, out + 7, 603000) == 0);

    /* Lists: anywhere. */
    braid_extent list[] = {{out, 10, 2000000}, {out + 10, 10, 2000010}, {out + 20, 300000, 100}, {out, 1, 0}};
    CHECK(braid_write_list(file, list, 4) == 300021);
    braid_extent again[] = {{in, 20, 2000000}, {in + 20, 300000, 100}, {in + 300020, 50, LENGTH - 20}};
    CHECK(braid_read_list(file, again, 3) == 300040 && memcmp(in, out, 300020) == 0);

    uint64_t began = 0;
    CHECK(braid_append(file, "tail", 4, &began) == 4 && began == LENGTH);
    CHECK(braid_append(file, "!", 1, NULL) == 1);
    CHECK(braid_pread(file, in, 10, LENGTH) == 5 && memcmp(in, "tail!", 5) == 0);
    CHECK(braid_ftruncate(file, 10) == 0 && braid_fstat(file, &stat) == 0 && stat.size == 10);
    CHECK(braid_close(file) == 0);
    FAILED(braid_open(client, at("bytes"), O_RDONLY | O_APPEND, NULL) == NULL, EINVAL, "braid_append");
    options.layout = "raid99";
    FAILED(braid_open(client, at("more"), O_RDWR | O_CREAT, &options) == NULL, EINVAL, "raid99");

    file = opened("bytes", O_RDONLY);
    FAILED(braid_pwrite(file, out, 1, 0) == -1, EBADF, "writing");
    FAILED(braid_pread(file, NULL, 1, 0) == -1, EFAULT, "NULL");
    FAILED(braid_preadv(file, vectors, -1, 0) == -1, EINVAL, "-1");
    CHECK(braid_lateness(file, NULL) == 0);
    CHECK(braid_close(file) == 0);
    free(out);
    free(in);
}

static void requests(void)
{
    enum { PIECE = 200000, PIECES = 12 };
    unsigned char *out = malloc(PIECE * PIECES), *in = malloc(PIECE * PIECES);
    CHECK(out && in);
    fill(out, PIECE * PIECES, 2);
    braid_file *file = opened("requests", O_RDWR | O_CREAT);
    braid_request *running[PIECES];
    for (int i = 0; i < PIECES; i++) {
        braid_extent piece = {out + i * PIECE, PIECE, (uint64_t)i * PIECE};
        running[i] = braid_submit_write(file, &piece, 1);
        CHECK(running[i] != NULL);
    }
    for (int left = PIECES; left > 0; left--) {
        ssize_t done = braid_wait_any(running, PIECES, -1);
        CHECK(done >= 0 && done < PIECES && running[done] != NULL);
        CHECK(braid_done(running[done]) == 1);
        CHECK(braid_wait(running[done]) == PIECE);
        running[done] = NULL;
    }
    FAILED(braid_wait_any(running, PIECES, 0) == -1, EINVAL, "no request");
    braid_request *sync = braid_submit_sync(file);
    CHECK(sync != NULL && braid_wait(sync) == 0);
    braid_extent whole = {in, PIECE * PIECES, 0};
    braid_request *read = braid_submit_read(file, &whole, 1);
    CHECK(read != NULL);
    /* Closing waits for what is under way. */
    CHECK(braid_close(file) == 0);
    CHECK(braid_done(read) == 1 && braid_wait(read) == PIECE * PIECES);
    CHECK(memcmp(in, out, PIECE * PIECES) == 0);
    file = opened("requests", O_RDONLY);
    braid_request *refused = braid_submit_write(file, &whole, 1);
    CHECK(refused != NULL);
    FAILED(braid_wait(refused) == -1, EBADF, "writing");
    CHECK(braid_close(file) == 0);
    free(out);
    free(in);
}

/* Several writers of one file, each with stripes of its own. */
static void ranges(void)
{
    braid_file *parts[3];
    braid_open_options options;
    memset(&options, 0, sizeof options);
    options.layout = "raid5 2+1 unit=64K";
    CHECK(braid_close(braid_open(client, at("ranges"), O_WRONLY | O_CREAT, &options)) == 0);
    const uint64_t share = 128 << 10;
    unsigned char *out = malloc(share * 3);
    fill(out, share * 3, 3);
    for (unsigned i = 0; i < 3; i++) {
        options.range_from = i * share;
        options.range_to = (i + 1) * share;
        parts[i] = braid_open(client, at("ranges"), O_WRONLY, &options);
        CHECK(parts[i] != NULL);
    }
    for (unsigned i = 0; i < 3; i++)
        CHECK(braid_pwrite(parts[i], out + i * share, share, i * share) == (ssize_t)share);
    FAILED(braid_pwrite(parts[1], out, 1, 0) == -1, EINVAL, "opened to write");
    for (unsigned i = 0; i < 3; i++)
        CHECK(braid_close(parts[i]) == 0);
    braid_file *file = opened("ranges", O_RDONLY);
    unsigned char *in = malloc(share * 3);
    CHECK(braid_pread(file, in, share * 3, 0) == (ssize_t)share * 3 && memcmp(in, out, share * 3) == 0);
    CHECK(braid_close(file) == 0);
    free(in);
    free(out);
    options.range_to = 0;
    FAILED(braid_open(client, at("ranges"), O_WRONLY, &options) == NULL, EINVAL, "range_to");
}

static void rates(uint64_t rate)
{
    braid_open_options options;
    memset(&options, 0, sizeof options);
    options.rate = 1000000000000;
    FAILED(braid_open(client, at("rate"), O_WRONLY | O_CREAT, &options) == NULL, EAGAIN, "free");
    options.rate = rate;
    options.rate_seconds = 60;
    braid_file *file = braid_open(client, at("rate"), O_WRONLY | O_CREAT, &options);
    CHECK(file != NULL);
    CHECK(braid_pwrite(file, "frame", 5, 0) == 5);
    braid_account kept;
    CHECK(braid_lateness(file, &kept) == 1 && kept.bytes == 5);
    CHECK(braid_close(file) == 0);
}

enum { THREADS = 6, ROUNDS = 20, BLOCK = 5000 };
static braid_file *together;

static void *thread(void *number)
{
    unsigned mine = *(unsigned *)number;
    unsigned char out[BLOCK], in[BLOCK];
    char name[64], words[64];
    snprintf(words, sizeof words, "none-%u", mine);
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t offset = (uint64_t)(round * THREADS + mine) * BLOCK;
        fill(out, BLOCK, mine + round);
        CHECK(braid_pwrite(together, out, BLOCK, offset) == BLOCK);
        CHECK(braid_pread(together, in, BLOCK, offset) == BLOCK && memcmp(in, out, BLOCK) == 0);
        /* Each thread has the message of its own failure. */
        braid_facts stat;
        snprintf(name, sizeof name, "braid://main/none-%u", mine);
        FAILED(braid_stat(client, name, &stat) == -1, ENOENT, words);
    }
    return NULL;
}

static void threads(void)
{
    together = opened("threads", O_RDWR | O_CREAT);
    pthread_t all[THREADS];
    unsigned numbers[THREADS];
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 1 << 20) == 0);
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&all[i], &small, thread, &numbers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
    CHECK(pthread_attr_destroy(&small) == 0);
    CHECK(braid_close(together) == 0);
}

/* What is the parent's is refused in the child, which connects anew. */
static void forks(void)
{
    braid_file *file = opened("forks", O_RDWR | O_CREAT);
    CHECK(braid_pwrite(file, "parent", 6, 0) == 6 && braid_sync(file) == 0);
    braid_extent rest = {"?", 1, 6};
    braid_request *request = braid_submit_write(file, &rest, 1);
    braid_directory *directory = braid_opendir(client, place);
    CHECK(request != NULL && directory != NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char in[6];
        braid_facts stat;
        braid_entry entry;
        FAILED(braid_pread(file, in, 6, 0) == -1, ECHILD, "fork");
        FAILED(braid_stat(client, place, &stat) == -1, ECHILD, "fork");
        FAILED(braid_readdir(directory, &entry) == -1, ECHILD, "fork");
        FAILED(braid_done(request) == -1, ECHILD, "fork");
        FAILED(braid_wait(request) == -1, ECHILD, "fork");
        FAILED(braid_close(file) == -1, ECHILD, "fork");
        FAILED(braid_closedir(directory) == -1, ECHILD, "fork");
        FAILED(braid_disconnect(client) == -1, ECHILD, "fork");
        client = braid_connect(NULL);
        CHECK(client != NULL);
        file = opened("forks", O_RDONLY);
        CHECK(braid_pread(file, in, 6, 0) == 6 && memcmp(in, "parent", 6) == 0);
        CHECK(braid_close(file) == 0 && braid_disconnect(client) == 0);
        /* What is the parent's is left where it is, which valgrind would take for leaks. */
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(braid_wait(request) == 1 && braid_closedir(directory) == 0);
    CHECK(braid_close(file) == 0);
}

static void connecting(void)
{
    FAILED(braid_connect("/nowhere") == NULL, ENOENT, "/nowhere");
    FAILED(braid_connect_token("127.0.0.1:1", "braid1.client.none") == NULL, EINVAL, "token");
    FAILED(braid_connect_token(NULL, "x") == NULL, EFAULT, "managers");
    const char *managers = getenv("TEST_MANAGERS"), *token = getenv("TEST_TOKEN");
    CHECK(managers != NULL && token != NULL);
    braid_client *other = braid_connect_token(managers, token);
    CHECK(other != NULL);
    braid_facts stat;
    CHECK(braid_stat(other, place, &stat) == 0);
    CHECK(braid_disconnect(other) == 0);
    CHECK(braid_disconnect(NULL) == 0 && braid_close(NULL) == 0 && braid_closedir(NULL) == 0);
    FAILED(braid_stat(NULL, place, &stat) == -1, EFAULT, "client");
    FAILED(braid_sync(NULL) == -1, EFAULT, "file");
    FAILED(braid_wait(NULL) == -1, EFAULT, "request");
}

int main(int count, char **arguments)
{
    CHECK(count == 3);
    place = arguments[1];
    CHECK(strcmp(braid_error(), "") == 0 && braid_version()[0] != '\0');
    client = braid_connect(NULL);
    CHECK(client != NULL);
    CHECK(braid_mkdir(client, place, 0) == 0);
    connecting();
    names();
    bytes();
    requests();
    ranges();
    rates(strtoull(arguments[2], NULL, 10));
    threads();
    forks();
    CHECK(braid_disconnect(client) == 0);
    return 0;
}
