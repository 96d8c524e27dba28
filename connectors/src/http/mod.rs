//! HTTP targets: a destination is a URL, a message is a POST request, and its confirm is a 2xx
//! answer. Nothing is read: this connector has no source.
//!
//! In reading order:
//! - `url`: which URLs are targets, and which patterns allow them; `addresses`: which addresses may
//!   be connected to; `resolver`: the look-up, which passes on no other.
//! - `connection`, `counted`: the client: TLS, time limits, connections that are kept.
//! - `headers`, `signature`, `signer`: the request's headers, signed by Standard Webhooks.
//! - `slots`: how many requests, and how many connections, one host has at a time.
//! - `sink`: an attempt a task; `targets`: the URLs that it knows; `outcome`, `retry_after`: what an answer, or an error, means.

mod addresses;
mod config;
mod connection;
mod connector;
mod counted;
mod headers;
mod outcome;
mod pattern;
mod reach;
mod resolver;
mod retry_after;
mod signature;
mod signer;
mod sink;
mod slots;
mod special_purpose;
mod targets;
mod url;

pub use self::addresses::Subnets;
pub use self::config::Config;
pub(crate) use self::connector::CAPABILITIES;
