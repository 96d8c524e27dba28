//! The differences between kinds of brokers, as data: the rest of Dwell asks this, and never for a
//! broker's name.

/// The differences between kinds of brokers. [`Capabilities::new`] is a broker with a log, text
/// headers and plain addresses.
#[derive(Debug)]
pub struct Capabilities {
    /// The kind, as in `type` of `[brokers.NAME]`.
    pub kind: &'static str,
    /// The name of the protocol, for error messages.
    pub protocol: &'static str,
    /// The noun for an address: `subject`, `topic`, `routing key`.
    pub address: &'static str,
    /// The noun for the result of [`crate::Connector::endpoint`].
    pub endpoint: &'static str,
    /// The hint in logs for an endpoint that confirms nothing.
    pub silent_hint: &'static str,
    /// Messages can be read: an ingest can name this kind. Otherwise it only takes messages.
    pub sources: bool,
    /// A destination is an exchange with a routing key.
    pub exchanges: bool,
    /// A topic is a log: positions and times are the broker's, and a new group chooses where to
    /// start. Otherwise a topic is a queue.
    pub log: bool,
    /// Only the members of a group decide where the group starts, so ingests with different starts
    /// need different groups.
    pub start_is_the_groups: bool,
    /// The broker reports redeliveries, so `redelivered` is false for a first delivery.
    pub reports_redelivery: bool,
    /// A queue can dead-letter its expired messages to another queue, which the source reads too
    /// (`expired_queue`).
    pub expired_queue: bool,
    /// A message can have a key, and a missing body differs from an empty one.
    pub keys: bool,
    /// A message can have [`crate::Properties`].
    pub properties: bool,
    /// The `delivery_mode` without which the broker loses a message at a restart.
    pub delivery_mode: Option<u8>,
    /// Header values have types: a number is no text, and a list is one value.
    pub typed_headers: bool,
    /// A header value can be bytes that are not UTF-8.
    pub byte_headers: bool,
    /// A header name occurs at most once.
    pub unique_headers: bool,
    /// Headers arrive as lines of text. A line that is no header arrives as a header without a
    /// name.
    pub header_lines: bool,
    /// Headers whose values are further routing keys on the destination's exchange, each of which
    /// gets a copy.
    pub copy_headers: &'static [&'static str],
    /// Headers whose integer values make a queue hold a message back until a time.
    pub parking_headers: &'static [&'static str],
    /// The header by which the broker removes a published message after a time. Only Dwell sets it:
    /// that of an inbound message does not pass.
    pub ttl_header: Option<&'static str>,
    /// The prefix of the headers that carry the attributes of a CloudEvent; empty: a broker of this
    /// kind gets no events.
    pub event_prefix: &'static str,
    /// The values of these headers are percent-encoded beyond printable ASCII.
    pub encodes_events: bool,
    /// [`crate::Sink::exists`] accepts a pattern.
    pub finds_patterns: bool,
    /// Log directives for the client library, such as `library=warn`, with commas; empty for none.
    pub log_filter: &'static str,
    /// The client library logs message bodies at any level: nothing that the library of
    /// `log_filter` says is ever logged.
    pub logs_bodies: bool,
}

impl Capabilities {
    /// A broker with a log, text headers and plain addresses.
    #[must_use]
    pub const fn new(kind: &'static str, protocol: &'static str, address: &'static str) -> Self {
        Capabilities {
            kind,
            protocol,
            address,
            endpoint: "destination",
            silent_hint: "check that the broker takes its messages",
            sources: true,
            exchanges: false,
            log: true,
            start_is_the_groups: false,
            reports_redelivery: true,
            expired_queue: false,
            keys: false,
            properties: false,
            delivery_mode: None,
            typed_headers: false,
            byte_headers: false,
            unique_headers: false,
            header_lines: false,
            copy_headers: &[],
            parking_headers: &[],
            ttl_header: None,
            event_prefix: "ce-",
            encodes_events: true,
            finds_patterns: false,
            log_filter: "",
            logs_bodies: false,
        }
    }
}
