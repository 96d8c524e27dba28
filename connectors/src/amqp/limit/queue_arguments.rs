//! The arguments of an existing queue.
//!
//! AMQP has no request for the arguments of a queue. But the server's error names the first
//! argument in which a declaration differs from the existing queue. So this module declares the
//! queue with arguments that no queue has, and repeats that until every argument that matters is
//! known. [`INVALID_ARGUMENT`] is among them: if the queue is deleted meanwhile, the declaration
//! fails and creates nothing.

use std::collections::{BTreeMap, HashMap};

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, ShortString};

use crate::ConnectorError;
use crate::amqp::connection::BrokerConnection;
use crate::amqp::fault::{code, error_text, reply_code};
use crate::amqp::queue::short;

/// An argument of streams with an invalid value. RabbitMQ creates no queue with it, and ignores it
/// in the comparison with a quorum queue.
const INVALID_ARGUMENT: &str = "x-max-age";
const TYPE_ARGUMENT: &str = "x-queue-type";
const DELIVERY_LIMIT_ARGUMENT: &str = "x-delivery-limit";
const DEAD_LETTER_EXCHANGE_ARGUMENT: &str = "x-dead-letter-exchange";
const DEAD_LETTER_KEY_ARGUMENT: &str = "x-dead-letter-routing-key";
pub(super) const EXPIRES_ARGUMENT: &str = "x-expires";
pub(super) const TTL_ARGUMENT: &str = "x-message-ttl";
pub(super) const MAX_LENGTH_ARGUMENT: &str = "x-max-length";
pub(super) const MAX_BYTES_ARGUMENT: &str = "x-max-length-bytes";
const OVERFLOW_ARGUMENT: &str = "x-overflow";
/// Asked for by a value that no queue has.
const PROBE_ARGUMENTS: [&str; 7] = [
    DELIVERY_LIMIT_ARGUMENT,
    DEAD_LETTER_EXCHANGE_ARGUMENT,
    EXPIRES_ARGUMENT,
    TTL_ARGUMENT,
    MAX_LENGTH_ARGUMENT,
    MAX_BYTES_ARGUMENT,
    OVERFLOW_ARGUMENT,
];
/// The most declarations for one queue: more than a queue has arguments.
const MAX_DECLARATIONS: usize = 32;

/// The arguments of a queue that matter here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueueArguments {
    pub(super) is_quorum: bool,
    /// Of a quorum queue; `None`: the server's default.
    pub(super) limit: Option<String>,
    /// The dead-letter exchange, and the dead-letter routing key if set.
    pub(super) letters: Option<(String, Option<String>)>,
    pub(super) is_stream: bool,
    pub(super) is_durable: bool,
    pub(super) is_auto_delete: bool,
    /// `x-expires` and `x-message-ttl`, ms; the bounds; what happens beyond them.
    pub(super) expires: Option<String>,
    pub(super) ttl: Option<String>,
    pub(super) length: Option<String>,
    pub(super) bytes: Option<String>,
    pub(super) overflow: Option<String>,
}

/// `None` if the user may not ask.
pub(super) async fn made(
    connection: &BrokerConnection,
    queue: &str,
) -> Result<Option<QueueArguments>, ConnectorError> {
    let quorum = AMQPValue::LongString("quorum".into());
    let odds = PROBE_ARGUMENTS.into_iter().chain([INVALID_ARGUMENT]).map(|name| (name, odd()));
    let mut arguments: BTreeMap<ShortString, AMQPValue> =
        odds.chain([(TYPE_ARGUMENT, quorum)]).map(|(name, value)| (name.into(), value)).collect();
    let mut told: HashMap<String, Option<String>> = HashMap::new();
    let (mut durable, mut auto_delete, mut has_age) = (true, false, false);
    // Each declaration tells one argument that differs.
    for _ in 0..MAX_DECLARATIONS {
        let channel = connection.channel().await?;
        let options =
            QueueDeclareOptions { durable, auto_delete, ..QueueDeclareOptions::default() };
        let asked = connection
            .ask(channel.queue_declare(short(queue)?, options, arguments.clone().into()))
            .await?;
        connection.release(channel).await?;
        let Err(error) = asked else { break };
        let words = error_text(&error);
        match (reply_code(&error), difference(&words)) {
            (Some(code::ACCESS_REFUSED), _) => return Ok(None),
            (Some(code::PRECONDITION_FAILED), Some(("durable", _))) if durable => durable = false,
            (Some(code::PRECONDITION_FAILED), Some(("auto_delete", _))) if !auto_delete => {
                auto_delete = true
            }
            // Only streams have an age.
            (Some(code::PRECONDITION_FAILED), Some((INVALID_ARGUMENT, _))) => {
                has_age = true;
                break;
            }
            // The same argument again: this server does not accept the value.
            (Some(code::PRECONDITION_FAILED), Some((differs, there)))
                if !told.contains_key(differs) =>
            {
                match there {
                    Some(text) => arguments.insert(differs.into(), value(text)),
                    None => arguments.remove(differs),
                };
                if differs == DEAD_LETTER_EXCHANGE_ARGUMENT
                    && there.is_some()
                    && !told.contains_key(DEAD_LETTER_KEY_ARGUMENT)
                {
                    arguments.insert(DEAD_LETTER_KEY_ARGUMENT.into(), odd());
                }
                told.insert(differs.to_owned(), there.map(str::to_owned));
            }
            _ => break,
        }
    }
    let is_quorum = durable && !told.contains_key(TYPE_ARGUMENT);
    let mut of = |name: &str| told.remove(name).flatten();
    let letters =
        of(DEAD_LETTER_EXCHANGE_ARGUMENT).map(|exchange| (exchange, of(DEAD_LETTER_KEY_ARGUMENT)));
    Ok(Some(QueueArguments {
        is_quorum: is_quorum && !has_age,
        is_stream: has_age || of(TYPE_ARGUMENT).is_some_and(|kind| kind == "stream"),
        is_durable: durable,
        is_auto_delete: auto_delete,
        limit: of(DELIVERY_LIMIT_ARGUMENT),
        letters,
        expires: of(EXPIRES_ARGUMENT),
        ttl: of(TTL_ARGUMENT),
        length: of(MAX_LENGTH_ARGUMENT),
        bytes: of(MAX_BYTES_ARGUMENT),
        overflow: of(OVERFLOW_ARGUMENT),
    }))
}

/// A value that no argument can have.
fn odd() -> AMQPValue {
    AMQPValue::Boolean(true)
}

/// The argument that differs and its value on the queue, from `inequivalent arg 'x' for queue 'q'
/// in vhost '/': received none but current is the value '5' of type 'signedint'`.
fn difference(text: &str) -> Option<(&str, Option<&str>)> {
    let (_, rest) = text.split_once("inequivalent arg '")?;
    let (name, _) = rest.split_once('\'')?;
    let (_, current) = text.rsplit_once(" but current is ")?;
    let value = current.strip_prefix("the value ").unwrap_or(current);
    let value = value.rsplit_once(" of type ").map_or(value, |(value, _)| value);
    Some((name, value.strip_prefix('\'').and_then(|value| value.strip_suffix('\''))))
}

/// The value of an argument as a declaration sends it: numbers compare as numbers, everything else
/// as text.
fn value(told: &str) -> AMQPValue {
    match told {
        "true" => AMQPValue::Boolean(true),
        "false" => AMQPValue::Boolean(false),
        text => {
            text.parse().map_or_else(|_| AMQPValue::LongString(text.into()), AMQPValue::LongLongInt)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_read() {
        for (rest, expected) in [
            ("received '?' but current is '5'", Some(("a", Some("5")))),
            ("received the value 'true' of type 'bool' but current is none", Some(("a", None))),
            (
                "received none but current is the value 'quorum' of type 'longstr'",
                Some(("a", Some("quorum"))),
            ),
            (
                "received none but current is the value 'o'k' of type 'longstr'",
                Some(("a", Some("o'k"))),
            ),
        ] {
            let text = format!(
                "PRECONDITION_FAILED - inequivalent arg 'a' for queue 'it's' in vhost '/': {rest}"
            );
            assert_eq!(difference(&text), expected, "{rest}");
        }
        assert_eq!(difference("PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'q'"), None);
    }
}
