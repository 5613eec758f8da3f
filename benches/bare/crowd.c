/* Many clients in a closed loop against a server on loopback: one process, one epoll.
 *
 *   crowd PORT SECONDS CLIENTS FIRST PODS new|kept [PAUSE_MS]
 *
 * Client i has the source address 127.0.0.0 + FIRST + i % PODS, so the clients of one pod share an address. `new` opens a connection for
 * each request; `kept` keeps a connection until the server closes it. A client whose connection fails begins again at once.
 * With PAUSE_MS, a client rests so long after each response, and then opens a new connection.
 * The first fifth of the time is not counted. Prints, separated by tabs: good responses per second, other responses per second,
 * connections closed without a response, errors, clients without a good response, p99 and the longest wait for a response in ms. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
static const char REQUEST[] = "GET /computeMetadata/v1/instance/service-accounts/default/token HTTP/1.1\r\nHost: metadata.google.internal\r\nMetadata-Flavor: Google\r\n\r\n";
enum { MOST = 20000, BUCKETS = 20000 };
static struct client { int fd; int connected; int asked; int fresh; int64_t since; int64_t retry; uint64_t served; int in; char head[4]; } c[MOST];
static int ep, pods, first, keep, port, pause_ms;
static uint64_t good, bad, empty, errors, hist[BUCKETS];
static int64_t longest;
static int64_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * INT64_C(1000000000) + t.tv_nsec; }
static void begin(int i) {
    struct client *me = &c[i];
    me->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (me->fd < 0) { perror("socket"); exit(1); }
    int one = 1;
    setsockopt(me->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(me->fd, IPPROTO_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &one, sizeof one);
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000u | (uint32_t)(first + i % pods))};
    if (bind(me->fd, (struct sockaddr *)&from, sizeof from)) { perror("bind"); exit(1); }
    struct linger hard = {1, 0};
    if (!keep) setsockopt(me->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    me->connected = me->asked = me->in = 0; me->fresh = 1;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP, .data.u32 = (uint32_t)i};
    int r = connect(me->fd, (struct sockaddr *)&to, sizeof to);
    if (r && errno != EINPROGRESS) { errors++; close(me->fd); me->fd = -1; me->retry = now() + 100000000; return; }
    epoll_ctl(ep, EPOLL_CTL_ADD, me->fd, &e);
}
static void again(int i) { close(c[i].fd); begin(i); }
static void ask(int i) {
    if (send(c[i].fd, REQUEST, sizeof REQUEST - 1, MSG_NOSIGNAL) != sizeof REQUEST - 1) { errors++; again(i); return; }
    c[i].asked = 1; c[i].in = 0;
}
static void step(int i, uint32_t ev) {
    struct client *me = &c[i];
    if (me->fd < 0) return;
    if (!me->connected) {
        int err = 0; socklen_t n = sizeof err;
        getsockopt(me->fd, SOL_SOCKET, SO_ERROR, &err, &n);
        if (err) { errors++; again(i); return; }
        if (!(ev & EPOLLOUT)) return;
        me->connected = 1; ask(i); return;
    }
    char in[8192];
    for (;;) {
        ssize_t n = recv(me->fd, in, sizeof in, MSG_DONTWAIT);
        if (n > 0) {
            if (!me->asked) continue;
            if (me->in == 0) { memcpy(me->head, n >= 12 ? in + 9 : "000", 3); }
            me->in += (int)n;
            /* responses are small and come in one piece */
            int64_t t = now(), took = t - me->since; me->since = t;
            if (took > longest) longest = took;
            hist[took / 1000000 < BUCKETS ? took / 1000000 : BUCKETS - 1]++;
            if (!memcmp(me->head, "200", 3)) { good++; me->served++; } else bad++;
            int ends = memmem(in, (size_t)n, "onnection: close", 16) != NULL;
            me->asked = 0;
            if (pause_ms) { close(me->fd); me->fd = -1; me->retry = t + pause_ms * INT64_C(1000000); return; }
            if (!keep || ends) { again(i); return; }
            ask(i);
            return;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            if (me->asked) { if (n == 0) empty++; else errors++; }
            again(i);
            return;
        }
        return;
    }
}
int main(int n, char **a) {
    if (n < 7) return 2;
    pause_ms = n > 7 ? atoi(a[7]) : 0;
    port = atoi(a[1]); double seconds = atof(a[2]); int count = atoi(a[3]); first = atoi(a[4]); pods = atoi(a[5]); keep = !strcmp(a[6], "kept");
    struct rlimit rl = {65536, 65536}; setrlimit(RLIMIT_NOFILE, &rl);
    ep = epoll_create1(0);
    int64_t start = now(), end = start + (int64_t)(seconds * 1e9), warm = start + (int64_t)(seconds * 0.2e9), last = start;
    for (int i = 0; i < count; i++) { c[i].since = start; begin(i); }
    struct epoll_event ev[512];
    int warmed = 0;
    while (now() < end) {
        int k = epoll_wait(ep, ev, 512, 20);
        for (int j = 0; j < k; j++) step((int)ev[j].data.u32, ev[j].events);
        int64_t t = now();
        if (t - last > 20000000) { last = t; for (int i = 0; i < count; i++) if (c[i].fd < 0 && c[i].retry <= t) { if (pause_ms) c[i].since = t; begin(i); } }
        if (!warmed && t >= warm) { warmed = 1; good = bad = empty = errors = 0; longest = 0; memset(hist, 0, sizeof hist); warm = t; }
    }
    double took = (double)(now() - warm) / 1e9;
    int never = 0; for (int i = 0; i < count; i++) never += !c[i].served;
    uint64_t all = 0, seen = 0; for (int i = 0; i < BUCKETS; i++) all += hist[i];
    int p99 = 0; for (; p99 < BUCKETS - 1; p99++) if ((seen += hist[p99]) >= all - all / 100) break;
    printf("%.0f\t%.0f\t%lu\t%lu\t%d\t%d\t%ld\n", (double)good / took, (double)bad / took, (unsigned long)empty, (unsigned long)errors, never, p99, (long)(longest / 1000000));
}
