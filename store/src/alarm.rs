//! A timer that wakes a task at an instant. Tokio's timer has a resolution of 1 ms and is up to 2
//! ms late; the kernel's timer is exact.

use std::time::Duration;

#[cfg(target_os = "linux")]
use kernel::Timer;

use crate::clock::{self, Instant};

/// Instants are rounded up to a multiple of this after the first: jobs due within it share one
/// wake-up.
const WAKE_UP_GRANULARITY: Duration = Duration::from_micros(250);

/// The timer of one task.
pub struct Alarm {
    base: Instant,
    #[cfg(target_os = "linux")]
    timer: Option<Timer>,
}

impl Default for Alarm {
    /// Falls back to tokio's timer where the kernel's is not available (no file descriptor left,
    /// another system).
    fn default() -> Self {
        Alarm {
            base: clock::now(),
            #[cfg(target_os = "linux")]
            timer: Timer::new().ok(),
        }
    }
}

impl Alarm {
    /// Waits until this instant, never less. Cancel-safe.
    pub async fn until(&mut self, at: Instant) {
        let at = self.base + rounded_up(at.saturating_duration_since(self.base));
        #[cfg(target_os = "linux")]
        if let Some(timer) = &mut self.timer {
            match timer.until(at).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, "the kernel timer failed, from now on jobs may be up to 2 ms late")
                }
            }
            self.timer = None;
        }
        clock::sleep_until(at).await;
    }
}

fn rounded_up(span: Duration) -> Duration {
    let grains = span.as_nanos().div_ceil(WAKE_UP_GRANULARITY.as_nanos());
    // An overflow is later than anybody waits.
    u64::try_from(grains * WAKE_UP_GRANULARITY.as_nanos()).map_or(span, Duration::from_nanos)
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use crate::clock::{self, Instant};

    /// A `timerfd` on the monotonic clock.
    pub(super) struct Timer {
        fd: AsyncFd<OwnedFd>,
        /// The instant that the timer is set to.
        at: Option<Instant>,
    }

    impl Timer {
        pub(super) fn new() -> io::Result<Self> {
            let fd = timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
            )?;
            // The replacement is unsafe: its caller must keep the descriptor the same. This
            // descriptor is owned, so it stays the same.
            #[allow(deprecated, reason = "see above")]
            let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
            Ok(Timer { fd, at: None })
        }

        pub(super) async fn until(&mut self, at: Instant) -> io::Result<()> {
            loop {
                let left = at.saturating_duration_since(clock::now());
                if left.is_zero() {
                    return Ok(());
                }
                if self.at != Some(at) {
                    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
                    let value = Timespec::try_from(left).map_err(io::Error::other)?;
                    timerfd_settime(
                        self.fd.get_ref(),
                        TimerfdTimerFlags::empty(),
                        &Itimerspec { it_interval: zero, it_value: value },
                    )?;
                    self.at = Some(at);
                }
                let mut ready = self.fd.readable().await?;
                // The readiness may be of an earlier instant. Then the read fails and the timer is
                // still set.
                if let Ok(read) =
                    ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut [0; 8])?))
                {
                    read?;
                    self.at = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_never_wakes_before_its_time_whatever_it_was_set_to_before() {
        let mut alarm = Alarm::default();
        let began = clock::now();
        for us in [300, 0, 5000, 700, 10_000] {
            let at = clock::now() + Duration::from_micros(us);
            alarm.until(at).await;
            assert!(clock::now() >= at);
            // A wait that is dropped before its time leaves no wake-up behind.
            let given_up =
                clock::timeout(Duration::from_millis(2), alarm.until(at + Duration::from_secs(60)))
                    .await;
            assert!(given_up.is_none());
        }
        assert!(clock::now() - began >= Duration::from_millis(26));
    }

    #[test]
    fn what_is_due_within_a_grain_wakes_once() {
        let us = Duration::from_micros;
        assert_eq!(
            [0, 1, 250, 251].map(|span| rounded_up(us(span))),
            [us(0), us(250), us(250), us(500)]
        );
        let years = Duration::from_secs(100 * 365 * 86_400);
        assert_eq!((rounded_up(years), rounded_up(Duration::MAX)), (years, Duration::MAX));
    }
}
