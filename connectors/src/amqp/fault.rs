//! Errors of the server and of lapin, and what the caller does next.

use lapin::ErrorKind as Cause;

use crate::error::innermost;
use crate::{ConnectorError, ErrorKind};

/// The reply codes of AMQP 0-9-1 that decide something here.
pub(super) mod code {
    pub(in super::super) const ACCESS_REFUSED: u16 = 403;
    pub(in super::super) const NOT_FOUND: u16 = 404;
    pub(in super::super) const RESOURCE_LOCKED: u16 = 405;
    pub(in super::super) const PRECONDITION_FAILED: u16 = 406;
    pub(in super::super) const NOT_ALLOWED: u16 = 530;
}

/// The server's reply code, if the server closed the channel or connection.
pub(super) fn reply_code(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        Cause::ProtocolError(reply) => Some(reply.get_id()),
        _ => None,
    }
}

/// The message of the error without lapin's context.
pub(super) fn error_text(error: &lapin::Error) -> String {
    match error.kind() {
        Cause::ProtocolError(reply) => reply.get_message().to_string(),
        Cause::IOError(error) => innermost(&**error),
        _ => error.to_string(),
    }
}

/// The hint for a server that opens no more channels, of the user, the connection or the node;
/// empty for any other error.
pub(super) fn limit_hint(why: &str) -> &'static str {
    if why.contains("number of channels opened") {
        "raise the limit of channels (rabbitmqctl set_user_limits; channel_max, channel_max_per_node)"
    } else {
        ""
    }
}

/// The error of a failed connect, by what the caller can do.
pub(super) fn refused(place: &str, error: lapin::Error) -> ConnectorError {
    let why = error_text(&error);
    let lower = why.to_lowercase();
    let (kind, hint) = match (reply_code(&error), error.kind()) {
        (Some(code::ACCESS_REFUSED), _) => {
            (ErrorKind::Denied, "check user and password, and that the user may log in from here")
        }
        // A limit of the vhost, the user or the node; some of its texts say that the connection is refused.
        (Some(code::NOT_ALLOWED), _)
            if lower.contains("limit (") && lower.contains("is reached") =>
        {
            (
                ErrorKind::Disconnected,
                "raise the limit of connections (rabbitmqctl set_vhost_limits, set_user_limits; connection_max)",
            )
        }
        (Some(code::NOT_ALLOWED), _) if lower.contains("not found") => (
            ErrorKind::Missing,
            "check the vhost at the end of the URL: `/` in its name is written %2f",
        ),
        (Some(code::NOT_ALLOWED), _) if lower.contains("refused") => (
            ErrorKind::Denied,
            "grant the user permissions on the vhost (rabbitmqctl set_permissions)",
        ),
        (_, Cause::AuthProviderError(_)) => {
            (ErrorKind::Config, "check `auth_mechanism` in the URL")
        }
        (_, Cause::IOError(error))
            if error.kind() == std::io::ErrorKind::InvalidData && lower.contains("pem") =>
        {
            (ErrorKind::Config, "check the files of `tls_…`")
        }
        _ if lower.contains("certificate") => (
            ErrorKind::Disconnected,
            "check `tls_ca_file`, and the name in the server's certificate",
        ),
        _ => (ErrorKind::Disconnected, "is the server running, and the address right?"),
    };
    ConnectorError::new(kind, format!("cannot connect to amqp at {place}: {why}"))
        .hint(hint)
        .because(error)
}

/// Why a publishing channel was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelFailure {
    /// The exchange does not exist.
    NoExchange,
    /// The user may not publish to the destination.
    NoRight,
    /// A body exceeded this many bytes.
    TooLarge(u64),
    /// The broker rejected the properties of a message.
    BadMessage,
    /// A failure of the connection or of the broker.
    Other,
}

/// The meaning of this error for the publications on its channel.
pub(super) fn channel_failure(error: &lapin::Error) -> ChannelFailure {
    match reply_code(error) {
        Some(code::NOT_FOUND) => ChannelFailure::NoExchange,
        Some(code::ACCESS_REFUSED) => ChannelFailure::NoRight,
        Some(code::PRECONDITION_FAILED) => body_limit(&error_text(error))
            .map_or(ChannelFailure::BadMessage, ChannelFailure::TooLarge),
        _ => ChannelFailure::Other,
    }
}

/// The limit in `message size 2000 is larger than configured max size 1000`; RabbitMQ's versions
/// word this differently.
fn body_limit(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("message size ")?;
    let (_, bound) = rest.split_once("larger than")?;
    bound
        .split(|letter: char| !letter.is_ascii_digit())
        .find(|digits| !digits.is_empty())?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPHardError};

    use super::*;

    #[test]
    fn a_refused_connection_is_told_by_what_the_caller_can_do() {
        for (text, kind) in [
            (
                "NOT_ALLOWED - access to vhost '/' refused for user 'bob': connection limit (1) is reached",
                ErrorKind::Disconnected,
            ),
            (
                "NOT_ALLOWED - connection refused for user 'bob': user connection limit (1) is reached",
                ErrorKind::Disconnected,
            ),
            (
                "NOT_ALLOWED - connection refused: node connection limit (1) is reached",
                ErrorKind::Disconnected,
            ),
            // Names of a user, which are no reason to wait.
            ("NOT_ALLOWED - vhost limit not found", ErrorKind::Missing),
            ("NOT_ALLOWED - access to vhost 'limit' refused for user 'reached'", ErrorKind::Denied),
        ] {
            let reply = AMQPError::new(AMQPHardError::NOTALLOWED.into(), text.into());
            let told = refused("localhost", Cause::ProtocolError(reply).into());
            assert_eq!(told.kind, kind, "{text}");
            assert!(told.to_string().contains(text), "{told}");
        }
    }

    #[test]
    fn the_bound_of_a_body_is_read() {
        for text in [
            "PRECONDITION_FAILED - message size 2000 is larger than configured max size 1000",
            "PRECONDITION_FAILED - message size 2000 larger than max size 1000",
        ] {
            assert_eq!(body_limit(text), Some(1000));
        }
        assert_eq!(body_limit("PRECONDITION_FAILED - invalid expiration '-1'"), None);
    }
}
