/* The bare loop that peers and programs are measured against: one thread, one epoll, one fixed answer to whatever ends in
 * an empty line. It parses nothing and checks nothing; that is the point: it is the practical limit, not a server. Only ab
 * without -k (HTTP/1.0) has its connections closed.
 *
 *   responder PORT            prints "ready" when it listens
 *   responder PORT MS         each answer leaves so much after its request came, to within a millisecond */
#include "serve.h"

enum { MOST = 65536 }; /* answers owed, a power of two, and descriptors */
static struct { int fd; unsigned connection; int64_t due; } owed[MOST];
static unsigned connection[MOST], first, last; /* which of the connections that had a descriptor has it now */
static int64_t delay;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void hang_up(int fd) { connection[fd % MOST]++; close(fd); }

static void owe(int fd) {
    owed[last % MOST].fd = fd;
    owed[last % MOST].connection = connection[fd % MOST];
    owed[last++ % MOST].due = now() + delay;
    if (last - first == MOST) { fprintf(stderr, "responder: more than %d answers owed\n", MOST - 1); exit(1); }
}

static int pay(void) {
    for (int64_t time = now(); first != last && owed[first % MOST].due <= time; first++) {
        int fd = owed[first % MOST].fd;
        if (owed[first % MOST].connection == connection[fd % MOST] && send(fd, ANSWER, sizeof ANSWER - 1, MSG_NOSIGNAL) < 0) hang_up(fd);
    }
    return first == last ? -1 : 1;
}

static void answer(int fd) {
    static char in[16384], out[sizeof(ANSWER) * 64];
    ssize_t n = recv(fd, in, sizeof in, 0);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) hang_up(fd);
        return;
    }
    if (delay) return owe(fd);
    size_t length = 0;
    for (char *at = in, *end = in + n; (at = memmem(at, (size_t)(end - at), "\r\n\r\n", 4)) && length < sizeof out - sizeof ANSWER; at += 4) {
        memcpy(out + length, ANSWER, sizeof ANSWER - 1);
        length += sizeof ANSWER - 1;
    }
    int sent = send(fd, out, length, MSG_NOSIGNAL) == (ssize_t)length;
    if (!sent || (memmem(in, (size_t)n, "HTTP/1.0", 8) && !memmem(in, (size_t)n, "Keep-Alive", 10))) hang_up(fd);
}

int main(int count, char **args) {
    if (count != 2 && count != 3) { fprintf(stderr, "usage: responder PORT [MS]\n"); return 2; }
    delay = count == 3 ? atoi(args[2]) * INT64_C(1000000) : 0;
    return serve(atoi(args[1]), (struct manners){.answer = answer, .wait = delay ? pay : NULL});
}
