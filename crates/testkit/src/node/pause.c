/* What holds a pod's namespaces: waits to be told to end, and buries what is left to it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { _exit(signal == SIGTERM || signal == SIGINT ? 0 : 1); }

static void bury(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  struct sigaction ending = {.sa_handler = end}, burying = {.sa_handler = bury, .sa_flags = SA_NOCLDSTOP};
  sigaction(SIGTERM, &ending, NULL);
  sigaction(SIGINT, &ending, NULL);
  sigaction(SIGCHLD, &burying, NULL);
  for (;;) pause();
}
