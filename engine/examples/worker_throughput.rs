//! How many jobs a second a worker takes whose handler does nothing: `cargo run --release -p
//! dwell-engine --example worker_throughput redis://127.0.0.1:6379 100000 256` (URL, jobs,
//! concurrency). Uses a namespace of its own, and leaves nothing in it but what Dwell remembers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dwell_engine::worker::{Context, Outcome};
use dwell_engine::{Client, Due, Error, Job, NewJob, Redis, Worker};
use futures_util::StreamExt;
use futures_util::stream;
use tokio_util::sync::CancellationToken;

/// The calls that store jobs side by side.
const CONCURRENT_CALLS: usize = 512;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let mut number =
        |default: usize| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (jobs, concurrency) = (number(100_000), number(256));
    let mut config = Redis::new(url);
    config.namespace = "worker-throughput".to_owned();
    let client = Client::connect(&config, &[]).await?;
    let storing = stream::iter(0..jobs).map(|number| {
        let (client, job) = (client.clone(), Job::for_queue("nothing", number.to_string()));
        async move { client.schedule(&NewJob::new(job, Due::NOW)).await }
    });
    let mut storing = storing.buffer_unordered(CONCURRENT_CALLS);
    while let Some(stored) = storing.next().await {
        stored?;
    }

    let (left, stop) = (Arc::new(AtomicUsize::new(jobs)), CancellationToken::new());
    let told = stop.clone();
    let nothing = move |_: Job, _: Context| {
        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
            told.cancel();
        }
        std::future::ready(Ok::<_, Infallible>(Outcome::Finish))
    };
    #[allow(
        clippy::disallowed_methods,
        reason = "a measurement, and the clock of the engine is its own"
    )]
    let begun = tokio::time::Instant::now();
    // The end of the run waits for the last word.
    Worker::new(client.clone())
        .queue("nothing", nothing)
        .concurrency(concurrency)
        .run(stop)
        .await?;
    let took = begun.elapsed();
    println!("{jobs} jobs in {took:.1?}: {:.0} a second", jobs as f64 / took.as_secs_f64());
    Ok(())
}
