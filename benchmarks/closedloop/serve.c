/* serve SHARE WORK SEED FILE: serve requests one at a time until SIGTERM. They arrive at random
   (SEED), each takes WORK seconds of CPU, and their rate is such that they use SHARE of a core. FILE
   gets a line per request: its arrival by CLOCK_MONOTONIC, and its latency in seconds. Clients give
   up after PATIENCE seconds; their requests then cost nothing. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const double PATIENCE = 5;

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void end(int number) {
  (void)number;
  _exit(0);
}

int main(int count, char **arguments) {
  if (count != 5) return 2;
  double share = atof(arguments[1]), work = atof(arguments[2]);
  srand48(atol(arguments[3]));
  FILE *file = fopen(arguments[4], "a");
  if (!file) return 1;
  signal(SIGTERM, end); /* PID 1 of a namespace ignores signals without a handler */
  for (double comes = now(CLOCK_MONOTONIC);;) {
    comes -= log(1 - drand48()) * work / share;
    double left = comes - now(CLOCK_MONOTONIC);
    if (left > 0) {
      struct timespec rest = {left, (left - (long)left) * 1e9};
      nanosleep(&rest, 0);
    }
    if (now(CLOCK_MONOTONIC) < comes + PATIENCE)
      for (double until = now(CLOCK_PROCESS_CPUTIME_ID) + work; now(CLOCK_PROCESS_CPUTIME_ID) < until;)
        ;
    double took = now(CLOCK_MONOTONIC) - comes;
    fprintf(file, "%.3f %.4f\n", comes, took < PATIENCE ? took : PATIENCE);
    fflush(file);
  }
}
