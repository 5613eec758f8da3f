/* The bare loop over HTTP/2 without TLS: one fixed answer to whatever HEADERS frame ends a stream. It decodes no header, keeps
 * no window and checks nothing; that is the point: a client beside it is the bottleneck. The first answer on a connection
 * puts its headers into the table, the others name them there, as servers do (RFC 7541).
 *
 *   responder-h2 PORT         prints "ready" when it listens */
#include "serve.h"

enum { HELD = 65536, HEAD = 9, PREFACE = 24, MOST = 65536 };
enum { HEADERS = 1, SETTINGS = 4, PING = 6, ACK = 1, END_STREAM = 1 };

static struct { unsigned char *in; size_t have; int answered; } connections[MOST];
static unsigned char out[HELD * 8];
static size_t length;

static void put(const void *bytes, size_t count) { memcpy(out + length, bytes, count); length += count; }

static void frame(unsigned char type, unsigned char flags, const unsigned char stream[4], const void *payload, size_t count) {
    unsigned char head[HEAD] = {0, (unsigned char)(count >> 8), (unsigned char)count, type, flags};
    memcpy(head + 5, stream, 4);
    put(head, HEAD);
    put(payload, count);
}

#define TEXT(text) text, sizeof(text) - 1
static void answer_stream(int fd, const unsigned char stream[4]) {
    if (connections[fd].answered++) frame(HEADERS, 4, stream, TEXT("\x88\xc0\xbf\xbe"));
    else frame(HEADERS, 4, stream, TEXT("\x88\x40\x0fmetadata-flavor\x06Google\x5f\x10" "application/json\x5c\x02" "58"));
    frame(0, END_STREAM, stream, TEXT(BODY));
}

static void on_frame(int fd, const unsigned char *at, size_t payload) {
    static const unsigned char nobody[4];
    unsigned char type = at[3], flags = at[4];
    if (type == HEADERS && (flags & END_STREAM)) answer_stream(fd, at + 5);
    else if (type == SETTINGS && !(flags & ACK)) frame(SETTINGS, ACK, nobody, NULL, 0);
    else if (type == PING && !(flags & ACK)) frame(PING, ACK, nobody, at + HEAD, payload);
}

static void hang_up(int fd) {
    free(connections[fd].in);
    memset(&connections[fd], 0, sizeof connections[fd]);
    close(fd);
}

/* The preface is skipped by its length, and answered with empty settings. */
static void greet(int fd) {
    static const char settings[HEAD] = {0, 0, 0, SETTINGS};
    if (fd >= MOST || !(connections[fd].in = malloc(HELD)) || send(fd, settings, HEAD, MSG_NOSIGNAL) != HEAD) { perror("greet"); exit(1); }
}

static void answer(int fd) {
    unsigned char *in = connections[fd].in;
    size_t have = connections[fd].have, at = 0;
    ssize_t n = recv(fd, in + have, HELD - have, 0);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) hang_up(fd);
        return;
    }
    have += (size_t)n;
    length = 0;
    if (have >= PREFACE && !memcmp(in, "PRI ", 4)) at = PREFACE;
    while (have - at >= HEAD) {
        size_t payload = (size_t)in[at] << 16 | (size_t)in[at + 1] << 8 | in[at + 2];
        if (have - at < HEAD + payload) break;
        on_frame(fd, in + at, payload);
        at += HEAD + payload;
    }
    memmove(in, in + at, connections[fd].have = have - at);
    if (length && send(fd, out, length, MSG_NOSIGNAL) != (ssize_t)length) hang_up(fd);
}

int main(int count, char **args) {
    if (count != 2) { fprintf(stderr, "usage: responder-h2 PORT\n"); return 2; }
    return serve(atoi(args[1]), (struct manners){.greet = greet, .answer = answer});
}
