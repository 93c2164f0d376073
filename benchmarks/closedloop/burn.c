/* burn SHARE: use this share of a core, a tenth of a second at a time, until SIGTERM. What a full
   node could not give is not made up for. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

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
  double until = now(CLOCK_MONOTONIC), share = count > 1 ? atof(arguments[1]) : 0;
  signal(SIGTERM, end); /* as the first process of its namespace it would not end by itself */
  for (;;) {
    double used = now(CLOCK_PROCESS_CPUTIME_ID) + share / 10, begins = now(CLOCK_MONOTONIC);
    until = (begins > until ? begins : until) + 0.1;
    while (now(CLOCK_PROCESS_CPUTIME_ID) < used && now(CLOCK_MONOTONIC) < until) {
    }
    double left = until - now(CLOCK_MONOTONIC);
    if (left > 0) {
      struct timespec rest = {0, (long)(left * 1e9)};
      nanosleep(&rest, 0);
    }
  }
}
