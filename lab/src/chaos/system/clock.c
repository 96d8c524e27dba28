/* A wall clock that can jump. Preloaded into a process, it adds an offset to every reading of the wall
 * clock: the number of seconds in the file that CHAOS_CLOCK_OFFSET names. The file is read again after
 * 10 ms, so that the clock jumps while the process runs. The monotonic clock is unchanged.
 *
 * A wait on a condition until a wall-clock time follows this clock too, as in the kernel: it is longer if
 * the clock is set back meanwhile. Waits of futexes by the wall clock are not covered; the programs under
 * test use conditions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/time.h>
#include <threads.h>
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

typedef int (*signalling)(void *);

static signalling next(_Atomic(signalling) *known, const char *name) {
    signalling found = atomic_load(known);
    if (!found) {
        /* The first version of conditions has another layout. */
        found = (signalling)dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
        if (!found) found = (signalling)dlsym(RTLD_NEXT, name);
        atomic_store(known, found);
    }
    return found;
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

/* The interval at which a wait reads the clock again, ms. */
enum { SLICE = 20, SLOTS = 1024 };

/* The number of signals of each condition, by its address: a signal between two slices of a wait would
 * otherwise be lost. */
static _Atomic unsigned signals[SLOTS];

static _Atomic unsigned *signals_of(void *cond) {
    return &signals[((unsigned long)cond >> 4) % SLOTS];
}

/* In glibc the conditions of C11 are those of POSIX under other names. */
#define SIGNALS(name, type)                                \
    int name(type *cond) {                                 \
        static _Atomic(signalling) known;                  \
        atomic_fetch_add(signals_of(cond), 1);             \
        return next(&known, #name)(cond);                  \
    }
SIGNALS(pthread_cond_signal, pthread_cond_t)
SIGNALS(pthread_cond_broadcast, pthread_cond_t)
SIGNALS(cnd_signal, cnd_t)
SIGNALS(cnd_broadcast, cnd_t)

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    /* A condition may use the monotonic clock, whose times are before the year 2001. */
    if (until->tv_sec < 1000000000) return pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, until);
    unsigned before = atomic_load(signals_of(cond));
    for (;;) {
        struct timespec now, slice;
        clock_gettime(CLOCK_REALTIME, &now);
        long left_s = until->tv_sec - now.tv_sec, left_ns = SLICE * 1000000L;
        if (left_s <= 1) left_ns = left_s * 1000000000L + until->tv_nsec - now.tv_nsec;
        if (left_ns <= 0) return ETIMEDOUT;
        real()(CLOCK_MONOTONIC, &slice);
        slice.tv_nsec += left_ns < SLICE * 1000000L ? left_ns : SLICE * 1000000L;
        slice.tv_sec += slice.tv_nsec / 1000000000L;
        slice.tv_nsec %= 1000000000L;
        int result = pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &slice);
        if (result != ETIMEDOUT) return result;
        if (atomic_load(signals_of(cond)) != before) return 0;
    }
}

int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict until) {
    int result = pthread_cond_timedwait((pthread_cond_t *)cond, (pthread_mutex_t *)mutex, until);
    return result == ETIMEDOUT ? thrd_timedout : result ? thrd_error : thrd_success;
}
