//! The wait of an agent: told on `/readyz` at once, and in the log every ten seconds.

use std::fmt::Display;
use std::time::Duration;

use dwell_connectors::ErrorKind;

use super::{Readiness, Waiting};
use crate::clock::{self, Instant};

/// The interval at which the log repeats a wait.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// One agent's wait for one thing, over all its outages.
pub struct Outage {
    readiness: Readiness,
    what: Waiting,
    logged: Option<Instant>,
}

impl Outage {
    /// Nothing is waited for yet.
    #[must_use]
    pub fn new(readiness: &Readiness, what: Waiting) -> Self {
        Outage { readiness: readiness.clone(), what, logged: None }
    }

    /// One more try has failed.
    pub fn tell(&mut self, kind: ErrorKind, error: &dyn Display, hint: &str) {
        self.readiness.missing(&self.what, &error.to_string());
        let now = clock::now();
        if self.logged.is_some_and(|logged| now.duration_since(logged) < LOG_INTERVAL) {
            return;
        }
        self.logged = Some(now);
        let what = &self.what;
        match kind {
            ErrorKind::Disconnected => {
                tracing::warn!(waiting_for = %what, %error, hint, "cannot be reached, waiting")
            }
            ErrorKind::Missing => {
                tracing::warn!(waiting_for = %what, %error, hint, "is missing, waiting")
            }
            ErrorKind::Denied | ErrorKind::Config => {
                tracing::warn!(waiting_for = %what, %error, hint, "is refused, waiting")
            }
        }
    }

    /// It is there. The log tells of the next outage at once only if it was there for long,
    /// `steady`: a thing that comes and goes fills no log.
    pub fn is_over(&mut self, steady: bool) {
        self.readiness.reached(&self.what);
        if steady {
            self.log_anew();
        }
    }

    /// The log tells of the next outage at once. Does not say that it is there.
    pub fn log_anew(&mut self) {
        self.logged = None;
    }
}
