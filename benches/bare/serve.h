/* What the bare responders share: one thread, one epoll, and whoever connects to a port on loopback. Each says what an answer
 * is. SIGUSR1 makes it stand still for two seconds. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BODY "{\"access_token\":\"bare\",\"expires_in\":3599,\"type\":\"Bearer\"}\n"
#define ANSWER                                                                                                       \
    "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nConnection: keep-alive\r\nContent-Type: application/json\r\n"        \
    "Content-Length: 58\r\n\r\n" BODY

static volatile sig_atomic_t stall;
static void on_usr1(int signal) { (void)signal; stall = 1; }

/* What a responder does. Only `answer`, which is called when a connection is readable, has to be there. */
struct manners {
    void (*greet)(int fd);
    void (*answer)(int fd);
    int (*wait)(void); /* does what is due, and says for how many ms to wait at most */
};

/* Prints "ready" when it listens. */
static int serve(int port, struct manners manners) {
    signal(SIGUSR1, on_usr1);
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1, epoll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) { perror("responder"); return 1; }
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[256];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int ready = epoll_wait(epoll, events, 256, manners.wait ? manners.wait() : -1);
        if (stall) { stall = 0; struct timespec two = {.tv_sec = 2}; while (nanosleep(&two, &two) && errno == EINTR) {} }
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd != listener) { manners.answer(events[i].data.fd); continue; }
            for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
                struct epoll_event client = {.events = EPOLLIN, .data.fd = fd};
                if (manners.greet) manners.greet(fd);
                epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &client);
            }
        }
    }
}
