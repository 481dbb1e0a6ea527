/*
 * IOR on Braid, through libbraid.so: `ior -a BRAID -o braid://main/file`. README.md says how it is built.
 *
 * Every rank has a client of its own. Options:
 *   --braid.cluster=PATH   the cluster's directory or cluster.toml; without it, BRAID_CLUSTER
 *   --braid.layout=TEXT    the layout of new files, such as "raid5 4+1 unit=64K"
 *   --braid.ranges         each rank opens a shared file for its own block: for files of one segment whose
 *                          blocks are whole stripes
 */

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <braid.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "aiori.h"
#include "ior.h"
#include "iordef.h"
#include "utilities.h"

typedef struct {
        char *cluster;
        char *layout;
        int ranges;
} braid_options_t;

static braid_client *client;
static aiori_xfer_hint_t *hints;

#define BRAID_ERR(what, name) ERRF("%s %s: %s", what, name, braid_error())

static option_help *BRAID_options(aiori_mod_opt_t **init_backend_options, aiori_mod_opt_t *init_values)
{
        braid_options_t *o = calloc(1, sizeof(*o));
        if (init_values != NULL)
                memcpy(o, init_values, sizeof(*o));
        *init_backend_options = (aiori_mod_opt_t *)o;
        option_help h[] = {
                {0, "braid.cluster", "Directory or cluster.toml", OPTION_OPTIONAL_ARGUMENT, 's',
                 &o->cluster},
                {0, "braid.layout", "Layout of new files", OPTION_OPTIONAL_ARGUMENT, 's', &o->layout},
                {0, "braid.ranges", "Open a shared file for its own block", OPTION_FLAG, 'd', &o->ranges},
                LAST_OPTION,
        };
        option_help *help = malloc(sizeof(h));
        memcpy(help, h, sizeof(h));
        return help;
}

static void BRAID_Init(aiori_mod_opt_t *param)
{
        braid_options_t *o = (braid_options_t *)param;
        if (client != NULL)
                return;
        client = braid_connect(o->cluster);
        if (client == NULL)
                BRAID_ERR("connect to", o->cluster ? o->cluster : "the cluster");
}

static void BRAID_Final(aiori_mod_opt_t *param)
{
        (void)param;
        if (braid_disconnect(client) < 0)
                WARN(braid_error());
        client = NULL;
}

static void BRAID_xfer_hints(aiori_xfer_hint_t *params)
{
        hints = params;
}

static aiori_fd_t *BRAID_OpenWith(char *name, int iorflags, int flags, aiori_mod_opt_t *param)
{
        braid_options_t *o = (braid_options_t *)param;
        braid_open_options options;
        if (hints->dryRun)
                return NULL;
        memset(&options, 0, sizeof(options));
        options.mode = 0664;
        options.layout = o->layout;
        if (iorflags & IOR_RDONLY) {
                flags |= O_RDONLY;
        } else {
                flags |= iorflags & IOR_WRONLY ? O_WRONLY : O_RDWR;
                if (o->ranges && !hints->filePerProc && hints->segmentCount == 1) {
                        options.range_from = (uint64_t)rank * hints->blockSize;
                        options.range_to = options.range_from + hints->blockSize;
                }
        }
        braid_file *file = braid_open(client, name, flags, &options);
        if (file == NULL)
                BRAID_ERR("open", name);
        return (aiori_fd_t *)file;
}

static aiori_fd_t *BRAID_Open(char *name, int flags, aiori_mod_opt_t *param)
{
        return BRAID_OpenWith(name, flags, 0, param);
}

/* Every rank creates a shared file, in any order: so none truncates it. IOR has removed an old one. */
static aiori_fd_t *BRAID_Create(char *name, int flags, aiori_mod_opt_t *param)
{
        return BRAID_OpenWith(name, flags, O_CREAT, param);
}

static void BRAID_Fsync(aiori_fd_t *file, aiori_mod_opt_t *param)
{
        (void)param;
        if (!hints->dryRun && braid_sync((braid_file *)file) < 0)
                WARN(braid_error());
}

static IOR_offset_t BRAID_Xfer(int access, aiori_fd_t *file, IOR_size_t *buffer, IOR_offset_t length,
                               IOR_offset_t offset, aiori_mod_opt_t *param)
{
        ssize_t moved;
        if (hints->dryRun)
                return length;
        if (access == WRITE)
                moved = braid_pwrite((braid_file *)file, buffer, length, offset);
        else
                moved = braid_pread((braid_file *)file, buffer, length, offset);
        if (moved < 0)
                ERRF("%s of %lld bytes at %lld: %s", access == WRITE ? "write" : "read", (long long)length,
                     (long long)offset, braid_error());
        if (access == WRITE && hints->fsyncPerWrite)
                BRAID_Fsync(file, param);
        return moved;
}

static void BRAID_Close(aiori_fd_t *file, aiori_mod_opt_t *param)
{
        (void)param;
        if (!hints->dryRun && braid_close((braid_file *)file) < 0)
                ERRF("close: %s", braid_error());
}

static void BRAID_Delete(char *name, aiori_mod_opt_t *param)
{
        (void)param;
        if (!hints->dryRun && braid_unlink(client, name) < 0)
                WARN(braid_error());
}

static char *BRAID_GetVersion(void)
{
        return (char *)braid_version();
}

static IOR_offset_t BRAID_GetFileSize(aiori_mod_opt_t *param, char *name)
{
        braid_facts facts;
        (void)param;
        if (hints->dryRun)
                return 0;
        if (braid_stat(client, name, &facts) < 0) {
                WARN(braid_error());
                return -1;
        }
        return facts.size;
}

static int BRAID_Mkdir(const char *name, mode_t mode, aiori_mod_opt_t *param)
{
        (void)param;
        return braid_mkdir(client, name, mode);
}

static int BRAID_Rmdir(const char *name, aiori_mod_opt_t *param)
{
        (void)param;
        return braid_rmdir(client, name);
}

static int BRAID_Stat(const char *name, struct stat *buf, aiori_mod_opt_t *param)
{
        braid_facts facts;
        (void)param;
        if (braid_stat(client, name, &facts) < 0)
                return -1;
        memset(buf, 0, sizeof(*buf));
        buf->st_ino = facts.number;
        buf->st_mode = facts.mode;
        buf->st_size = facts.size;
        buf->st_nlink = facts.links;
        buf->st_uid = facts.uid;
        buf->st_gid = facts.gid;
        return 0;
}

static int BRAID_Access(const char *name, int mode, aiori_mod_opt_t *param)
{
        struct stat buf;
        (void)mode; /* a token's rights are told by the calls themselves */
        return BRAID_Stat(name, &buf, param);
}

static int BRAID_Rename(const char *from, const char *to, aiori_mod_opt_t *param)
{
        (void)param;
        return braid_rename(client, from, to);
}

/* What was written is durable. */
static void BRAID_Sync(aiori_mod_opt_t *param)
{
        (void)param;
}

ior_aiori_t braid_aiori = {
        .name = "BRAID",
        .name_legacy = NULL,
        .create = BRAID_Create,
        .open = BRAID_Open,
        .xfer_hints = BRAID_xfer_hints,
        .xfer = BRAID_Xfer,
        .close = BRAID_Close,
        .remove = BRAID_Delete,
        .get_version = BRAID_GetVersion,
        .fsync = BRAID_Fsync,
        .get_file_size = BRAID_GetFileSize,
        .mkdir = BRAID_Mkdir,
        .rmdir = BRAID_Rmdir,
        .access = BRAID_Access,
        .stat = BRAID_Stat,
        .rename = BRAID_Rename,
        .initialize = BRAID_Init,
        .finalize = BRAID_Final,
        .get_options = BRAID_options,
        .sync = BRAID_Sync,
        .enable_mdtest = true,
};
