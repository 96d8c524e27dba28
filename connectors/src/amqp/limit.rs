//! Whether a queue drops messages that come back often, as far as AMQP shows it.
//!
//! AMQP has no way to ask for the arguments of a queue. But a server says in which argument a declaration differs from the queue that is there. So a
//! queue is declared with arguments that no queue has, until all that matters was said. [`NEVER`] is among them: were the queue gone meanwhile, none
//! would be made.

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

use super::fault::{code, reply_code, said};
use super::link::Link;
use super::queue::short;
use crate::{Caution, CautionKind, ConnectorError};

/// An argument of streams, with a value that is none: RabbitMQ makes no queue with it, and compares it with no quorum queue.
const NEVER: &str = "x-max-age";
const TYPE: &str = "x-queue-type";
const LIMIT: &str = "x-delivery-limit";
const LETTERS: &str = "x-dead-letter-exchange";
/// The most questions for one queue: more than a queue has arguments.
const MOST: usize = 32;
/// A message comes back with each end of a reader that had it in hand: nobody counts on more often than this.
const OFTEN: i64 = 1000;

/// What a queue does with a message that comes back often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It stays, goes to a dead-letter exchange, or the server says nothing of it.
    Kept,
    /// It is dropped after so many returns; `None`: the server's own number.
    Dropped(Option<i64>),
    /// We may not ask.
    Hidden,
}

/// A caution where the queue drops messages that come back often. `queue` is there.
pub(super) async fn caution(link: &Link, queue: &str) -> Result<Option<Caution>, ConnectorError> {
    let is_4 = link.version().and_then(|version| version.split('.').next()?.parse::<u32>().ok()).is_none_or(|major| major >= 4);
    let what = match fate(link, queue).await? {
        Fate::Dropped(None) => "has no x-delivery-limit: RabbitMQ 4.0 to 4.2 drops a message that came back 20 times".to_owned(),
        // Read as "without a limit" from 4.0 on; before, nothing checks it, and one return is more.
        Fate::Dropped(Some(limit)) if limit < 0 && is_4 => return Ok(None),
        Fate::Dropped(Some(limit)) if limit < 0 => {
            format!("has an x-delivery-limit of {limit}: before RabbitMQ 4 a message is dropped when it comes back for the first time")
        }
        Fate::Dropped(Some(limit)) if limit < OFTEN => {
            format!("has an x-delivery-limit of {limit}: a message that came back more often is dropped")
        }
        Fate::Hidden => "may drop a message that came back often: this user may not see its arguments".to_owned(),
        Fate::Kept | Fate::Dropped(Some(_)) => return Ok(None),
    };
    let mend = "make it anew with x-delivery-limit 2147483647 or a dead-letter exchange, or set them by a policy, which does not show here";
    let message = format!("the queue `{queue}` {what}, and a reader that ends gives back what it has in hand");
    Ok(Some(Caution { kind: CautionKind::Drops, message, mend: mend.to_owned() }))
}

async fn fate(link: &Link, queue: &str) -> Result<Fate, ConnectorError> {
    let mut arguments = FieldTable::default();
    let odd = AMQPValue::Boolean(true);
    arguments.insert(NEVER.into(), odd.clone());
    arguments.insert(TYPE.into(), AMQPValue::LongString("quorum".into()));
    arguments.insert(LIMIT.into(), odd.clone());
    let mut limit = None;
    for _ in 0..MOST {
        let channel = link.channel().await?;
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let Err(error) = link.ask(channel.queue_declare(short(queue)?, options, arguments.clone())).await? else { break };
        let words = said(&error);
        let difference = match reply_code(&error) {
            Some(code::ACCESS_REFUSED) => return Ok(Fate::Hidden),
            Some(code::PRECONDITION_FAILED) => difference(&words),
            _ => None,
        };
        match difference {
            Some((LIMIT, there)) => {
                limit = Some(there.and_then(|there| there.parse().ok()));
                // Of dead letters nothing was said yet: they may come behind it.
                arguments.insert(LIMIT.into(), value(there));
                arguments.insert(LETTERS.into(), odd.clone());
            }
            // A classic queue, a stream, or one that is not durable: no limit counts there.
            Some((TYPE | "durable", _)) | None => break,
            Some((LETTERS, Some(_))) => break,
            Some((LETTERS, None)) => return Ok(limit.map_or(Fate::Kept, Fate::Dropped)),
            Some((name, there)) => {
                arguments.insert(name.into(), value(there));
            }
        }
    }
    Ok(Fate::Kept)
}

/// The argument in which a declaration differs, and what the queue has there, in `inequivalent arg 'x' for queue 'q' in vhost '/': received none but
/// current is the value '5' of type 'signedint'`.
fn difference(said: &str) -> Option<(&str, Option<&str>)> {
    let (_, rest) = said.split_once("inequivalent arg '")?;
    let (name, _) = rest.split_once('\'')?;
    let (_, current) = said.rsplit_once(" but current is ")?;
    let value = current.strip_prefix("the value ").unwrap_or(current);
    let value = value.rsplit_once(" of type ").map_or(value, |(value, _)| value);
    Some((name, value.strip_prefix('\'').and_then(|value| value.strip_suffix('\''))))
}

/// What was told of an argument, to be sent along: numbers are compared as numbers, all else as text. None is sent as nothing.
fn value(told: Option<&str>) -> AMQPValue {
    match told {
        None => AMQPValue::Void,
        Some("true") => AMQPValue::Boolean(true),
        Some("false") => AMQPValue::Boolean(false),
        Some(text) => text.parse().map_or_else(|_| AMQPValue::LongString(text.into()), AMQPValue::LongLongInt),
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
            let said = format!("PRECONDITION_FAILED - inequivalent arg 'a' for queue 'it's' in vhost '/': {rest}");
            assert_eq!(difference(&said), expected, "{rest}");
        }
        assert_eq!(difference("PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'q'"), None);
    }
}
