//! The types that the store and the connectors share: the parts of a message, and a URL without
//! its password.
//!
//! The store knows no broker and the connectors know no Redis, so the types that both use are
//! here. This crate does no input or output.
//!
//! - [`Destination`]: the destination of a message; [`shown_address`]: its text without secrets.
//! - [`Headers`], [`Header`], [`Value`]: the headers of a message.
//! - [`Properties`]: the properties of an AMQP message.
//! - [`parse_duration_ms`], [`show_duration_ms`]: durations as text; [`quote`]: a text in a
//!   message.
//! - [`redacted`]: URLs as logs and errors may show them; [`split_urls`]: the URLs of a list.
//! - [`secret_text`], [`unreadable`]: the content of a secret's file, or the reason why the file
//!   cannot be read.

mod destination;
mod duration;
mod file;
mod headers;
mod properties;
mod url;
mod value;

pub use destination::{Destination, shown_address};
pub use duration::{parse_duration_ms, parse_durations_ms, quote, show_duration_ms};
pub use file::{FILE_HINT, io_reason, secret_text, unreadable};
pub use headers::{Header, Headers};
pub use properties::Properties;
pub use url::{is_address, known_scheme, redacted, split_urls};
pub use value::Value;

/// The bytes that an allocation of this size takes: allocators round up.
#[must_use]
pub fn allocated(bytes: usize) -> usize {
    bytes.next_multiple_of(16)
}
