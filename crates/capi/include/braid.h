/*
 * The client of Braid for C. The manual is docs/c.md.
 *
 * Functions that return a pointer return NULL on failure, others -1 unless they say otherwise. errno is set
 * then, and braid_error() has the message. All pointers to clients, files and requests are used only in the
 * process that made them: after a fork the child gets ECHILD for the parent's.
 */

#ifndef BRAID_H
#define BRAID_H

/* Made by cbindgen: BRAID_HEADER=anew cargo test -p braid-capi --test header */

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/**
 * A method runs where it takes less time.
 */
#define BRAID_AT_CHEAPEST 0

/**
 * A method runs at the drives; fails if none may run it.
 */
#define BRAID_AT_DRIVES 1

/**
 * A method runs here: the file is read.
 */
#define BRAID_AT_CLIENT 2

/**
 * The answer of a method.
 */
typedef struct braid_answer braid_answer;

/**
 * A client of one cluster. Any number of threads may use it at once.
 */
typedef struct braid_client braid_client;

/**
 * A directory that is listed, by one thread at a time.
 */
typedef struct braid_directory braid_directory;

/**
 * An open file. Any number of threads may use it at once; it has no position.
 */
typedef struct braid_file braid_file;

/**
 * A request under way, or done and not yet waited for.
 */
typedef struct braid_request braid_request;

/**
 * Facts about a file, directory or other object. Fields that later versions add take the place of
 * `reserved`.
 */
typedef struct braid_facts {
  /**
   * Its number, which stays when its name changes.
   */
  uint64_t number;
  /**
   * Size in bytes, as of the last braid_sync or braid_close of those who write it.
   */
  uint64_t size;
  /**
   * Kind and permission bits, as in `st_mode`: S_ISDIR and so on apply.
   */
  uint32_t mode;
  /**
   * Number of names.
   */
  uint32_t links;
  /**
   * User id of the owner.
   */
  uint32_t uid;
  /**
   * Group id of the owner.
   */
  uint32_t gid;
  /**
   * Time of the last read, as far as it was reported, in nanoseconds since 1970, as all times here.
   */
  int64_t accessed_ns;
  /**
   * Time of the last change of its bytes.
   */
  int64_t modified_ns;
  /**
   * Time of the last change of anything about it.
   */
  int64_t changed_ns;
  /**
   * Time of creation.
   */
  int64_t created_ns;
  /**
   * Zeros, for later versions.
   */
  uint64_t reserved[4];
} braid_facts;

/**
 * An entry of a directory.
 */
typedef struct braid_entry {
  /**
   * Its name, which stays until the next call for this directory.
   */
  const char *name;
  /**
   * Facts about it, and not about what a symbolic link leads to.
   */
  struct braid_facts stat;
} braid_entry;

/**
 * Options for opening a file. Zeros are the defaults: fill it with zeros, and set what is asked for.
 */
typedef struct braid_open_options {
  /**
   * The layout of a new file, such as "raid5 4+1 unit=64K"; NULL: that of the directory or volume.
   */
  const char * layout;
  /**
   * Permission bits of a new file; 0: 0644.
   */
  uint32_t mode;
  /**
   * Number of drives that may be lost while the reserved rate is kept.
   */
  uint32_t rate_survive;
  /**
   * The bytes that are written, if only a range of the file is: its first byte, a multiple of
   * braid_stripe_bytes. While all writers of a file name ranges, none of which have a stripe in common,
   * each writes as fast as if the file were its own.
   */
  uint64_t range_from;
  /**
   * One past the range's last byte; UINT64_MAX: without an end; 0: the whole file is written.
   */
  uint64_t range_to;
  /**
   * Data rate to reserve while the file is open, in bytes a second; 0: none. If it cannot be kept opening
   * fails with EAGAIN, and the message has what can be had instead.
   */
  uint64_t rate;
  /**
   * Seconds for which the rate is reserved at most; 0: 3600.
   */
  uint32_t rate_seconds;
  /**
   * Milliseconds in which a period's bytes have arrived; 0: 100.
   */
  uint32_t rate_period_ms;
  /**
   * Zeros, for later versions.
   */
  uint64_t reserved[8];
} braid_open_options;

/**
 * The account of a reserved rate.
 */
typedef struct braid_account {
  /**
   * Bytes that were delivered.
   */
  uint64_t bytes;
  /**
   * Periods in which something was asked for.
   */
  uint64_t periods;
  /**
   * Periods that were late, but for pauses.
   */
  uint64_t late_periods;
  /**
   * Most lateness, in nanoseconds.
   */
  uint64_t worst_ns;
  /**
   * Periods that were late by a drive's death, within the stated pause.
   */
  uint64_t paused_periods;
  /**
   * Most lateness in these, in nanoseconds.
   */
  uint64_t worst_pause_ns;
  /**
   * Zeros, for later versions.
   */
  uint64_t reserved[4];
} braid_account;

/**
 * A piece of memory and its place in a file.
 */
typedef struct braid_extent {
  /**
   * The memory, which is only read if the file is written.
   */
  void * buffer;
  /**
   * Its length in bytes.
   */
  size_t length;
  /**
   * Its first byte's offset in the file.
   */
  uint64_t offset;
} braid_extent;

/**
 * A volume. Fields that later versions add take the place of `reserved`.
 */
typedef struct braid_volume {
  /**
   * Its name, with a NUL behind it.
   */
  char name[72];
  /**
   * The layout of new files, such as "raid5 4+1", with a NUL behind it; "": the manager's default.
   */
  char layout[48];
  /**
   * Bytes of a unit of new files.
   */
  uint64_t unit_bytes;
  /**
   * Maximum sum of its files' sizes, in bytes; 0: no quota.
   */
  uint64_t quota_bytes;
  /**
   * Sum of its files' sizes, in bytes.
   */
  uint64_t file_bytes;
  /**
   * Number of its files.
   */
  uint64_t files;
  /**
   * Zeros, for later versions.
   */
  uint64_t reserved[4];
} braid_volume;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The library's version, such as "0.1.0".
 */
const char *braid_version(void);

/**
 * The message of this thread's last call that failed: what was wrong, and where something can be done,
 * what. It stays until the thread's next call that fails; "" if none has failed yet.
 */
const char *braid_error(void);

/**
 * Connects to a cluster: a directory made by `braid up`, or a cluster.toml. With NULL it is the one that
 * BRAID_CLUSTER names, else the user's own. Fails in seconds if no manager is there. The client is ended by
 * braid_disconnect.
 */
struct braid_client *braid_connect(const char * cluster);

/**
 * Connects to the managers at these addresses, HOST:PORT with commas between, with a token of the cluster.
 * Keys of encrypted volumes come from the environment (BRAID_VOLUME_KEYS).
 */
struct braid_client *braid_connect_token(const char * managers, const char * token);

/**
 * Ends a client, which is not used again; NULL is allowed. Files, directories and requests that it made are
 * closed and waited for before: they keep the connection until then.
 */
int braid_disconnect(struct braid_client *client);

/**
 * The volumes, by name: as many as there is room for are put to `rows`. Returns how many there are.
 */
ssize_t braid_volumes(const struct braid_client *client, struct braid_volume * rows, size_t room);

/**
 * Begins to list a directory; braid_closedir ends that.
 */
struct braid_directory *braid_opendir(const struct braid_client *client, const char * name);

/**
 * The next entry, in the order of the names' bytes; there is none for "." and "..". Returns 1, 0 at the
 * end, or -1.
 */
int braid_readdir(struct braid_directory *directory, struct braid_entry *entry);

/**
 * Ends a listing; NULL is allowed.
 */
int braid_closedir(struct braid_directory *directory);

/**
 * Opens a file, "braid://VOLUME/PATH". The flags are O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL and
 * O_TRUNC, of fcntl.h; the options may be NULL. The file is closed by braid_close.
 */
struct braid_file *braid_open(const struct braid_client *client,
                              const char * name,
                              int flags,
                              const struct braid_open_options *options);

/**
 * Closes a file, whatever it returns; NULL is allowed. Waits for requests that are under way, and commits
 * the size.
 */
int braid_close(struct braid_file *file);

/**
 * Commits the size, so that others see it. The bytes are durable already when a write returns.
 */
int braid_sync(const struct braid_file *file);

/**
 * Facts about an open file; the size has this program's own writes.
 */
int braid_fstat(const struct braid_file *file, struct braid_facts *stat);

/**
 * Sets the size of an open file. What is cut off is gone; what is added reads as zeros.
 */
int braid_ftruncate(const struct braid_file *file, uint64_t size);

/**
 * Bytes of a stripe of the file: writes of whole multiples of them, from such a multiple on, cost least, and
 * ranges begin at one. Returns 0 on failure.
 */
uint64_t braid_stripe_bytes(const struct braid_file *file);

/**
 * Tells how the reserved rate was kept so far. Returns 1, 0 if the file has none, or -1.
 */
int braid_lateness(const struct braid_file *file, struct braid_account *lateness);

/**
 * Runs a method on a file: docs/methods.md has the methods. `arguments` are texts NAME=VALUE, with NULL
 * behind the last; or NULL. `at` is one of BRAID_AT_... It takes as long as it takes to read the file. The
 * answer is freed by braid_answer_free.
 */
struct braid_answer *braid_run(const struct braid_client *client,
                               const char * method,
                               const char * name,
                               const char *const * arguments,
                               int at);

/**
 * The answer as a JSON document, the one of `braid run --json`. It stays until the answer is freed.
 */
const char *braid_answer_text(const struct braid_answer *answered);

/**
 * The rows of an answer that is a table, as they are, and their length in bytes. They stay until the answer
 * is freed. Fails if the answer is no table.
 */
const void *braid_answer_rows(const struct braid_answer *answered, size_t *length);

/**
 * Frees an answer, which is not used again; NULL is allowed.
 */
void braid_answer_free(struct braid_answer *answered);

/**
 * Facts about the object of this name. Symbolic links are followed.
 */
int braid_stat(const struct braid_client *client, const char * name, struct braid_facts *stat);

/**
 * Makes a directory with these permission bits; 0: 0755.
 */
int braid_mkdir(const struct braid_client *client, const char * name, uint32_t mode);

/**
 * Removes an empty directory.
 */
int braid_rmdir(const struct braid_client *client, const char * name);

/**
 * Removes a name that is not a directory's. Who has the file open reads it on.
 */
int braid_unlink(const struct braid_client *client, const char * name);

/**
 * Renames a file or directory within its volume, in one step. A file takes the place of a file, a directory
 * that of an empty directory.
 */
int braid_rename(const struct braid_client *client, const char * from, const char * to);

/**
 * Sets the size of a file. What is cut off is gone; what is added reads as zeros.
 */
int braid_truncate(const struct braid_client *client, const char * name, uint64_t size);

/**
 * Begins what braid_read_list does, and returns at once. The list is copied; the memory stays, and is left
 * alone, until braid_wait has returned. NULL on failure.
 */
struct braid_request *braid_submit_read(const struct braid_file *file,
                                        const struct braid_extent * list,
                                        size_t count);

/**
 * Begins what braid_write_list does, and returns at once. The list is copied; the memory stays, and is not
 * changed, until braid_wait has returned. NULL on failure.
 */
struct braid_request *braid_submit_write(const struct braid_file *file,
                                         const struct braid_extent * list,
                                         size_t count);

/**
 * Begins what braid_sync does, and returns at once. It commits what was written before: wait for the writes
 * first. NULL on failure.
 */
struct braid_request *braid_submit_sync(const struct braid_file *file);

/**
 * Returns 1 if a request is done, 0 if it is not, or -1.
 */
int braid_done(const struct braid_request *request);

/**
 * Waits for a request and ends it, whatever it returns: what the call would have returned, with its errno.
 * Each request is waited for once, by one thread.
 */
ssize_t braid_wait(struct braid_request *request);

/**
 * Waits until one of these requests is done, and returns its index; which then is for braid_wait. All are of
 * one client. Places that are NULL are passed over. A negative time is for ever; after it the call fails
 * with ETIMEDOUT.
 */
ssize_t braid_wait_any(struct braid_request *const * requests, size_t count, int timeout_ms);

/**
 * Reads up to `length` bytes from an offset. Returns their number, which is less only at the end of the
 * file, or -1.
 */
ssize_t braid_pread(const struct braid_file *file, void * buffer, size_t length, uint64_t offset);

/**
 * Writes `length` bytes at an offset, all of them, and returns their number, or -1. When it returns they are
 * durable on every drive of the file's set. The bytes must not change meanwhile.
 */
ssize_t braid_pwrite(const struct braid_file *file, const void * buffer, size_t length, uint64_t offset);

/**
 * Like braid_pread, into several pieces of memory, one after the other. The list is that of preadv(2).
 */
ssize_t braid_preadv(const struct braid_file *file, const struct iovec * list, int count, uint64_t offset);

/**
 * Like braid_pwrite, from several pieces of memory, one after the other. The list is that of pwritev(2).
 */
ssize_t braid_pwritev(const struct braid_file *file, const struct iovec * list, int count, uint64_t offset);

/**
 * Reads many places of the file at once, each into its memory, of which no two overlap. Returns the sum of
 * the bytes, which is less than asked for if some lie past the end of the file, or -1.
 */
ssize_t braid_read_list(const struct braid_file *file, const struct braid_extent * list, size_t count);

/**
 * Writes many places of the file at once, each from its memory, all of them. Returns the sum of the bytes,
 * or -1; then some may have been written. Of places that overlap any may be the last.
 */
ssize_t braid_write_list(const struct braid_file *file, const struct braid_extent * list, size_t count);

/**
 * Writes `length` bytes at the end of the file, wherever it is by then: those of several programs follow one
 * another. Where they begin is put to `at`, unless that is NULL. Returns `length`, or -1.
 */
ssize_t braid_append(const struct braid_file *file, const void * buffer, size_t length, uint64_t *at);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BRAID_H */
