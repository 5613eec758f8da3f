/* The bare loop that peers and programs are measured against: one thread, one epoll, one fixed answer to whatever ends in
 * an empty line. It parses nothing and checks nothing; that is the point: it is the practical limit, not a server. Only ab
 * without -k (HTTP/1.0) has its connections closed.
 *
 *   responder PORT            prints "ready" when it listens; SIGUSR1 makes it stand still for two seconds */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ANSWER                                                                                                       \
    "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nConnection: keep-alive\r\nContent-Type: application/json\r\n"        \
    "Content-Length: 58\r\n\r\n{\"access_token\":\"bare\",\"expires_in\":3599,\"type\":\"Bearer\"}\n"

static volatile sig_atomic_t stall;
static void on_usr1(int signal) { (void)signal; stall = 1; }

static void answer(int fd) {
    static char in[16384], out[sizeof(ANSWER) * 64];
    ssize_t n = recv(fd, in, sizeof in, 0);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) close(fd);
        return;
    }
    size_t length = 0;
    for (char *at = in, *end = in + n; (at = memmem(at, (size_t)(end - at), "\r\n\r\n", 4)) && length < sizeof out - sizeof ANSWER; at += 4) {
        memcpy(out + length, ANSWER, sizeof ANSWER - 1);
        length += sizeof ANSWER - 1;
    }
    int sent = send(fd, out, length, MSG_NOSIGNAL) == (ssize_t)length;
    if (!sent || (memmem(in, (size_t)n, "HTTP/1.0", 8) && !memmem(in, (size_t)n, "Keep-Alive", 10))) close(fd);
}

int main(int count, char **args) {
    if (count != 2) { fprintf(stderr, "usage: responder PORT\n"); return 2; }
    signal(SIGUSR1, on_usr1);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1, epoll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(args[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) { perror("responder"); return 1; }
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[256];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int ready = epoll_wait(epoll, events, 256, -1);
        if (stall) { stall = 0; struct timespec two = {.tv_sec = 2}; while (nanosleep(&two, &two) && errno == EINTR) {} }
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd != listener) { answer(events[i].data.fd); continue; }
            for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
                struct epoll_event client = {.events = EPOLLIN, .data.fd = fd};
                epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &client);
            }
        }
    }
}
