//! A worker process: handles its tasks until ctrl-c, then drains.
//! `cargo run -p dwell-engine --example worker redis://127.0.0.1:6379`

use std::time::Duration;

use dwell_engine::worker::{Context, Outcome};
use dwell_engine::{Client, Error, Redis, Task, Worker};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// An order that is to be closed unless it is paid.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CloseOrder {
    /// Its number.
    pub(crate) order: u64,
}

impl Task for CloseOrder {
    const QUEUE: &'static str = "orders.close";
}

async fn close(task: CloseOrder, context: Context) -> Result<Outcome, std::io::Error> {
    println!("order {} is not paid in time, attempt {}", task.order, context.attempt());
    Ok(Outcome::Finish)
}

/// Serves the queue until told to stop.
pub(crate) async fn run(client: Client, stop: CancellationToken) -> Result<(), Error> {
    Worker::new(client).task(close).concurrency(32).drain(Duration::from_secs(20)).run(stop).await
}

#[tokio::main]
#[allow(dead_code, reason = "a test calls `run` by itself")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&Redis::new(url), &[]).await?;
    for order in 17..20 {
        client.enqueue(&CloseOrder { order }, Duration::from_secs(2)).await?;
    }
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        // Without signals there is nothing to wait for.
        let _ = tokio::signal::ctrl_c().await;
        told.cancel();
    });
    run(client, stop).await
}
