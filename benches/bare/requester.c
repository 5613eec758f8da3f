/* The bare loop on the other side: one thread, one epoll, one fixed request on each connection, and whatever comes back is
 * an answer. It parses nothing, checks nothing and counts one histogram; that is the point: what it shows on a machine is
 * what the machine and the target allow, and a load generator can only come near it.
 *
 *   requester PORT SECONDS CONNECTIONS RATE [sleep]     RATE 0 is a closed loop; otherwise hits are due at an exact rate,
 *                                                       latency runs from when they were due, and a first second more is
 *                                                       left out. The time to the next hit is spun away, or slept.
 *   prints the answers per second, and p50 and p99 in ms */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

static const char REQUEST[] = "GET /computeMetadata/v1/instance/service-accounts/default/token HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
enum { MOST = 16384, BUCKETS = 100000 }; /* of 1 us; the last takes the rest */

static struct { int fd; int64_t due; } connections[MOST];
static int idle[MOST], idle_count, epoll;
static uint64_t histogram[BUCKETS], answers;
static int64_t start, warm;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void fail(const char *what) { perror(what); exit(1); }

static void launch(int which, int64_t due) {
    connections[which].due = due;
    if (send(connections[which].fd, REQUEST, sizeof REQUEST - 1, MSG_NOSIGNAL) != sizeof REQUEST - 1) fail("send");
}

static int answered(int which) {
    static char in[16384];
    ssize_t n = recv(connections[which].fd, in, sizeof in, MSG_DONTWAIT);
    if (n == 0) fail("closed");
    if (n < 0) return 0;
    int64_t due = connections[which].due, took = (now() - due) / 1000;
    if (due >= warm) { histogram[took < BUCKETS ? took : BUCKETS - 1]++; answers++; }
    return 1;
}

static int64_t due_of(int64_t hit, double rate) { return start + (int64_t)((double)hit * 1e9 / rate); }

/* What is ready, at the latest after so many ns: as exact as a timerfd(2) without the timer's slack, and one call less. */
static int sleep_for(struct epoll_event *events, int most, int64_t left) {
    struct timespec timeout = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    return epoll_pwait2(epoll, events, most, left > 0 ? &timeout : &(struct timespec){0}, NULL);
}

static double quantile(double q) {
    uint64_t rank = (uint64_t)(q * (double)answers), seen = 0;
    for (int i = 0; i < BUCKETS; i++) if ((seen += histogram[i]) > rank) return i / 1000.0;
    return BUCKETS / 1000.0;
}

int main(int count, char **args) {
    if (count != 5 && (count != 6 || strcmp(args[5], "sleep"))) { fprintf(stderr, "usage: requester PORT SECONDS CONNECTIONS RATE [sleep]\n"); return 2; }
    int port = atoi(args[1]), seconds = atoi(args[2]), open = atoi(args[3]), one = 1;
    double rate = atof(args[4]);
    int sleeps = rate != 0 && count == 6;
    if (open < 1 || open > MOST || seconds < 1) { fprintf(stderr, "requester: 1 to %d connections, 1 second or more\n", MOST); return 2; }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    prctl(PR_SET_TIMERSLACK, 1);
    epoll = epoll_create1(0);
    for (int i = 0; i < open; i++) {
        int fd = connections[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = i};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
        idle[idle_count++] = i;
    }
    struct epoll_event events[256];
    start = now();
    warm = start + (rate == 0 ? 0 : 1000000000);
    int64_t end = warm + seconds * INT64_C(1000000000), sent = 0, time;
    while ((time = now()) < end) {
        while (idle_count && (rate == 0 || due_of(sent, rate) <= time)) {
            launch(idle[--idle_count], rate == 0 ? time : due_of(sent, rate));
            sent++;
        }
        int ready = sleeps ? sleep_for(events, 256, (idle_count ? due_of(sent, rate) : end) - time)
                           : epoll_wait(epoll, events, 256, rate == 0 ? -1 : 0);
        for (int i = 0; i < ready; i++) {
            int which = events[i].data.fd;
            if (!answered(which)) continue;
            if (rate == 0) launch(which, now()); else idle[idle_count++] = which;
        }
    }
    printf("%.0f %.3f %.3f\n", (double)answers / seconds, quantile(0.5), quantile(0.99));
    return 0;
}
