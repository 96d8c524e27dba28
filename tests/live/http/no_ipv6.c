// A host without IPv6, for the process that preloads this.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

int socket(int domain, int type, int protocol) {
    if (domain == AF_INET6) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    int (*next)(int, int, int) = dlsym(RTLD_NEXT, "socket");
    return next(domain, type, protocol);
}
