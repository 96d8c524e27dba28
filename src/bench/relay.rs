//! A bare relay: source to sink, confirmed, acknowledged. What the connectors do without Dwell between them.

use std::collections::HashMap;
use std::time::Duration;

use dwell_connectors::{BatchId, BrokerConfig, Destination, Outcome, Publication, SourceOptions};
use tokio_util::sync::CancellationToken;

use crate::stage::Failure;

/// As many out at once as `delivery.max_in_flight` allows.
const WINDOW: usize = 1024;
/// Half of it, so that one batch is read while one is out.
const BATCH: usize = WINDOW / 2;

/// Moves messages until told to stop. Each batch is acknowledged once all of it is confirmed.
///
/// # Errors
/// A connection was lost, or the broker did not take a message: there is nothing that retries.
pub async fn run(broker: BrokerConfig, from: String, to: Destination, stop: CancellationToken) -> Result<(), Failure> {
    let options =
        SourceOptions { topic: from, group: "relay".to_owned(), max_batch: BATCH, max_batch_bytes: 4 << 20, max_unsettled: 4 * WINDOW };
    let source = broker.source(options).await?;
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(15)).await?;
    let mut open: HashMap<BatchId, usize> = HashMap::new();
    let mut in_flight = 0;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            batch = outcomes.recv() => {
                let Some(batch) = batch else { return Err(Failure::Course("the relay's link was lost".to_owned())) };
                in_flight -= batch.len();
                for (token, outcome) in batch {
                    if outcome != Outcome::Confirmed {
                        return Err(Failure::Course(format!("the relay: {outcome:?}")));
                    }
                    // The place within the batch is in the lower half.
                    let id = BatchId(token >> 32);
                    let Some(left) = open.get_mut(&id) else { continue };
                    *left -= 1;
                    if *left == 0 {
                        open.remove(&id);
                        source.ack(id).await?;
                    }
                }
            }
            batch = source.recv(), if in_flight + BATCH <= WINDOW => {
                let batch = batch?;
                open.insert(batch.id, batch.messages.len());
                in_flight += batch.messages.len();
                let publications = (batch.id.0 << 32..).zip(batch.messages);
                let publications = publications.map(|(token, message)| Publication { token, to: to.clone(), message, dedupe_id: String::new() });
                sink.publish(publications.collect()).await;
            }
        }
    }
    sink.close().await?;
    Ok(source.close().await?)
}
