/* How still the machine is: what a thread that does nothing but read the clock misses of it.
 *
 *   stillness SECONDS CPUS    prints, for each of the first CPUS CPUs, the share of the time that went by in gaps of more
 *                             than half a millisecond, and the longest gap. With 1 % or more, no 99th percentile below half a
 *                             millisecond can be measured, whoever measures. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void *watch(void *cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((int)(long)cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    double start = now(), last = start, lost = 0, longest = 0;
    while (last - start < seconds) {
        double at = now(), gap = at - last;
        if (gap > 0.0005) lost += gap;
        if (gap > longest) longest = gap;
        last = at;
    }
    printf("CPU %ld: %.2f %% of the time lost in gaps of more than 0.5 ms, the longest %.2f ms\n", (long)cpu, 100 * lost / seconds, 1e3 * longest);
    return NULL;
}

int main(int count, char **args) {
    if (count != 3) { fprintf(stderr, "usage: stillness SECONDS CPUS\n"); return 2; }
    seconds = atof(args[1]);
    int cpus = atoi(args[2]);
    pthread_t threads[64];
    for (long cpu = 0; cpu < cpus && cpu < 64; cpu++) pthread_create(&threads[cpu], NULL, watch, (void *)cpu);
    for (int cpu = 0; cpu < cpus && cpu < 64; cpu++) pthread_join(threads[cpu], NULL);
    return 0;
}
