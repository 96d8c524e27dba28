//! Checks for queues and exchanges, and creation of queues.

use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{ExchangeKind, Queue};

use super::config::Config;
use super::connection::BrokerConnection;
use super::fault::{code, error_text, reply_code};
use super::names::too_long;
use crate::{ConnectorError, Declared, Destination, ErrorKind, SourceOptions};

/// The redeliveries after which the queue drops a message: the highest value that brokers accept,
/// because 4.0 to 4.2 drop a message after 20 by default. They read -1 as unlimited, but 3.10 takes
/// -1 literally and drops a message at its first redelivery.
const DELIVERY_LIMIT: i32 = i32::MAX;

/// The description of an expired queue in errors.
const EXPIRED_QUEUE_SUFFIX: &str = ", which `expired_queue` names";

/// Whether the destination exists: the queue for the default exchange, otherwise the exchange.
pub(super) async fn exists(
    connection: &BrokerConnection,
    to: &Destination,
) -> Result<bool, ConnectorError> {
    if too_long(to).is_some() {
        return Ok(false);
    }
    let (what, asked) = if to.exchange.is_empty() {
        (format!("queue `{}`", to.address), ask_for_queue(connection, &to.address).await?.map(drop))
    } else {
        (format!("exchange `{}`", to.exchange), ask_for_exchange(connection, &to.exchange).await?)
    };
    match asked {
        Ok(()) => Ok(true),
        Err(error) => match reply_code(&error) {
            Some(code::NOT_FOUND) => Ok(false),
            // Exclusive to another connection; it accepts messages.
            Some(code::RESOURCE_LOCKED) => Ok(true),
            _ => Err(unanswered(connection, &what, error)),
        },
    }
}

/// Checks that the queues of a source can be read; returns the number of messages in the expired
/// queue.
pub(super) async fn readable(
    connection: &BrokerConnection,
    options: &SourceOptions,
) -> Result<u32, ConnectorError> {
    readable_one(connection, &options.topic, "").await?;
    match &options.expired_queue {
        Some(expired) => readable_one(connection, expired, EXPIRED_QUEUE_SUFFIX).await,
        None => Ok(0),
    }
}

async fn readable_one(
    connection: &BrokerConnection,
    queue: &str,
    what: &str,
) -> Result<u32, ConnectorError> {
    if let Some(why) = too_long(&Destination::new(queue)) {
        return Err(ConnectorError::new(ErrorKind::Config, format!("`{queue}`{what}: {why}")));
    }
    let asked = ask_for_queue(connection, queue).await?;
    asked.map(|there| there.message_count()).map_err(|error| match reply_code(&error) {
        Some(code::NOT_FOUND) => {
            let failure =
                connection.fail(ErrorKind::Missing, &format!("there is no queue `{queue}`{what}"));
            failure
                .hint(format!("create the queue `{queue}`, or set `declare = true`"))
                .because(error)
        }
        Some(code::RESOURCE_LOCKED) => {
            let failure = connection.fail(
                ErrorKind::Denied,
                &format!("the queue `{queue}`{what} is exclusive to another connection"),
            );
            failure.hint("read a queue that is not exclusive").because(error)
        }
        _ => unanswered(connection, &format!("queue `{queue}`{what}"), error),
    })
}

/// Each question uses a channel of its own: an error closes the channel.
async fn ask_for_queue(
    connection: &BrokerConnection,
    queue: &str,
) -> Result<lapin::Result<Queue>, ConnectorError> {
    let channel = connection.channel().await?;
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let asked = connection
        .ask(channel.queue_declare(short(queue)?, options, FieldTable::default()))
        .await?;
    connection.release(channel).await?;
    Ok(asked)
}

async fn ask_for_exchange(
    connection: &BrokerConnection,
    exchange: &str,
) -> Result<lapin::Result<()>, ConnectorError> {
    let channel = connection.channel().await?;
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let asked = connection
        .ask(channel.exchange_declare(
            short(exchange)?,
            ExchangeKind::Direct,
            options,
            FieldTable::default(),
        ))
        .await?;
    connection.release(channel).await?;
    Ok(asked)
}

/// The name as a short string; callers have checked its length.
pub(super) fn short(name: &str) -> Result<ShortString, ConnectorError> {
    ShortString::try_new(name)
        .map_err(|error| ConnectorError::new(ErrorKind::Config, format!("`{name}`: {error}")))
}

fn unanswered(connection: &BrokerConnection, what: &str, error: lapin::Error) -> ConnectorError {
    let (kind, hint) = match reply_code(&error) {
        Some(code::ACCESS_REFUSED) => {
            (ErrorKind::Denied, "grant the user permissions on it (rabbitmqctl set_permissions)")
        }
        _ => (ErrorKind::Disconnected, ""),
    };
    connection
        .fail(kind, &format!("cannot check the {what}: {}", error_text(&error)))
        .hint(hint)
        .because(error)
}

/// Creates a missing durable quorum queue that keeps messages however often they are redelivered.
/// Exchanges and bindings are never created.
pub(crate) async fn declare(config: &Config, to: &Destination) -> Result<Declared, ConnectorError> {
    if let Some(why) = too_long(to) {
        return Err(ConnectorError::new(ErrorKind::Config, why));
    }
    let connection = BrokerConnection::connect(config, "declare").await?;
    if exists(&connection, to).await? {
        return Ok(Declared::Existed);
    }
    if !to.exchange.is_empty() {
        let failure = connection.fail(
            ErrorKind::Missing,
            &format!("there is no exchange `{}`, and Dwell creates only queues", to.exchange),
        );
        return Err(failure.hint("create the exchange with its bindings, or name a queue"));
    }
    make(&connection, &to.address, &[]).await?;
    connection.close().await;
    Ok(Declared::Created)
}

/// Creates the missing queues of a source: the main queue, which dead-letters expired messages to
/// the expired queue, and the expired queue.
pub(crate) async fn declare_source(
    config: &Config,
    options: &SourceOptions,
) -> Result<Declared, ConnectorError> {
    let topic = Destination::new(&options.topic);
    let Some(expired) = &options.expired_queue else { return declare(config, &topic).await };
    for (queue, what) in [(&options.topic, ""), (expired, EXPIRED_QUEUE_SUFFIX)] {
        if let Some(why) = too_long(&Destination::new(queue)) {
            return Err(ConnectorError::new(ErrorKind::Config, format!("`{queue}`{what}: {why}")));
        }
    }
    // At least once: RabbitMQ keeps the message until the expired queue has it.
    let texts = [
        ("x-dead-letter-exchange", ""),
        ("x-dead-letter-routing-key", expired),
        ("x-dead-letter-strategy", "at-least-once"),
        ("x-overflow", "reject-publish"),
    ];
    let letters = texts.map(|(name, text)| (name, AMQPValue::LongString(text.into())));
    let connection = BrokerConnection::connect(config, "declare").await?;
    let mut declared = Declared::Existed;
    // The expired queue first, so that dead letters always have a queue. Existing queues may have
    // other arguments.
    for (queue, more) in [(expired, &[][..]), (&options.topic, &letters[..])] {
        if !exists(&connection, &Destination::new(queue)).await? {
            make(&connection, queue, more).await?;
            declared = Declared::Created;
        }
    }
    connection.close().await;
    Ok(declared)
}

async fn make(
    connection: &BrokerConnection,
    queue: &str,
    more: &[(&'static str, AMQPValue)],
) -> Result<(), ConnectorError> {
    let channel = connection.channel().await?;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(DELIVERY_LIMIT));
    for (name, value) in more {
        arguments.insert((*name).into(), value.clone());
    }
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let made = connection.ask(channel.queue_declare(short(queue)?, options, arguments)).await?;
    connection.release(channel).await?;
    made.map(drop).map_err(|error| {
        let kind = if reply_code(&error) == Some(code::ACCESS_REFUSED) {
            ErrorKind::Denied
        } else {
            ErrorKind::Disconnected
        };
        let failure = connection
            .fail(kind, &format!("cannot create the queue `{queue}`: {}", error_text(&error)));
        failure
            .hint("create this queue by hand, or grant the user the right to configure it")
            .because(error)
    })
}
