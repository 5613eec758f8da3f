/* Runs a program to which the kernel does not tell its auxiliary vector by prctl(PR_GET_AUXV); /proc/self/auxv stays.
 *
 *   without-auxv PROGRAM ARGUMENTS...
 *
 * valgrind (3.19) hides the vDSO from what it runs: in the stack and in /proc/self/auxv, but not in this newer call, and
 * whoever finds the vDSO by it (rustix) reads where nothing is any more. Refused, it asks the file. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_GET_AUXV
#define PR_GET_AUXV 0x41555856
#endif

int main(int count, char **args) {
    if (count < 2) { fprintf(stderr, "usage: without-auxv PROGRAM ARGUMENTS...\n"); return 2; }
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_GET_AUXV, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof rules / sizeof *rules, .filter = rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) { perror("seccomp"); return 1; }
    execvp(args[1], args + 1);
    perror(args[1]);
    return 1;
}
