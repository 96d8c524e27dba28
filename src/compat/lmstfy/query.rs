//! The numbers in the query of a call.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Query as AxumQuery};
use axum::http::request::Parts;

use super::answer::Error;

/// The life of a job where the call does not say, s.
const DEFAULT_TTL_S: u32 = 86_400;
/// The hand-outs of a job where the call does not say.
const DEFAULT_TRIES: u16 = 1;
/// The lease where the call does not say, s.
const DEFAULT_TTR_S: u32 = 120;
/// The longest wait for a job, s, is shorter than this.
const TIMEOUT_LIMIT_S: u32 = 600;
/// The most jobs of one answer.
const MAX_JOBS_PER_ANSWER: usize = 100;

/// A query. The first of several values counts.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let query = AxumQuery::from_request_parts(parts, state).await;
        Ok(query.map_or_else(|_| Query::default(), |AxumQuery(pairs)| Query(pairs)))
    }
}

/// The delay, the life and the hand-outs of a new job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// s from now.
    pub(super) delay: u32,
    /// s from now; 0: for ever.
    pub(super) ttl: u32,
    /// At least 1.
    pub(super) tries: u16,
}

impl Query {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A number without a sign, or the error of its name.
    fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> Result<T, Error> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| digits).ok_or_else(|| Error::bad(format!("invalid {name}")))
    }

    /// Returns the terms of a new job.
    pub(super) fn terms(&self, max_delay_ms: u64) -> Result<Terms, Error> {
        let delay: u32 = self.number("delay", 0)?;
        let ttl: u32 = self.number("ttl", DEFAULT_TTL_S)?;
        if ttl > 0 && ttl < delay {
            return Err(Error::bad("ttl is shorter than delay"));
        }
        let tries: u16 = self.number("tries", DEFAULT_TRIES)?;
        if tries == 0 {
            return Err(Error::bad("tries shouldn't be zero"));
        }
        if u64::from(delay) * 1000 > max_delay_ms {
            return Err(Error::bad("delay exceeds limits.max_delay of the settings"));
        }
        Ok(Terms { delay, ttl, tries })
    }

    /// The lease of a fetched job, s.
    pub(super) fn ttr(&self) -> Result<u32, Error> {
        self.number("ttr", DEFAULT_TTR_S)
    }

    /// Returns the time to wait for a job, s.
    pub(super) fn timeout(&self) -> Result<u32, Error> {
        match self.number("timeout", 0)? {
            timeout if timeout < TIMEOUT_LIMIT_S => Ok(timeout),
            _ => Err(Error::bad(format!("invalid timeout: it must be below {TIMEOUT_LIMIT_S}"))),
        }
    }

    /// The most jobs to fetch.
    pub(super) fn count(&self) -> Result<usize, Error> {
        match self.number("count", 1)? {
            count if (1..=MAX_JOBS_PER_ANSWER).contains(&count) => Ok(count),
            _ => Err(Error::bad("invalid count")),
        }
    }

    /// The most dead jobs of the call.
    pub(super) fn limit(&self) -> Result<usize, Error> {
        match self.number("limit", 1)? {
            0 => Err(Error::bad("invalid limit")),
            limit => Ok(limit),
        }
    }

    /// Returns the life of a respawned job, s; 0: for ever.
    pub(super) fn respawned_ttl(&self) -> Result<u64, Error> {
        self.number("ttl", DEFAULT_TTL_S.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        let pair = |pair: &str| {
            pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        Query(text.split('&').filter_map(pair).collect())
    }

    #[test]
    fn a_query_without_numbers_has_those_of_lmstfy() {
        let query = query("");
        assert_eq!(query.terms(0).ok(), Some(Terms { delay: 0, ttl: 86_400, tries: 1 }));
        assert_eq!(
            (query.ttr().ok(), query.timeout().ok(), query.count().ok(), query.limit().ok()),
            (Some(120), Some(0), Some(1), Some(1))
        );
    }

    #[test]
    fn numbers_out_of_range_are_refused_in_the_words_of_lmstfy() {
        let error = |result: Result<(), Error>| {
            result.err().map(|error| error.text().to_owned()).unwrap_or_default()
        };
        for (text, wanted) in [
            ("delay=x", "invalid delay"),
            ("delay=-1", "invalid delay"),
            ("delay=%2B1", "invalid delay"),
            ("delay=", "invalid delay"),
            ("ttl=4294967296", "invalid ttl"),
            ("delay=3&ttl=2", "ttl is shorter than delay"),
            ("tries=65536", "invalid tries"),
            ("tries=0", "tries shouldn't be zero"),
            ("delay=11&ttl=0", "delay exceeds limits.max_delay of the settings"),
            ("delay=11&delay=1", "delay exceeds limits.max_delay of the settings"),
        ] {
            assert_eq!(error(query(text).terms(10_999).map(|_| ())), wanted, "{text}");
        }
        assert_eq!(error(query("count=101").count().map(|_| ())), "invalid count");
        assert_eq!(error(query("limit=0").limit().map(|_| ())), "invalid limit");
        assert!(query("timeout=600").timeout().is_err() && query("timeout=599").timeout().is_ok());
        assert_eq!(
            query("ttl=0&delay=10&tries=65535").terms(10_000).ok(),
            Some(Terms { delay: 10, ttl: 0, tries: 65_535 })
        );
    }
}
