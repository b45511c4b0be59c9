/* TCP requests of an unchanged program, carried by another transport within the host (N-70).
 *
 *     program --connect(127.0.0.1:PORT)--> [shim] --> $LASTMETER_SHIM/PORT, where a server has the shim, too
 *                                                `--> TCP, as without it, where none has
 *
 * ATOMIC-2 planned a library that takes socket calls and gives those within the LAN to its own transport (final report,
 * section 4.a, Applications). This is that library with a UNIX socket instead of ATP: no segments, no checksums, no
 * acknowledgements. A client that finds no such server gets TCP, and a server takes both.
 *
 * Limits: blocking servers (accept, accept4); IPv4; one process that accepts. A socket that was exchanged has
 * no TCP options: setting one succeeds and does nothing.
 *
 *     cc -shared -fPIC -O2 -o shim.so shim.c -ldl
 *     LASTMETER_SHIM=/run/user/1000 LD_PRELOAD=./shim.so PROGRAM
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FDS_MAX = 4096 };

/* The UNIX listener beside a TCP listener, and whether a socket was exchanged; descriptors from 0 are offset by one. */
static int beside[FDS_MAX];
static char exchanged[FDS_MAX];

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Where servers of this port are found; 0 if the user named no folder, or the address is not this host's. */
static int place(const struct sockaddr *address, socklen_t len, struct sockaddr_un *local)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)address;
    const char *folder = getenv("LASTMETER_SHIM");
    if (!folder || len < sizeof *in || in->sin_family != AF_INET)
        return 0;
    if (in->sin_addr.s_addr != htonl(INADDR_LOOPBACK) && in->sin_addr.s_addr != htonl(INADDR_ANY))
        return 0;
    memset(local, 0, sizeof *local);
    local->sun_family = AF_UNIX;
    int written = snprintf(local->sun_path, sizeof local->sun_path, "%s/%u", folder, ntohs(in->sin_port));
    return written > 0 && (size_t)written < sizeof local->sun_path;
}

static int is_stream(int fd)
{
    int type = 0;
    socklen_t len = sizeof type;
    return fd >= 0 && fd < FDS_MAX && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_STREAM;
}

int connect(int fd, const struct sockaddr *address, socklen_t len)
{
    struct sockaddr_un local;
    if (is_stream(fd) && place(address, len, &local)) {
        int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (other >= 0 && !REAL(connect)(other, (struct sockaddr *)&local, sizeof local) && dup2(other, fd) == fd) {
            close(other);
            exchanged[fd] = 1;
            return 0;
        }
        if (other >= 0)
            close(other);
    }
    return REAL(connect)(fd, address, len);
}

int listen(int fd, int backlog)
{
    struct sockaddr_in in;
    struct sockaddr_un local;
    socklen_t len = sizeof in;
    if (is_stream(fd) && !getsockname(fd, (struct sockaddr *)&in, &len)
        && place((struct sockaddr *)&in, len, &local)) {
        int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        unlink(local.sun_path);
        if (other >= 0 && !bind(other, (struct sockaddr *)&local, sizeof local) && !REAL(listen)(other, backlog))
            beside[fd] = other + 1;
        else if (other >= 0)
            close(other);
    }
    return REAL(listen)(fd, backlog);
}

int accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
    int other = fd >= 0 && fd < FDS_MAX ? beside[fd] - 1 : -1;
    if (other >= 0) {
        struct pollfd both[2] = { { fd, POLLIN, 0 }, { other, POLLIN, 0 } };
        while (poll(both, 2, -1) < 0)
            if (errno != EINTR)
                return -1;
        if (both[1].revents & POLLIN) {
            int taken = REAL(accept4)(other, NULL, NULL, flags);
            if (taken >= 0 && taken < FDS_MAX)
                exchanged[taken] = 1;
            if (taken >= 0 && address && len) {
                struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
                memcpy(address, &in, *len < sizeof in ? *len : sizeof in);
                *len = sizeof in;
            }
            return taken;
        }
    }
    return REAL(accept4)(fd, address, len, flags);
}

int accept(int fd, struct sockaddr *address, socklen_t *len)
{
    return accept4(fd, address, len, 0);
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t len)
{
    if (level == IPPROTO_TCP && fd >= 0 && fd < FDS_MAX && exchanged[fd])
        return 0;
    return REAL(setsockopt)(fd, level, option, value, len);
}

int close(int fd)
{
    if (fd >= 0 && fd < FDS_MAX) {
        exchanged[fd] = 0;
        if (beside[fd]) {
            int other = beside[fd] - 1;
            beside[fd] = 0;
            REAL(close)(other);
        }
    }
    return REAL(close)(fd);
}
