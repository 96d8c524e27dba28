//! All agents of a worker together, from start to drain.

use std::sync::Arc;
use std::time::Duration;

use dwell_store::clock;
use dwell_store::consumers::Consumers;
use dwell_store::fleet;
use dwell_store::policy::late::LateRules;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::fetch::Fetch;
use super::handler::release;
use super::leases::Leases;
use super::maintenance_options::maintenance;
use super::routes::Route;
use super::{WorkerRules, acknowledgements};
use crate::client::Client;

/// The longest time for the last acknowledgements; where Redis is away, their leases end instead.
const SHUTDOWN_SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves these queues until told to stop, and drains.
pub(super) async fn run(
    client: Client,
    routes: Vec<Route>,
    rules: WorkerRules,
    stop: CancellationToken,
) {
    // A pop that waits ends with `stop`, and one that is on its way has its answer first.
    let consumers =
        Consumers::new(client.store.clone(), LateRules::default(), Arc::new(()), stop.clone());
    let leases = Arc::new(Leases::default());
    let (acknowledgements, queued) = acknowledgements::channel(consumers.clone());
    // Dropping the set, with this future, ends every agent and every handler.
    let mut agents = JoinSet::new();
    let end = CancellationToken::new();
    agents.spawn(leases.clone().keep(consumers.clone(), end.clone()));
    agents.spawn(listen(&client, &consumers, end.clone()));
    let queues = routes.iter().map(|route| route.queue.to_string()).collect();
    // The handlers that are drained need the maintenance too.
    for task in maintenance(&client, &consumers, queues, rules.dead_retention).tasks(&end, &end) {
        agents.spawn(task.run);
    }
    let mut speaking = JoinSet::new();
    speaking.spawn(acknowledgements::send(consumers.clone(), queued));

    let mut fetching = JoinSet::new();
    for route in routes {
        let (client, consumers, leases, acknowledgements) =
            (client.clone(), consumers.clone(), leases.clone(), acknowledgements.clone());
        let fetch = Fetch {
            client,
            consumers,
            route,
            concurrency: rules.concurrency,
            ttr: rules.ttr,
            leases,
            acknowledgements,
        };
        fetching.spawn(fetch.run(stop.clone(), rules.drain));
    }
    while fetching.join_next().await.is_some() {}

    for acknowledgement in leases.give_up(&release(Duration::ZERO)) {
        acknowledgements.send(acknowledgement).await;
    }
    drop(acknowledgements);
    if clock::timeout(SHUTDOWN_SETTLE_TIMEOUT, speaking.join_next()).await.is_none() {
        tracing::warn!(
            "the last acknowledgements of the worker did not reach redis, the leases of their jobs end instead"
        );
    }
    end.cancel();
    while agents.join_next().await.is_some() {}
}

/// Wakes the pops that wait for jobs of other processes, and of this one.
fn listen(
    client: &Client,
    consumers: &Consumers,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let (hearing, missing) = (consumers.clone(), consumers.clone());
    let (settings, channel) = (client.fetching.settings.clone(), client.store.keys().wake());
    fleet::follow(
        settings,
        channel,
        move || missing.look_again(),
        move |head| hearing.wake(&head),
        stop,
    )
}
