/* A wall clock that jumps: preloaded into a process, it adds to every reading of the wall clock what the file says that CHAOS_CLOCK_OFFSET names
 * (seconds, text). Read anew each 10 ms at most, so that the clock jumps while the process runs. The monotonic clock is left as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int (*reading)(clockid_t, struct timespec *);

static reading real(void) {
    static _Atomic(reading) known;
    reading found = atomic_load(&known);
    if (!found) {
        found = (reading)dlsym(RTLD_NEXT, "clock_gettime");
        atomic_store(&known, found);
    }
    return found;
}

static long offset(void) {
    static _Atomic long seconds, looked_ms = -1000;
    struct timespec now;
    real()(CLOCK_MONOTONIC, &now);
    long now_ms = now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (now_ms - atomic_load(&looked_ms) >= 10) {
        atomic_store(&looked_ms, now_ms);
        const char *path = getenv("CHAOS_CLOCK_OFFSET");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (file >= 0) {
            char text[32] = {0};
            if (read(file, text, sizeof text - 1) > 0) atomic_store(&seconds, atol(text));
            close(file);
        }
    }
    return atomic_load(&seconds);
}

static int is_wall(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = real()(clock, time);
    if (!result && is_wall(clock)) time->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    if (!result) *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return result;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
