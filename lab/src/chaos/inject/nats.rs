//! Faults of NATS.

use std::time::Duration;

use dwell::clock;
use dwell_testkit::servers::{BrokerServer, NatsServer};
use rand::RngExt;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::{Done, Injection, Outcome, held, running};
use crate::chaos::system::{Error, System, jetstream, nats_users};
use crate::chaos::wait::until;

/// The log line after new settings take effect.
const RELOAD_LOG_LINE: &str = "Reloaded server configuration";
/// The longest time of a reload.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest time until Dwell creates a deleted consumer again: Dwell notices at the time-out of
/// its next fetch.
const RECREATE_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn target_full(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let target = system.any_target(rng);
    // The policy first, then the limit: otherwise the limit would discard stored messages.
    changed(system, target, hold, &[json!({ "discard": "new" }), json!({ "max_bytes": 1 })]).await
}

/// The stream keeps its unread messages, but no stream accepts messages on the subject.
pub(super) async fn target_deleted(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let target = system.any_target(rng);
    changed(system, target, hold, &[json!({ "subjects": [format!("{target}.away")] })]).await
}

async fn changed(system: &System, target: &str, hold: Duration, changes: &[Value]) -> Outcome {
    // No other fault may affect the server meanwhile.
    let _server = system.broker.server.lock().await;
    let (port, stream) = (system.broker.port, jetstream::stream_of(target));
    let info = jetstream::ask(port, &format!("STREAM.INFO.{stream}"), json!({})).await?;
    let before = info["config"].clone();
    let update = async |config: Value| {
        jetstream::ask(port, &format!("STREAM.UPDATE.{stream}"), config).await.map(drop)
    };
    let broken = async {
        let mut config = before.clone();
        for change in changes {
            if let (Value::Object(config), Value::Object(change)) = (&mut config, change.clone()) {
                config.extend(change);
            }
            update(config.clone()).await?;
        }
        Ok(())
    };
    held(hold, broken.await, update(before.clone())).await?;
    Ok(Done::new(target))
}

/// Dwell itself creates the consumer again, with its own `ack_wait`; the system then sets a shorter
/// one.
pub(super) async fn consumer_deleted(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    let _server = system.broker.server.lock().await;
    let port = system.broker.port;
    jetstream::ask(port, "CONSUMER.DELETE.DWELL_delay_in.dwell", json!({})).await?;
    clock::sleep(hold).await;
    let missed = "the consumer dwell of DWELL_delay_in was not created again";
    until(RECREATE_TIMEOUT, missed, async || {
        let info = jetstream::ask(port, "CONSUMER.INFO.DWELL_delay_in.dwell", json!({})).await;
        Ok(info.is_ok())
    })
    .await?;
    system.broker.make_consumer().await?;
    Ok(Done::new("consumer dwell of DWELL_delay_in"))
}

pub(super) async fn permissions_withdrawn(
    Injection { system, rng, hold }: Injection<'_>,
) -> Outcome {
    let server = system.broker.server.lock().await;
    let BrokerServer::Nats(server) = &*server else {
        return Err(Error::Unexpected(format!("{server} is not nats-server")));
    };
    let what = if rng.random() { ">" } else { system.any_target(rng) };
    let denied = format!("{{ publish: {{ deny: [\"{what}\"] }} }}");
    held(hold, reload(server, "{}", &denied).await, reload(server, &denied, "{}")).await?;
    Ok(Done::new(format!("may not publish on `{what}`")))
}

/// Changes the permissions of the instances without a restart.
async fn reload(server: &NatsServer, from: &str, to: &str) -> Result<(), Error> {
    let file = server.dir().join("nats.conf");
    let log = server.dir().join("log");
    let reloads =
        || std::fs::read_to_string(&log).unwrap_or_default().matches(RELOAD_LOG_LINE).count();
    let text = std::fs::read_to_string(&file).map_err(Error::file(&file))?;
    let changed = text.replace(&nats_users(from), &nats_users(to));
    if changed == text {
        return Err(Error::unexpected(
            "the permissions of the instances are not the expected ones",
        ));
    }
    std::fs::write(&file, changed).map_err(Error::file(&file))?;
    let before = reloads();
    kill_process(running(server.pid())?, Signal::HUP)
        .map_err(|error| Error::Io("a signal to nats-server".to_owned(), error.into()))?;
    let missed = "nats-server did not reload its settings";
    until(RELOAD_TIMEOUT, missed, async || Ok(reloads() > before)).await
}
