/* Makes the C library behave as on a network file system: a call fails, or takes effect and fails all the same.
 *
 * Loaded with LD_PRELOAD. `fault_plan` says which call, from the how manyth on, with which errno; `done` has it take
 * effect first; `always` means every one from there on. `fault_hits` says how many there were.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { NONE, LINK, RENAME, UNLINK, EXCLUSIVE, OPEN, SYNC, SYNC_DIRECTORY, FLOCK, READ, MKDIR, CLOSE, SILLY, WRITABLE };

static int planned, from, error, done, always, seen, hits, silly;

void fault_plan(int call, int number, int failure, int effect, int every) {
    planned = call, from = number, error = failure, done = effect, always = every, seen = hits = 0;
}

int fault_hits(void) { return hits; }

static int due(int call) {
    if (planned != call || ++seen < from || (seen > from && !always)) return 0;
    return ++hits;
}

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))
#define FAULT(call, effect)              \
    if (due(call)) {                     \
        if (done) (void)(effect);        \
        errno = error;                   \
        return -1;                       \
    }

int linkat(int a, const char *from_name, int b, const char *to, int flags) {
    FAULT(LINK, REAL(linkat)(a, from_name, b, to, flags))
    FAULT(WRITABLE, 0)
    return REAL(linkat)(a, from_name, b, to, flags);
}

int renameat(int a, const char *from_name, int b, const char *to) {
    FAULT(RENAME, REAL(renameat)(a, from_name, b, to))
    FAULT(WRITABLE, 0)
    return REAL(renameat)(a, from_name, b, to);
}

int rename(const char *from_name, const char *to) { return renameat(AT_FDCWD, from_name, AT_FDCWD, to); }

int unlinkat(int directory, const char *name, int flags) {
    FAULT(UNLINK, REAL(unlinkat)(directory, name, flags))
    FAULT(WRITABLE, 0)
    if (!(flags & AT_REMOVEDIR) && due(SILLY)) {
        char other[64];
        snprintf(other, sizeof other, ".nfs%08x%08x", (unsigned)getpid(), (unsigned)++silly);
        return REAL(renameat)(directory, name, directory, other);
    }
    return REAL(unlinkat)(directory, name, flags);
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }

static int opened(int directory, const char *name, int flags, mode_t mode) {
    if ((flags & O_CREAT) && (flags & O_EXCL)) {
        FAULT(EXCLUSIVE, close(REAL(openat)(directory, name, flags, mode)))
    }
    if (flags & (O_WRONLY | O_RDWR | O_CREAT)) {
        FAULT(WRITABLE, 0)
    }
    FAULT(OPEN, 0)
    return REAL(openat)(directory, name, flags, mode);
}

#define OPENED(directory, name, flags)                                    \
    mode_t mode = 0;                                                      \
    if ((flags) & O_CREAT) {                                              \
        va_list more;                                                     \
        va_start(more, flags);                                            \
        mode = va_arg(more, mode_t);                                      \
        va_end(more);                                                     \
    }                                                                     \
    return opened(directory, name, flags, mode);

int open(const char *name, int flags, ...) { OPENED(AT_FDCWD, name, flags) }
int open64(const char *name, int flags, ...) { OPENED(AT_FDCWD, name, flags) }
int openat(int directory, const char *name, int flags, ...) { OPENED(directory, name, flags) }
int openat64(int directory, const char *name, int flags, ...) { OPENED(directory, name, flags) }

int fsync(int fd) {
    struct stat status;
    int call = fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) ? SYNC_DIRECTORY : SYNC;
    FAULT(call, 0)
    return REAL(fsync)(fd);
}

int flock(int fd, int operation) {
    FAULT(FLOCK, 0)
    return REAL(flock)(fd, operation);
}

ssize_t read(int fd, void *buffer, size_t count) {
    FAULT(READ, 0)
    return REAL(read)(fd, buffer, count);
}

int mkdirat(int directory, const char *name, mode_t mode) {
    FAULT(MKDIR, REAL(mkdirat)(directory, name, mode))
    FAULT(WRITABLE, 0)
    return REAL(mkdirat)(directory, name, mode);
}

int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int close(int fd) {
    struct stat status;
    int flags = planned == CLOSE && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? fcntl(fd, F_GETFL) : 0;
    if (flags > 0 && (flags & O_ACCMODE) != O_RDONLY) { /* what was written late is what a close can complain of */
        FAULT(CLOSE, REAL(close)(fd))
    }
    return REAL(close)(fd);
}
