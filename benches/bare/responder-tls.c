/* The bare loop over TLS 1.3 by OpenSSL: one fixed answer to whatever read ends in an empty line.
 *
 *   responder-tls PORT CERTIFICATE KEY       prints "ready" when it listens */
#include "serve.h"
#include <openssl/ssl.h>

enum { MOST = 65536 };
static SSL *sessions[MOST];
static SSL_CTX *context;

static void greet(int fd) {
    if (fd >= MOST || !(sessions[fd] = SSL_new(context)) || !SSL_set_fd(sessions[fd], fd)) { perror("greet"); exit(1); }
    SSL_set_accept_state(sessions[fd]);
}

static void hang_up(int fd) {
    SSL_free(sessions[fd]);
    sessions[fd] = NULL;
    close(fd);
}

static int ends_in_empty_line(const char *in, int n) { return n >= 4 && !memcmp(in + n - 4, "\r\n\r\n", 4); }

static void answer(int fd) {
    static char in[16384];
    SSL *session = sessions[fd];
    do {
        int n = SSL_read(session, in, sizeof in);
        if (n <= 0 && SSL_get_error(session, n) == SSL_ERROR_WANT_READ) return;
        if (n <= 0 || (ends_in_empty_line(in, n) && SSL_write(session, ANSWER, sizeof ANSWER - 1) <= 0)) return hang_up(fd);
    } while (SSL_has_pending(session));
}

int main(int count, char **args) {
    if (count != 4) { fprintf(stderr, "usage: responder-tls PORT CERTIFICATE KEY\n"); return 2; }
    context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_read_ahead(context, 1); /* a record is one read and not two */
    if (SSL_CTX_use_certificate_chain_file(context, args[2]) != 1 || SSL_CTX_use_PrivateKey_file(context, args[3], SSL_FILETYPE_PEM) != 1) {
        fprintf(stderr, "responder-tls: no certificate in %s, or no key in %s\n", args[2], args[3]);
        return 1;
    }
    return serve(atoi(args[1]), (struct manners){.greet = greet, .answer = answer});
}
