//! HTTP targets: a destination is a URL, a message is a POST request, and its confirm is a 2xx
//! answer. Nothing is read: this connector has no source.
//!
//! In reading order:
//! - `url`: which URLs are targets, and which patterns allow them; `addresses`: which addresses may
//!   be connected to; `resolver`: the look-up, which passes on no other.
//! - `headers`, `signature`, `signer`: the request's headers, signed by Standard Webhooks;
//!   `request`: the whole request.
//! - `sink`: where publications come in; `targets`: the URLs that it knows; `hosts`, `hosts/host`:
//!   the requests of each host that wait, its connections, and how many it may have.
//! - `hosts/host/worker`: a task for each connection, which carries one request at a time; `connection`: how
//!   it connects, with TLS; `metered`: what is read of it; `link`, `http2`: HTTP/1.1 and HTTP/2
//!   over that; `outgoing`: which streams of HTTP/2 were opened.
//! - `outcome`, `retry_after`: what an answer, or an error, means.

mod addresses;
mod config;
mod connection;
mod connector;
mod headers;
mod hosts;
mod http2;
mod limits;
mod link;
mod metered;
mod outcome;
mod outgoing;
mod pattern;
mod reach;
mod request;
mod resolver;
mod retry_after;
mod signature;
mod signer;
mod sink;
mod special_purpose;
mod targets;
mod url;

pub use self::addresses::Subnets;
pub use self::config::Config;
pub(crate) use self::connector::CAPABILITIES;
