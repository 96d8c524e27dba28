//! Finds out whether a queue loses messages that were confirmed to their producers, as far as AMQP shows it:
//! messages that are redelivered often, expire, or exceed its bounds, and the queue as a whole.
//!
//! AMQP has no request for the arguments of a queue. But the server's error names the first
//! argument in which a declaration differs from the existing queue. So this module declares the
//! queue with arguments that no queue has, and repeats that until every argument that matters is
//! known. [`INVALID_ARGUMENT`] is among them: if the queue is deleted meanwhile, the declaration fails and
//! creates nothing.

use std::collections::{BTreeMap, HashMap};

use lapin::options::{BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::connection::BrokerConnection;
use super::fault::{code, error_text, reply_code};
use super::queue::short;
use super::reader::PRIORITY_ARGUMENT;
use crate::{Caution, CautionKind, ConnectorError, SourceOptions};

/// An argument of streams with an invalid value. RabbitMQ creates no queue with it, and ignores it
/// in the comparison with a quorum queue.
const INVALID_ARGUMENT: &str = "x-max-age";
/// The argument that sets where a reader of a stream begins.
const OFFSET_ARGUMENT: &str = "x-stream-offset";
const TYPE_ARGUMENT: &str = "x-queue-type";
const DELIVERY_LIMIT_ARGUMENT: &str = "x-delivery-limit";
const DEAD_LETTER_EXCHANGE_ARGUMENT: &str = "x-dead-letter-exchange";
const DEAD_LETTER_KEY_ARGUMENT: &str = "x-dead-letter-routing-key";
const EXPIRES_ARGUMENT: &str = "x-expires";
const TTL_ARGUMENT: &str = "x-message-ttl";
const MAX_LENGTH_ARGUMENT: &str = "x-max-length";
const MAX_BYTES_ARGUMENT: &str = "x-max-length-bytes";
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
/// Limits from this value on count as unlimited.
const MIN_UNLIMITED_DELIVERIES: i64 = 1000;
/// The hint for a queue that keeps messages however often they are redelivered.
const UNLIMITED_HINT: &str = "create it again with x-delivery-limit 2147483647";

/// The caution for a queue whose arguments a user may not see.
const UNSEEN_CAUTION: &str = "may lose requests: this user may not see whether it is a stream, not durable, auto-delete, or has an x-expires, \
    x-message-ttl, x-max-length or x-delivery-limit";
/// The hint for this caution.
const PERMISSION_HINT: &str = "grant the user the right to configure the queue, at least for `dwell check` (rabbitmqctl set_permissions)";

/// The arguments of a queue that matter here.
#[derive(Debug, PartialEq, Eq)]
struct QueueArguments {
    is_quorum: bool,
    /// Of a quorum queue; `None`: the server's default.
    limit: Option<String>,
    /// The dead-letter exchange, and the dead-letter routing key if set.
    letters: Option<(String, Option<String>)>,
    is_stream: bool,
    is_durable: bool,
    is_auto_delete: bool,
    /// `x-expires` and `x-message-ttl`, ms; the bounds; what happens beyond them.
    expires: Option<String>,
    ttl: Option<String>,
    length: Option<String>,
    bytes: Option<String>,
    overflow: Option<String>,
}

/// Whether an existing queue is a stream. A user who may not ask for its arguments may read it: a stream alone
/// takes an offset from its reader, and no priority.
pub(super) async fn is_stream(connection: &BrokerConnection, queue: &str) -> Result<bool, ConnectorError> {
    match made(connection, queue).await? {
        Some(made) => Ok(made.is_stream),
        None => Ok(may_read(connection, queue, OFFSET_ARGUMENT, AMQPValue::LongString("next".into())).await?
            && !may_read(connection, queue, PRIORITY_ARGUMENT, AMQPValue::LongInt(0)).await?),
    }
}

/// Whether the server accepts a reader with this argument. The reader settles no message.
async fn may_read(connection: &BrokerConnection, queue: &str, name: &'static str, value: AMQPValue) -> Result<bool, ConnectorError> {
    let channel = connection.channel().await?;
    let one = connection.ask(channel.basic_qos(1, BasicQosOptions::default())).await?;
    let mut arguments = FieldTable::default();
    arguments.insert(name.into(), value);
    let reads = connection.ask(channel.basic_consume(short(queue)?, "".into(), BasicConsumeOptions::default(), arguments)).await?;
    let may_read = one.is_ok() && reads.is_ok();
    // A message that the reader got goes back to the queue.
    let _ = connection.ask(channel.close(200, "".into())).await?;
    Ok(may_read)
}

/// The risks of these existing queues.
pub(super) async fn cautions(connection: &BrokerConnection, options: &SourceOptions) -> Result<Vec<Caution>, ConnectorError> {
    let SourceOptions { topic, expired_queue, .. } = options;
    let caution = |kind, queue: &str, what: &str, hint: String| Caution { kind, message: format!("the queue `{queue}` {what}"), hint };
    let back = "and a reader that ends returns its unsettled messages";
    let is_4 = connection.version().and_then(|version| version.split('.').next()?.parse::<u32>().ok()).is_none_or(|major| major >= 4);
    let dropped = |queue: &str, made: &QueueArguments| {
        drops(made, is_4).map(|what| caution(CautionKind::Drops, queue, &format!("{what}, {back}"), UNLIMITED_HINT.to_owned()))
    };
    let mut cautions = Vec::new();
    match made(connection, topic).await? {
        Some(made) => {
            cautions.extend(dropped(topic, &made));
            cautions.extend(expires(&made, expired_queue.as_deref()).map(|(what, hint)| caution(CautionKind::Expires, topic, &what, hint)));
            let is_read = expired_queue.is_some() && expires(&made, expired_queue.as_deref()).is_none();
            cautions
                .extend(loses(&made, is_read).into_iter().map(|(what, hint)| caution(CautionKind::Loses, topic, &what, hint.to_owned())));
            cautions.extend(
                holds_back(&made, connection.version())
                    .map(|what| caution(CautionKind::HoldsBack, topic, &what, HOLDS_BACK_HINT.to_owned())),
            );
        }
        None => cautions.push(caution(CautionKind::Loses, topic, UNSEEN_CAUTION, PERMISSION_HINT.to_owned())),
    }
    // Nothing expires in the expired queue.
    if let Some(queue) = expired_queue {
        match made(connection, queue).await? {
            Some(made) => {
                cautions.extend(dropped(queue, &made));
                let losses = loses(&made, false).into_iter();
                cautions.extend(losses.map(|(what, hint)| caution(CautionKind::Loses, queue, &what, hint.to_owned())));
            }
            None => cautions.push(caution(CautionKind::Loses, queue, UNSEEN_CAUTION, PERMISSION_HINT.to_owned())),
        }
    }
    Ok(cautions)
}

/// The losses of requests that were confirmed to their producers, each with a hint. `is_read`: dropped
/// requests go to the expired queue, which is read.
fn loses(made: &QueueArguments, is_read: bool) -> Vec<(String, &'static str)> {
    let mut losses = Vec::new();
    if made.is_auto_delete {
        let what = "is deleted with every request in it when its last reader leaves, as at a restart of Dwell (auto-delete)";
        losses.push((what.to_owned(), "create it again without auto-delete"));
    }
    if !made.is_durable {
        losses.push(("is gone with every request in it when the broker restarts (not durable)".to_owned(), "create it again as durable"));
    }
    if let Some(ms) = &made.expires {
        let what = format!("has an {EXPIRES_ARGUMENT} of {ms} ms: without a reader for so long it is deleted with every request in it");
        losses.push((what, "create it again without x-expires"));
    }
    if let Some(ms) = made.ttl.as_ref().filter(|_| !is_read) {
        let what = format!("has an {TTL_ARGUMENT} of {ms} ms: a request that waits longer is dropped");
        losses.push((what, "create it again without x-message-ttl, or name the queue that its dead letters go to in `expired_queue`"));
    }
    let drops_oldest = made.overflow.as_deref().is_none_or(|overflow| overflow == "drop-head") && !is_read;
    for (name, bound) in [(MAX_LENGTH_ARGUMENT, &made.length), (MAX_BYTES_ARGUMENT, &made.bytes)] {
        if let Some(bound) = bound.as_ref().filter(|_| drops_oldest) {
            let what = format!("has an {name} of {bound}: beyond it the oldest request is dropped (x-overflow drop-head)");
            losses.push((what, "create it again with x-overflow reject-publish, or without a bound"));
        }
    }
    losses
}

/// The hint for requests that the queue holds back.
const HOLDS_BACK_HINT: &str = "let producers send delay-until, or the header as text, which a queue does not read";

/// The caution for a quorum queue of RabbitMQ 4.4 or later, which obeys the header of a dialect.
fn holds_back(made: &QueueArguments, version: Option<&str>) -> Option<String> {
    let version = version.filter(|_| made.is_quorum)?;
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let is_44 = (numbers.next()?, numbers.next()?) >= (4, 4);
    is_44.then(|| {
        format!("holds a request with an integer x-opt-delivery-time back until that time (RabbitMQ {version}): Dwell reads it only then, and nobody can cancel or see it before")
    })
}

/// The risk for a message that is redelivered often.
fn drops(made: &QueueArguments, is_4: bool) -> Option<String> {
    if !made.is_quorum || made.letters.is_some() {
        return None;
    }
    let limit = made.limit.as_deref().and_then(|limit| limit.parse::<i64>().ok());
    match limit {
        None => Some("has no x-delivery-limit: RabbitMQ 4.0 to 4.2 drops a message that was redelivered 20 times".to_owned()),
        // RabbitMQ 4.0 and later read this as unlimited. Earlier versions do not check the value,
        // and one redelivery exceeds it.
        Some(limit) if limit < 0 && is_4 => None,
        Some(limit) if limit < 0 => {
            Some(format!("has an x-delivery-limit of {limit}: before RabbitMQ 4 a message is dropped at its first redelivery"))
        }
        Some(limit) if limit < MIN_UNLIMITED_DELIVERIES => {
            Some(format!("has an x-delivery-limit of {limit}: a message that is redelivered more often is dropped"))
        }
        Some(_) => None,
    }
}

/// The risk for a message whose `expiration` ends before it is read, or that the risk is unknown; with a
/// hint.
fn expires(made: &QueueArguments, expired: Option<&str>) -> Option<(String, String)> {
    let lead = |to: &str| {
        format!("create it again with x-dead-letter-exchange \"\" and x-dead-letter-routing-key `{to}`, or set them by a policy")
    };
    let over = "a message that expires before it is read";
    match (&made.letters, expired) {
        (None, Some(expired)) => {
            let what = format!(
                "shows no dead-letter exchange: {over} is dropped and never in `{expired}`, unless a policy, which does not show, leads it there"
            );
            Some((what, lead(expired)))
        }
        (None, None) => {
            let hint = "create it again with a dead-letter exchange that leads to a second queue, or set that by a policy, and name the second queue in `expired_queue`";
            Some((
                format!("has no dead-letter exchange: {over} is dropped, unless a policy, which does not show, sets one"),
                hint.to_owned(),
            ))
        }
        // Another exchange may lead to the expired queue: AMQP does not show bindings.
        (Some((exchange, _)), Some(_)) if !exchange.is_empty() => None,
        (Some((_, Some(key))), Some(expired)) if key == expired => None,
        (Some((_, key)), Some(expired)) => {
            let to = key.as_ref().map_or_else(|| "the queue that its own routing key names".to_owned(), |key| format!("the queue `{key}`"));
            Some((format!("sends {over} to {to}, and not to `{expired}`, which `expired_queue` names"), lead(expired)))
        }
        (Some((exchange, key)), None) => {
            let key = key.as_ref().map_or_else(String::new, |key| format!(" by the key `{key}`"));
            let what = format!("sends {over} to the exchange `{exchange}`{key}, and Dwell does not read it from there");
            Some((what, "name the queue that takes it in `expired_queue`".to_owned()))
        }
    }
}

/// `None` if the user may not ask.
async fn made(connection: &BrokerConnection, queue: &str) -> Result<Option<QueueArguments>, ConnectorError> {
    let quorum = AMQPValue::LongString("quorum".into());
    let odds = PROBE_ARGUMENTS.into_iter().chain([INVALID_ARGUMENT]).map(|name| (name, odd()));
    let mut arguments: BTreeMap<ShortString, AMQPValue> =
        odds.chain([(TYPE_ARGUMENT, quorum)]).map(|(name, value)| (name.into(), value)).collect();
    let mut told: HashMap<String, Option<String>> = HashMap::new();
    let (mut durable, mut auto_delete, mut has_age) = (true, false, false);
    // Each declaration tells one argument that differs.
    for _ in 0..MAX_DECLARATIONS {
        let channel = connection.channel().await?;
        let options = QueueDeclareOptions { durable, auto_delete, ..QueueDeclareOptions::default() };
        let asked = connection.ask(channel.queue_declare(short(queue)?, options, arguments.clone().into())).await?;
        let Err(error) = asked else { break };
        let words = error_text(&error);
        match (reply_code(&error), difference(&words)) {
            (Some(code::ACCESS_REFUSED), _) => return Ok(None),
            (Some(code::PRECONDITION_FAILED), Some(("durable", _))) if durable => durable = false,
            (Some(code::PRECONDITION_FAILED), Some(("auto_delete", _))) if !auto_delete => auto_delete = true,
            // Only streams have an age.
            (Some(code::PRECONDITION_FAILED), Some((INVALID_ARGUMENT, _))) => {
                has_age = true;
                break;
            }
            // The same argument again: this server does not accept the value.
            (Some(code::PRECONDITION_FAILED), Some((differs, there))) if !told.contains_key(differs) => {
                match there {
                    Some(text) => arguments.insert(differs.into(), value(text)),
                    None => arguments.remove(differs),
                };
                if differs == DEAD_LETTER_EXCHANGE_ARGUMENT && there.is_some() && !told.contains_key(DEAD_LETTER_KEY_ARGUMENT) {
                    arguments.insert(DEAD_LETTER_KEY_ARGUMENT.into(), odd());
                }
                told.insert(differs.to_owned(), there.map(str::to_owned));
            }
            _ => break,
        }
    }
    let is_quorum = durable && !told.contains_key(TYPE_ARGUMENT);
    let mut of = |name: &str| told.remove(name).flatten();
    let letters = of(DEAD_LETTER_EXCHANGE_ARGUMENT).map(|exchange| (exchange, of(DEAD_LETTER_KEY_ARGUMENT)));
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
        text => text.parse().map_or_else(|_| AMQPValue::LongString(text.into()), AMQPValue::LongLongInt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_quorum_queue_from_4_4_on_holds_back() {
        let made = |is_quorum| QueueArguments {
            is_quorum,
            limit: None,
            letters: None,
            is_stream: false,
            is_durable: true,
            is_auto_delete: false,
            expires: None,
            ttl: None,
            length: None,
            bytes: None,
            overflow: None,
        };
        for (version, expected) in
            [("4.4.0", true), ("5.0.1", true), ("4.3.9", false), ("3.13.7", false), ("4.4.0-rc.1", true), ("odd", false)]
        {
            assert_eq!(holds_back(&made(true), Some(version)).is_some(), expected, "{version}");
        }
        assert_eq!((holds_back(&made(false), Some("4.4.0")), holds_back(&made(true), None)), (None, None));
    }

    #[test]
    fn what_differs_is_read() {
        for (rest, expected) in [
            ("received '?' but current is '5'", Some(("a", Some("5")))),
            ("received the value 'true' of type 'bool' but current is none", Some(("a", None))),
            ("received none but current is the value 'quorum' of type 'longstr'", Some(("a", Some("quorum")))),
            ("received none but current is the value 'o'k' of type 'longstr'", Some(("a", Some("o'k")))),
        ] {
            let text = format!("PRECONDITION_FAILED - inequivalent arg 'a' for queue 'it's' in vhost '/': {rest}");
            assert_eq!(difference(&text), expected, "{rest}");
        }
        assert_eq!(difference("PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'q'"), None);
    }
}
