//! Whether a queue or an exchange is there, and making a queue.

use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{ExchangeKind, Queue};

use super::config::Config;
use super::connection::BrokerConnection;
use super::fault::{code, reply_code, said};
use super::names::too_long;
use crate::{ConnectorError, Declared, Destination, ErrorKind, SourceOptions};

/// How often a message may come back before the queue drops it. The most that brokers take: 4.0 to 4.2 would drop it after 20. They read -1 as
/// "never", but 3.10 takes it as it stands, and drops a message that comes back once.
const DELIVERY_LIMIT: i32 = i32::MAX;

/// How an error says what an expired queue is.
const EXPIRED: &str = ", which `expired_queue` names";

/// Whether something takes messages here: the queue, by way of the default exchange, else the exchange.
pub(super) async fn exists(connection: &BrokerConnection, to: &Destination) -> Result<bool, ConnectorError> {
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
            // Somebody else's alone to read; it takes messages.
            Some(code::RESOURCE_LOCKED) => Ok(true),
            _ => Err(unanswered(connection, &what, error)),
        },
    }
}

/// What a source reads is there to be read, or why not; how many messages wait in its expired queue.
pub(super) async fn readable(connection: &BrokerConnection, options: &SourceOptions) -> Result<u32, ConnectorError> {
    readable_one(connection, &options.topic, "").await?;
    match &options.expired_queue {
        Some(expired) => readable_one(connection, expired, EXPIRED).await,
        None => Ok(0),
    }
}

async fn readable_one(connection: &BrokerConnection, queue: &str, what: &str) -> Result<u32, ConnectorError> {
    if let Some(why) = too_long(&Destination::new(queue)) {
        return Err(ConnectorError::new(ErrorKind::Config, format!("`{queue}`{what}: {why}")));
    }
    let asked = ask_for_queue(connection, queue).await?;
    asked.map(|there| there.message_count()).map_err(|error| match reply_code(&error) {
        Some(code::NOT_FOUND) => {
            let failure = connection.fail(ErrorKind::Missing, &format!("there is no queue `{queue}`{what}"));
            failure.hint(format!("create the queue `{queue}`, or set `declare = true`")).because(error)
        }
        Some(code::RESOURCE_LOCKED) => {
            let failure = connection.fail(ErrorKind::Denied, &format!("the queue `{queue}`{what} belongs to another connection alone"));
            failure.hint("read a queue that is not exclusive").because(error)
        }
        _ => unanswered(connection, &format!("queue `{queue}`{what}"), error),
    })
}

/// Each question on a channel of its own: a "no" closes the channel.
async fn ask_for_queue(connection: &BrokerConnection, queue: &str) -> Result<lapin::Result<Queue>, ConnectorError> {
    let channel = connection.channel().await?;
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    connection.ask(channel.queue_declare(short(queue)?, options, FieldTable::default())).await
}

async fn ask_for_exchange(connection: &BrokerConnection, exchange: &str) -> Result<lapin::Result<()>, ConnectorError> {
    let channel = connection.channel().await?;
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    connection.ask(channel.exchange_declare(short(exchange)?, ExchangeKind::Direct, options, FieldTable::default())).await
}

/// The name as AMQP has it; callers know that it is short enough.
pub(super) fn short(name: &str) -> Result<ShortString, ConnectorError> {
    ShortString::try_new(name).map_err(|error| ConnectorError::new(ErrorKind::Config, format!("`{name}`: {error}")))
}

fn unanswered(connection: &BrokerConnection, what: &str, error: lapin::Error) -> ConnectorError {
    let (kind, hint) = match reply_code(&error) {
        Some(code::ACCESS_REFUSED) => (ErrorKind::Denied, "grant the user permissions on it (rabbitmqctl set_permissions)"),
        _ => (ErrorKind::Disconnected, ""),
    };
    connection.fail(kind, &format!("cannot look for the {what}: {}", said(&error))).hint(hint).because(error)
}

/// Makes a durable quorum queue that keeps messages however often they come back, where it is missing. Exchanges and bindings are their owner's.
pub(crate) async fn declare(config: &Config, to: &Destination) -> Result<Declared, ConnectorError> {
    if let Some(why) = too_long(to) {
        return Err(ConnectorError::new(ErrorKind::Config, why));
    }
    let connection = BrokerConnection::connect(config, "declare").await?;
    if exists(&connection, to).await? {
        return Ok(Declared::Existed);
    }
    if !to.exchange.is_empty() {
        let failure = connection.fail(ErrorKind::Missing, &format!("there is no exchange `{}`, and only queues are made", to.exchange));
        return Err(failure.hint("create the exchange with its bindings, or name a queue"));
    }
    make(&connection, &to.address, &[]).await?;
    connection.close().await;
    Ok(Declared::Created)
}

/// Makes what a source reads, where it is missing: its queue, which lets what expires go to the expired queue, and that.
pub(crate) async fn declare_source(config: &Config, options: &SourceOptions) -> Result<Declared, ConnectorError> {
    let topic = Destination::new(&options.topic);
    let Some(expired) = &options.expired_queue else { return declare(config, &topic).await };
    for (queue, what) in [(&options.topic, ""), (expired, EXPIRED)] {
        if let Some(why) = too_long(&Destination::new(queue)) {
            return Err(ConnectorError::new(ErrorKind::Config, format!("`{queue}`{what}: {why}")));
        }
    }
    // At least once: kept until the expired queue has it.
    let texts = [
        ("x-dead-letter-exchange", ""),
        ("x-dead-letter-routing-key", expired),
        ("x-dead-letter-strategy", "at-least-once"),
        ("x-overflow", "reject-publish"),
    ];
    let letters = texts.map(|(name, text)| (name, AMQPValue::LongString(text.into())));
    let connection = BrokerConnection::connect(config, "declare").await?;
    let mut declared = Declared::Existed;
    // The expired queue first, so that nothing goes where nothing is. What is there may have other arguments.
    for (queue, more) in [(expired, &[][..]), (&options.topic, &letters[..])] {
        if !exists(&connection, &Destination::new(queue)).await? {
            make(&connection, queue, more).await?;
            declared = Declared::Created;
        }
    }
    connection.close().await;
    Ok(declared)
}

async fn make(connection: &BrokerConnection, queue: &str, more: &[(&'static str, AMQPValue)]) -> Result<(), ConnectorError> {
    let channel = connection.channel().await?;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(DELIVERY_LIMIT));
    for (name, value) in more {
        arguments.insert((*name).into(), value.clone());
    }
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    connection.ask(channel.queue_declare(short(queue)?, options, arguments)).await?.map(drop).map_err(|error| {
        let kind = if reply_code(&error) == Some(code::ACCESS_REFUSED) { ErrorKind::Denied } else { ErrorKind::Disconnected };
        let failure = connection.fail(kind, &format!("cannot make the queue `{queue}`: {}", said(&error)));
        failure.hint("make this queue by hand, or grant the user the right to").because(error)
    })
}
