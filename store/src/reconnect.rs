//! The backoff between two tries: doubling, jittered and bounded. Every reconnect and repeated call
//! uses it.

use std::time::Duration;

/// A pause that doubles from `least` to `most` with each failure in a row. The upper half of each
/// pause is random, so that the instances of a fleet do not retry at the same time.
#[derive(Debug, Clone)]
pub struct Backoff {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// Starts at `least`.
    #[must_use]
    pub fn new(least: Duration, most: Duration) -> Self {
        Backoff { least, most, next: least }
    }

    /// For connections to servers: 50 ms to 2 s, so that a server that is back is found within two
    /// seconds.
    #[must_use]
    pub fn link() -> Self {
        Backoff::new(Duration::from_millis(50), Duration::from_secs(2))
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.most);
        jitter(pause)
    }

    /// Success: the next failure starts at `least` again.
    pub fn reset(&mut self) {
        self.next = self.least;
    }
}

/// A random duration between half of `pause` and all of it.
#[must_use]
pub fn jitter(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_their_bound_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(400));
        for most in [100, 200, 400, 400] {
            let pause = backoff.pause();
            assert!(
                pause >= Duration::from_millis(most / 2) && pause <= Duration::from_millis(most),
                "{pause:?} of {most} ms"
            );
        }
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_millis(100));
    }
}
