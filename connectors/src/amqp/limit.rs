//! Finds out whether a queue drops messages that are redelivered often or that expire, as far as
//! AMQP shows it.
//!
//! AMQP has no request for the arguments of a queue. But the server's error names the first
//! argument in which a declaration differs from the existing queue. So this module declares the
//! queue with arguments that no queue has, and repeats that until every argument that matters is
//! known. [`NEVER`] is among them: if the queue is deleted meanwhile, the declaration fails and
//! creates nothing.

use std::collections::{BTreeMap, HashMap};

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, ShortString};

use super::connection::BrokerConnection;
use super::fault::{code, error_text, reply_code};
use super::queue::short;
use crate::{Caution, CautionKind, ConnectorError, SourceOptions};

/// An argument of streams with an invalid value. RabbitMQ creates no queue with it, and ignores it
/// in the comparison with a quorum queue.
const NEVER: &str = "x-max-age";
const TYPE: &str = "x-queue-type";
const LIMIT: &str = "x-delivery-limit";
const LETTERS: &str = "x-dead-letter-exchange";
const KEY: &str = "x-dead-letter-routing-key";
/// The most declarations for one queue: more than a queue has arguments.
const MOST: usize = 32;
/// Limits from this value on count as unlimited.
const OFTEN: i64 = 1000;
/// The hint for a queue that keeps messages however often they are redelivered.
const UNLIMITED: &str = "create it again with x-delivery-limit 2147483647";

/// The arguments of a queue that matter here.
#[derive(Debug, PartialEq, Eq)]
struct Made {
    is_quorum: bool,
    /// Of a quorum queue; `None`: the server's default.
    limit: Option<String>,
    /// The dead-letter exchange, and the dead-letter routing key if set.
    letters: Option<(String, Option<String>)>,
}

/// The risks of these existing queues.
pub(super) async fn cautions(connection: &BrokerConnection, options: &SourceOptions) -> Result<Vec<Caution>, ConnectorError> {
    let SourceOptions { topic, expired_queue, .. } = options;
    let caution = |kind, queue: &str, what: &str, hint: String| Caution { kind, message: format!("the queue `{queue}` {what}"), hint };
    let back = "and a reader that ends returns its unsettled messages";
    let is_4 = connection.version().and_then(|version| version.split('.').next()?.parse::<u32>().ok()).is_none_or(|major| major >= 4);
    let dropped = |queue: &str, made: &Made| {
        drops(made, is_4).map(|what| caution(CautionKind::Drops, queue, &format!("{what}, {back}"), UNLIMITED.to_owned()))
    };
    let mut cautions = Vec::new();
    match made(connection, topic).await? {
        Some(made) => {
            cautions.extend(dropped(topic, &made));
            cautions.extend(expires(&made, expired_queue.as_deref()).map(|(what, hint)| caution(CautionKind::Expires, topic, &what, hint)));
        }
        None => {
            let what = format!("may drop messages that are redelivered often, or that expire: this user may not see its arguments, {back}");
            let hint = format!("{UNLIMITED} and a dead-letter exchange, and name the queue to which that leads in `expired_queue`");
            cautions.push(caution(CautionKind::Drops, topic, &what, hint));
        }
    }
    // Nothing expires in the expired queue.
    if let Some(queue) = expired_queue
        && let Some(made) = made(connection, queue).await?
    {
        cautions.extend(dropped(queue, &made));
    }
    Ok(cautions)
}

/// The risk for a message that is redelivered often.
fn drops(made: &Made, is_4: bool) -> Option<String> {
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
        Some(limit) if limit < OFTEN => {
            Some(format!("has an x-delivery-limit of {limit}: a message that is redelivered more often is dropped"))
        }
        Some(_) => None,
    }
}

/// The risk for a message whose `expiration` ends before it is read, or that the risk is unknown;
/// and what to do.
fn expires(made: &Made, expired: Option<&str>) -> Option<(String, String)> {
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
async fn made(connection: &BrokerConnection, queue: &str) -> Result<Option<Made>, ConnectorError> {
    let quorum = AMQPValue::LongString("quorum".into());
    let arguments = [(NEVER, odd()), (TYPE, quorum), (LIMIT, odd()), (LETTERS, odd())];
    let mut arguments: BTreeMap<ShortString, AMQPValue> = arguments.into_iter().map(|(name, value)| (name.into(), value)).collect();
    let mut told: HashMap<String, Option<String>> = HashMap::new();
    let mut durable = true;
    // Each declaration tells one argument that differs.
    for _ in 0..MOST {
        let channel = connection.channel().await?;
        let options = QueueDeclareOptions { durable, ..QueueDeclareOptions::default() };
        let asked = connection.ask(channel.queue_declare(short(queue)?, options, arguments.clone().into())).await?;
        let Err(error) = asked else { break };
        let words = error_text(&error);
        match (reply_code(&error), difference(&words)) {
            (Some(code::ACCESS_REFUSED), _) => return Ok(None),
            (Some(code::PRECONDITION_FAILED), Some(("durable", _))) if durable => durable = false,
            // The same argument again: this server does not accept the value.
            (Some(code::PRECONDITION_FAILED), Some((differs, there))) if differs != NEVER && !told.contains_key(differs) => {
                match there {
                    Some(text) => arguments.insert(differs.into(), value(text)),
                    None => arguments.remove(differs),
                };
                if differs == LETTERS && there.is_some() && !told.contains_key(KEY) {
                    arguments.insert(KEY.into(), odd());
                }
                told.insert(differs.to_owned(), there.map(str::to_owned));
            }
            _ => break,
        }
        let is_other = told.contains_key(TYPE);
        let has_letters = told.get(LETTERS).map(Option::is_some);
        if has_letters.is_some_and(|has| !has || told.contains_key(KEY)) && (is_other || told.contains_key(LIMIT)) {
            break;
        }
    }
    let is_quorum = durable && !told.contains_key(TYPE);
    let mut of = |name: &str| told.remove(name).flatten();
    let letters = of(LETTERS).map(|exchange| (exchange, of(KEY)));
    Ok(Some(Made { is_quorum, limit: of(LIMIT), letters }))
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
