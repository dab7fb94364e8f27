/* Makes the C library's writes to a regular file take nothing, and say so by a count of 0. Loaded with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

static int regular(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

ssize_t write(int fd, const void *data, size_t count) { return regular(fd) ? 0 : REAL(write)(fd, data, count); }

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at) {
    return regular(fd) ? 0 : REAL(pwrite64)(fd, data, count, at);
}
