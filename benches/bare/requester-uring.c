/* The bare requester over io_uring instead of epoll: the same request, arguments, figures and clock, so that the difference
 * is what io_uring is worth to a sender. It does what that interface is best at: each connection has one multishot receive,
 * which takes its buffers from a ring that is handed out once; descriptors are registered; sends are queued and go down with
 * the wait for the answers, in one io_uring_enter; answers are received there and nowhere else (DEFER_TASKRUN). Of the ways
 * that were tried (COOP_TASKRUN; send(2) or writes from a registered buffer; a receive for each answer; sends handed over in
 * fours or sixteens; a wait for several answers) none was measured as better. Raw calls, linux/io_uring.h of Linux 6.1.
 *
 *   requester-uring PORT SECONDS CONNECTIONS RATE [sleep]     as requester.c; ends with 3 where io_uring is forbidden or
 *                                                             too old: 6.1, and 6.12 for sleep */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef IORING_ENTER_ABS_TIMER
#define IORING_ENTER_ABS_TIMER (1U << 5) /* the instant to wait for is absolute, on CLOCK_MONOTONIC; Linux 6.12 */
#endif

static const char REQUEST[] = "GET /computeMetadata/v1/instance/service-accounts/default/token HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
enum { MOST = 1024, BUCKETS = 100000 };       /* of 1 us; the last takes the rest */
enum { ENTRIES = 2 * MOST, BUFFER = 1024 };   /* a send and a receive for each connection; an answer fits a buffer */
#define SENT UINT64_MAX   /* what a failed send is reported under; one that succeeded is not reported */
#define FOREVER INT64_MAX

static struct { int fd; int64_t due; } connections[MOST];
static int idle[MOST], idle_count;
static uint64_t histogram[BUCKETS], answers;
static int64_t start, warm;

static struct {
    int fd;
    unsigned *submit_tail, *flags, submit_mask, queued, submitted; /* what is queued lies between submitted and queued */
    unsigned *complete_head, *complete_tail, complete_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *completions;
    struct io_uring_buf_ring *free;
    char *buffers;
    uint16_t given; /* buffers given to the kernel so far */
    uint16_t most;  /* of them at a time, a power of two */
} ring;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void fail(const char *what) { perror(what); exit(1); }

/* Containers often forbid io_uring, and kernels lack parts of it: neither is a failure of the run. */
static void lacks(const char *what) {
    const char *why = errno == EPERM || errno == EACCES ? "io_uring is forbidden here" : "this kernel's io_uring is missing or too old";
    fprintf(stderr, "requester-uring: %s (%s: %s)\n", why, what, strerror(errno));
    exit(3);
}

static void *map(size_t length, int fd, off_t offset) {
    int how = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, how | MAP_POPULATE, fd, offset);
    if (at == MAP_FAILED) fail("mmap");
    return at;
}

/* Whoever spins looks at a flag in the ring and not into the kernel; whoever sleeps is spared the writing of that flag. */
static void open_ring(int spins) {
    struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL};
    if (spins) params.flags |= IORING_SETUP_TASKRUN_FLAG;
    ring.fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &params);
    if (ring.fd < 0) lacks("io_uring_setup");
    /* Both rings are one mapping, in which the completions come last or the array does. */
    size_t completions = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    size_t array = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    char *at = map(completions > array ? completions : array, ring.fd, IORING_OFF_SQ_RING);
    ring.entries = map(params.sq_entries * sizeof *ring.entries, ring.fd, IORING_OFF_SQES);
    ring.submit_tail = (unsigned *)(at + params.sq_off.tail);
    ring.submit_mask = *(unsigned *)(at + params.sq_off.ring_mask);
    ring.flags = (unsigned *)(at + params.sq_off.flags);
    ring.complete_head = (unsigned *)(at + params.cq_off.head);
    ring.complete_tail = (unsigned *)(at + params.cq_off.tail);
    ring.complete_mask = *(unsigned *)(at + params.cq_off.ring_mask);
    ring.completions = (struct io_uring_cqe *)(at + params.cq_off.cqes);
    /* Entries are used in order, so their indices are written once. */
    for (unsigned i = 0; i < params.sq_entries; i++) ((unsigned *)(at + params.sq_off.array))[i] = i;
}

static void give(uint16_t buffer) {
    struct io_uring_buf *slot = &ring.free->bufs[ring.given++ & (ring.most - 1)];
    slot->addr = (uintptr_t)(ring.buffers + (size_t)buffer * BUFFER);
    slot->len = BUFFER;
    slot->bid = buffer;
    __atomic_store_n(&ring.free->tail, ring.given, __ATOMIC_RELEASE);
}

/* As many buffers as answers can wait, and no more, so that they stay in the cache. */
static void open_buffers(int open) {
    for (ring.most = 8; ring.most < open; ring.most *= 2) {}
    ring.buffers = map((size_t)ring.most * BUFFER, -1, 0);
    ring.free = map(ring.most * sizeof(struct io_uring_buf), -1, 0);
    struct io_uring_buf_reg buffers = {.ring_addr = (uintptr_t)ring.free, .ring_entries = ring.most};
    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_PBUF_RING, &buffers, 1)) lacks("IORING_REGISTER_PBUF_RING");
    for (uint16_t i = 0; i < ring.most; i++) give(i);
}

/* Registered, the descriptors are not looked up and counted at each use; the ring's own comes last, since it changes. */
static void open_files(int open) {
    int files[MOST];
    for (int i = 0; i < open; i++) files[i] = connections[i].fd;
    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, files, open)) fail("IORING_REGISTER_FILES");
    struct io_uring_rsrc_update own = {.offset = UINT32_MAX, .data = (uint64_t)ring.fd};
    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_RING_FDS, &own, 1) != 1) lacks("IORING_REGISTER_RING_FDS");
    ring.fd = (int)own.offset;
}

/* Hands over what is queued and runs what has arrived. Waits for a completion if `until` is not 0, at most to that instant. */
static void enter(int64_t until) {
    struct __kernel_timespec time = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    struct io_uring_getevents_arg wait = {.ts = (uintptr_t)&time};
    unsigned flags = IORING_ENTER_REGISTERED_RING | IORING_ENTER_GETEVENTS, count = ring.queued - ring.submitted;
    int timed = until != 0 && until != FOREVER;
    if (timed) flags |= IORING_ENTER_EXT_ARG | IORING_ENTER_ABS_TIMER;
    __atomic_store_n(ring.submit_tail, ring.queued, __ATOMIC_RELEASE);
    long done = syscall(SYS_io_uring_enter, ring.fd, count, until != 0, flags, timed ? &wait : NULL, timed ? sizeof wait : 0);
    if (done >= 0) ring.submitted += (unsigned)done;
    else if (errno == EINVAL) lacks("io_uring_enter");
    else if (errno != ETIME && errno != EINTR) fail("io_uring_enter");
}

static int has_work(void) {
    return ring.queued != ring.submitted || __atomic_load_n(ring.flags, __ATOMIC_RELAXED) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

static struct io_uring_sqe *queue(uint8_t operation, int which, uint64_t name) {
    struct io_uring_sqe *entry = &ring.entries[ring.queued++ & ring.submit_mask];
    *entry = (struct io_uring_sqe){.opcode = operation, .flags = IOSQE_FIXED_FILE, .fd = which, .user_data = name};
    return entry;
}

static void receive(int which) {
    struct io_uring_sqe *entry = queue(IORING_OP_RECV, which, (uint64_t)which);
    entry->flags |= IOSQE_BUFFER_SELECT;
    entry->ioprio = IORING_RECV_MULTISHOT;
}

static void launch(int which, int64_t due) {
    connections[which].due = due;
    struct io_uring_sqe *entry = queue(IORING_OP_SEND, which, SENT);
    entry->flags |= IOSQE_CQE_SKIP_SUCCESS;
    entry->addr = (uintptr_t)REQUEST;
    entry->len = sizeof REQUEST - 1;
    entry->msg_flags = MSG_NOSIGNAL | MSG_WAITALL; /* all of it, or an error */
}

static void answered(int which) {
    int64_t due = connections[which].due, took = (now() - due) / 1000;
    if (due >= warm) { histogram[took < BUCKETS ? took : BUCKETS - 1]++; answers++; }
}

/* Whether this completion is an answer. */
static int received(const struct io_uring_cqe *completion) {
    errno = completion->res < 0 ? -completion->res : 0;
    if (completion->user_data == SENT) fail("send");
    if (completion->flags & IORING_CQE_F_BUFFER) give((uint16_t)(completion->flags >> IORING_CQE_BUFFER_SHIFT));
    if (!(completion->flags & IORING_CQE_F_MORE)) receive((int)completion->user_data);
    if (completion->res == 0) fail("closed");
    if (completion->res < 0 && errno != ENOBUFS) fail("receive");
    return completion->res > 0;
}

static void take(int closed_loop) {
    unsigned head = *ring.complete_head, tail = __atomic_load_n(ring.complete_tail, __ATOMIC_ACQUIRE);
    for (; head != tail; head++) {
        const struct io_uring_cqe *completion = &ring.completions[head & ring.complete_mask];
        if (!received(completion)) continue;
        int which = (int)completion->user_data;
        answered(which);
        if (closed_loop) launch(which, now()); else idle[idle_count++] = which;
    }
    __atomic_store_n(ring.complete_head, head, __ATOMIC_RELEASE);
}

static int64_t due_of(int64_t hit, double rate) { return start + (int64_t)((double)hit * 1e9 / rate); }

static double quantile(double q) {
    uint64_t rank = (uint64_t)(q * (double)answers), seen = 0;
    for (int i = 0; i < BUCKETS; i++) if ((seen += histogram[i]) > rank) return i / 1000.0;
    return BUCKETS / 1000.0;
}

static void connect_all(int port, int open) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0, one = 1; i < open; i++) {
        int fd = connections[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        idle[idle_count++] = i;
    }
}

int main(int count, char **args) {
    if (count != 5 && (count != 6 || strcmp(args[5], "sleep"))) { fprintf(stderr, "usage: requester-uring PORT SECONDS CONNECTIONS RATE [sleep]\n"); return 2; }
    int port = atoi(args[1]), seconds = atoi(args[2]), open = atoi(args[3]);
    double rate = atof(args[4]);
    if (open < 1 || open > MOST || seconds < 1) { fprintf(stderr, "requester-uring: 1 to %d connections, 1 second or more\n", MOST); return 2; }
    int closed_loop = rate == 0, spins = !closed_loop && count == 5;
    open_ring(spins);
    open_buffers(open);
    connect_all(port, open);
    open_files(open);
    for (int i = 0; i < open; i++) receive(i);
    start = now();
    warm = start + (closed_loop ? 0 : 1000000000);
    int64_t end = warm + seconds * INT64_C(1000000000), sent = 0, time;
    while ((time = now()) < end) {
        while (idle_count && (closed_loop || due_of(sent, rate) <= time)) {
            launch(idle[--idle_count], closed_loop ? time : due_of(sent, rate));
            sent++;
        }
        if (closed_loop) enter(FOREVER);
        else if (!spins) enter(idle_count ? due_of(sent, rate) : end);
        else if (has_work()) enter(0);
        take(closed_loop);
    }
    printf("%.0f %.3f %.3f\n", (double)answers / seconds, quantile(0.5), quantile(0.99));
    return 0;
}
