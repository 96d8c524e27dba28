//! The Redis that holds the jobs: its mode, and what a write waits for.

use std::path::PathBuf;

use dwell_core::redacted;
use serde::{Deserialize, Serialize};

use crate::store::error::{Class, StoreError};
use crate::store::refusals::Refusals;

/// The kind of Redis at the URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum RedisMode {
    /// One server.
    Single,
    /// A Redis Cluster.
    Cluster,
    /// Sentinels that know the master.
    Sentinel,
}

/// What the acknowledgement of a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum Durability {
    /// Redis has the job in memory.
    #[serde(rename = "memory")]
    Memory,
    /// Redis has the job on disk.
    #[serde(rename = "fsync")]
    Fsync,
    /// A replica has the job too.
    #[serde(rename = "replica")]
    Replica,
    /// Redis has the job on disk, and a replica has the job too.
    #[serde(rename = "fsync+replica")]
    FsyncReplica,
}

/// What is wrong with a name, and its hint.
pub type NameProblem = (String, &'static str);

/// The name of a broker, which becomes part of keys, variables and labels.
///
/// # Errors
/// What is wrong with it.
pub fn check_broker_name(name: &str) -> Result<(), NameProblem> {
    let known = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
    };
    if (1..=64).contains(&name.len()) && name.bytes().all(known) {
        return Ok(());
    }
    Err((
        "this name cannot be used".to_owned(),
        "write 1 to 64 lower-case letters, digits, - and _",
    ))
}

/// A namespace. A brace would change the hash tag, and so the cluster slot, of the keys.
///
/// # Errors
/// What is wrong with it.
pub fn check_namespace(text: &str) -> Result<(), NameProblem> {
    if text.is_empty() {
        return Err(("the namespace is empty".to_owned(), "name one, such as \"dwell\""));
    }
    if text.len() > 128 {
        return Err((format!("the namespace has {} bytes", text.len()), "write at most 128"));
    }
    if text.chars().any(|c| c.is_control() || matches!(c, '{' | '}')) {
        return Err((
            "the namespace holds a brace or a control character".to_owned(),
            "write letters, digits, - and _",
        ));
    }
    Ok(())
}

/// Which Redis holds the jobs, under which namespace, and what a write waits for: `[redis]` of the
/// settings file. `Debug` and serde show no password: what serde writes is for people.
#[derive(Clone)]
#[cfg_attr(feature = "schema", derive(Serialize, Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "schema", serde(default, deny_unknown_fields))]
#[cfg_attr(feature = "schema", schemars(description = "Where jobs are kept."))]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct Redis {
    /// The kind of Redis at the URLs.
    pub mode: RedisMode,
    /// The URL of one server, or the URLs of a cluster's servers or of sentinels:
    /// `redis://user:password@host:port/db`, or `rediss://` for TLS.
    #[cfg_attr(feature = "schema", serde(serialize_with = "shown::urls"))]
    pub urls: Vec<String>,
    /// A file with the URLs, one per line, instead of `urls`: for URLs with passwords. Read again
    /// for each connection.
    #[cfg_attr(feature = "schema", serde(skip_serializing_if = "Option::is_none"))]
    pub urls_file: Option<PathBuf>,
    /// The user of the sentinels; without it their default user. User and password in the URLs of
    /// sentinels are those of Redis itself.
    #[cfg_attr(feature = "schema", serde(skip_serializing_if = "Option::is_none"))]
    pub sentinel_user: Option<String>,
    /// The password of the sentinels, if they ask for one.
    #[cfg_attr(
        feature = "schema",
        serde(skip_serializing_if = "Option::is_none", serialize_with = "shown::password")
    )]
    pub sentinel_password: Option<String>,
    /// A file with the password of the sentinels, instead of `sentinel_password`.
    #[cfg_attr(feature = "schema", serde(skip_serializing_if = "Option::is_none"))]
    pub sentinel_password_file: Option<PathBuf>,
    /// The name of the master that the sentinels monitor.
    pub master: String,
    /// Prefix of every key. Instances with the same namespace share their jobs.
    pub namespace: String,
    /// The number of parts that the jobs are split into, 1 to 1024. Fixed by the first use of the
    /// namespace.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1024)))]
    pub buckets: u16,
    /// What must have the job before the request is acknowledged.
    pub durability: Durability,
    /// Assume that the server syncs each write to disk although it does not report that (managed
    /// Redis).
    pub assume_fsync: bool,
    /// What Redis refuses the connections with these settings, those of all clones.
    #[doc(hidden)]
    #[cfg_attr(feature = "schema", serde(skip))]
    pub refusals: Refusals,
}

/// The URLs in a text: one a line, or separated by commas.
#[must_use]
pub fn urls_in(text: &str) -> Vec<String> {
    text.split(['\n', ','])
        .map(str::trim)
        .filter(|url| !url.is_empty())
        .map(str::to_owned)
        .collect()
}

impl Redis {
    /// One server at this URL, with the defaults of `[redis]`: namespace `dwell`, 16 buckets, no
    /// wait for the disk or a replica.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Redis {
            mode: RedisMode::Single,
            urls: vec![url.into()],
            urls_file: None,
            sentinel_user: None,
            sentinel_password: None,
            sentinel_password_file: None,
            master: "mymaster".to_owned(),
            namespace: "dwell".to_owned(),
            buckets: 16,
            durability: Durability::Memory,
            assume_fsync: false,
            refusals: Refusals::default(),
        }
    }

    /// Refuses names and numbers that cannot be used, before anybody asks Redis. The sidecar reports
    /// the same with the names of its settings.
    ///
    /// # Errors
    /// [`Class::Settings`] for the first of them.
    #[doc(hidden)]
    pub fn refuse_invalid(&self, brokers: &[&str]) -> Result<(), StoreError> {
        let refuse = |what: String, (why, hint): NameProblem| {
            Err(StoreError::new(Class::Settings, format!("{what}: {why}")).hint(hint))
        };
        if let Err(problem) = check_namespace(&self.namespace) {
            return refuse("namespace".to_owned(), problem);
        }
        if !(1..=1024).contains(&self.buckets) {
            return refuse(
                format!("buckets: {}", self.buckets),
                ("not a number of buckets".to_owned(), "write 1 to 1024"),
            );
        }
        if self.urls.is_empty() && self.urls_file.is_none() {
            return refuse(
                "urls".to_owned(),
                ("there is no URL".to_owned(), "write \"redis://127.0.0.1:6379\""),
            );
        }
        for broker in brokers {
            if let Err(problem) = check_broker_name(broker) {
                return refuse(format!("broker `{}`", broker.escape_debug()), problem);
            }
        }
        Ok(())
    }
}

/// The defaults of `[redis]`, which config/default.toml has too.
#[cfg(feature = "schema")]
impl Default for Redis {
    fn default() -> Self {
        Redis::new("redis://127.0.0.1:6379")
    }
}

/// The settings as text: no password is in it.
#[cfg(feature = "schema")]
mod shown {
    use serde::Serializer;

    use super::redacted;

    pub(super) fn urls<S: Serializer>(urls: &[String], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(urls.iter().map(|url| redacted(url)))
    }

    pub(super) fn password<T, S: Serializer>(_: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis")
            .field("mode", &self.mode)
            .field("urls", &self.urls.iter().map(|url| redacted(url)).collect::<Vec<_>>())
            .field("urls_file", &self.urls_file)
            .field("sentinel_user", &self.sentinel_user)
            .field("sentinel_password", &self.sentinel_password.as_ref().map(|_| "***"))
            .field("sentinel_password_file", &self.sentinel_password_file)
            .field("master", &self.master)
            .field("namespace", &self.namespace)
            .field("buckets", &self.buckets)
            .field("durability", &self.durability)
            .field("assume_fsync", &self.assume_fsync)
            .finish_non_exhaustive()
    }
}
