//! Faults of RabbitMQ.

use std::time::Duration;

use dwell_testkit::servers::{BrokerServer, RabbitServer};
use rand::RngExt;
use rand::rngs::StdRng;

use super::{Done, Injection, Outcome, held};
use crate::chaos::system::{Error, System, USER, classic, queue_length, rabbitmqctl};
use crate::chaos::wait::until;

const POLICY_NAME: &str = "chaos-full";
/// A queue that accepts nothing.
const REJECT_ALL_POLICY: &str = r#"{"max-length":0,"overflow":"reject-publish"}"#;
/// The longest time until the readers of a target have emptied it.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(30);

fn rabbit(server: &BrokerServer) -> Result<&RabbitServer, Error> {
    match server {
        BrokerServer::Amqp(server) => Ok(server),
        other => Err(Error::Unexpected(format!("{other} is not RabbitMQ"))),
    }
}

async fn fill(server: &RabbitServer, target: &str) -> Result<String, Error> {
    let queues = format!("^{target}$");
    let policy = ["set_policy", POLICY_NAME, &queues, REJECT_ALL_POLICY, "--apply-to", "queues"];
    rabbitmqctl(server, &policy).await
}

async fn empty(server: &RabbitServer) -> Result<String, Error> {
    rabbitmqctl(server, &["clear_policy", POLICY_NAME]).await
}

/// A target that can be full although it is read.
fn any<'a>(system: &'a System, rng: &mut StdRng) -> &'a str {
    let count = classic(system.targets()).count();
    classic(system.targets()).nth(rng.random_range(0..count)).unwrap_or_default()
}

pub(super) async fn target_full(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let target = any(system, rng);
    let server = system.broker.server.lock().await;
    let server = rabbit(&server)?;
    held(hold, fill(server, target).await, empty(server)).await?;
    Ok(Done::new(target))
}

async fn read_empty(server: &RabbitServer, target: &str) -> Result<(), Error> {
    until(EMPTY_TIMEOUT, format!("`{target}` was not empty"), async || {
        Ok(queue_length(server, target).await?.is_none_or(|left| left == 0))
    })
    .await
}

/// Deletes a queue without losing delivered messages: the queue first refuses messages and is read
/// empty, and nothing may be on its way into it, because RabbitMQ (3.10) may confirm a message
/// whose queue is deleted before its refusal.
pub(super) async fn target_deleted(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let target = any(system, rng);
    let server = system.broker.server.lock().await;
    let server = rabbit(&server)?;
    let deleted = async {
        fill(server, target).await?;
        read_empty(server, target).await?;
        let _silenced = super::network::silenced(&system.broker.link);
        // Once more: the server has then handled all earlier messages.
        read_empty(server, target).await?;
        rabbitmqctl(server, &["delete_queue", target]).await
    };
    let healed = async {
        empty(server).await?;
        let definitions = system.broker.definitions();
        rabbitmqctl(server, &["import_definitions", &definitions.to_string_lossy()]).await
    };
    held(hold, deleted.await, healed).await?;
    Ok(Done::new(target))
}

/// Open channels keep their permissions, so the connections are reset too.
pub(super) async fn permissions_withdrawn(
    Injection { system, hold, .. }: Injection<'_>,
) -> Outcome {
    let server = system.broker.server.lock().await;
    let server = rabbit(&server)?;
    let set = async |rights: &'static str| {
        rabbitmqctl(server, &["set_permissions", USER, rights, rights, rights]).await
    };
    let withdrawn = set("^$").await.map(|_| system.broker.link.reset());
    held(hold, withdrawn, set(".*")).await?;
    Ok(Done::new(format!("user {USER}")))
}

pub(super) async fn connection_blocked(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    let server = system.broker.server.lock().await;
    let server = rabbit(&server)?;
    let set = async |mark: &'static str| {
        rabbitmqctl(server, &["set_vm_memory_high_watermark", mark]).await
    };
    held(hold, set("0.0000001").await, set("0.4")).await?;
    Ok(Done::new("memory alarm"))
}
