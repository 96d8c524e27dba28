//! Finds out whether a queue loses messages that were confirmed to their producers, as far as AMQP
//! shows it: messages that are redelivered often, expire, or exceed its bounds, and the queue as a
//! whole.

mod queue_arguments;
mod risk;

use lapin::options::{BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};

use self::queue_arguments::{QueueArguments, made};
use self::risk::{HOLDS_BACK_HINT, UNLIMITED_HINT, drops, expires, holds_back, loses};
use super::connection::BrokerConnection;
use super::queue::short;
use super::reader::PRIORITY_ARGUMENT;
use crate::{Caution, CautionKind, ConnectorError, SourceOptions};

/// The argument that sets where a reader of a stream begins.
const OFFSET_ARGUMENT: &str = "x-stream-offset";

/// The caution for a queue whose arguments a user may not see.
const UNSEEN_CAUTION: &str = "may lose requests: this user may not see whether it is a stream, not durable, auto-delete, or has an x-expires, \
    x-message-ttl, x-max-length or x-delivery-limit";
/// The hint for this caution.
const PERMISSION_HINT: &str = "grant the user the right to configure the queue, at least for `dwell check` (rabbitmqctl set_permissions)";

/// Whether an existing queue is a stream. A user who may not ask for its arguments may read it: a
/// stream alone takes an offset from its reader, and no priority.
pub(super) async fn is_stream(
    connection: &BrokerConnection,
    queue: &str,
) -> Result<bool, ConnectorError> {
    match made(connection, queue).await? {
        Some(made) => Ok(made.is_stream),
        None => {
            Ok(may_read(connection, queue, OFFSET_ARGUMENT, AMQPValue::LongString("next".into()))
                .await?
                && !may_read(connection, queue, PRIORITY_ARGUMENT, AMQPValue::LongInt(0)).await?)
        }
    }
}

/// Whether the server accepts a reader with this argument. The reader settles no message.
async fn may_read(
    connection: &BrokerConnection,
    queue: &str,
    name: &'static str,
    value: AMQPValue,
) -> Result<bool, ConnectorError> {
    let channel = connection.channel().await?;
    let one = connection.ask(channel.basic_qos(1, BasicQosOptions::default())).await?;
    let mut arguments = FieldTable::default();
    arguments.insert(name.into(), value);
    let reads = connection
        .ask(channel.basic_consume(
            short(queue)?,
            "".into(),
            BasicConsumeOptions::default(),
            arguments,
        ))
        .await?;
    let may_read = one.is_ok() && reads.is_ok();
    // A message that the reader got goes back to the queue.
    connection.release(channel).await?;
    Ok(may_read)
}

/// The risks of these existing queues.
pub(super) async fn cautions(
    connection: &BrokerConnection,
    options: &SourceOptions,
) -> Result<Vec<Caution>, ConnectorError> {
    let SourceOptions { topic, expired_queue, .. } = options;
    let caution = |kind, queue: &str, what: &str, hint: String| Caution {
        kind,
        message: format!("the queue `{queue}` {what}"),
        hint,
    };
    let back = "and a reader that ends returns its unsettled messages";
    let is_4 = connection
        .version()
        .and_then(|version| version.split('.').next()?.parse::<u32>().ok())
        .is_none_or(|major| major >= 4);
    let dropped = |queue: &str, made: &QueueArguments| {
        drops(made, is_4).map(|what| {
            caution(
                CautionKind::Drops,
                queue,
                &format!("{what}, {back}"),
                UNLIMITED_HINT.to_owned(),
            )
        })
    };
    let mut cautions = Vec::new();
    match made(connection, topic).await? {
        Some(made) => {
            cautions.extend(dropped(topic, &made));
            cautions.extend(
                expires(&made, expired_queue.as_deref())
                    .map(|(what, hint)| caution(CautionKind::Expires, topic, &what, hint)),
            );
            let is_read =
                expired_queue.is_some() && expires(&made, expired_queue.as_deref()).is_none();
            cautions.extend(
                loses(&made, is_read)
                    .into_iter()
                    .map(|(what, hint)| caution(CautionKind::Loses, topic, &what, hint.to_owned())),
            );
            cautions.extend(holds_back(&made, connection.version()).map(|what| {
                caution(CautionKind::HoldsBack, topic, &what, HOLDS_BACK_HINT.to_owned())
            }));
        }
        None => cautions.push(caution(
            CautionKind::Loses,
            topic,
            UNSEEN_CAUTION,
            PERMISSION_HINT.to_owned(),
        )),
    }
    // Nothing expires in the expired queue.
    if let Some(queue) = expired_queue {
        match made(connection, queue).await? {
            Some(made) => {
                cautions.extend(dropped(queue, &made));
                let losses = loses(&made, false).into_iter();
                cautions.extend(losses.map(|(what, hint)| {
                    caution(CautionKind::Loses, queue, &what, hint.to_owned())
                }));
            }
            None => cautions.push(caution(
                CautionKind::Loses,
                queue,
                UNSEEN_CAUTION,
                PERMISSION_HINT.to_owned(),
            )),
        }
    }
    Ok(cautions)
}
