//! Schedules a job half an hour from now, looks at it, and cancels it:
//! `cargo run -p dwell-engine --example schedule_and_cancel redis://127.0.0.1:6379`

use std::time::Duration;

use dwell_engine::{Client, Destination, Error, Job, NewJob, Redis, Verdict};

/// Schedules and cancels a job in the Redis of this URL.
pub(crate) async fn run(url: &str) -> Result<Verdict, Error> {
    let client = Client::connect(&Redis::new(url), &["main"]).await?;
    let job = Job::new("main", Destination::new("orders.close"), r#"{"order": 17}"#);
    let new_job = NewJob::new(job, Duration::from_secs(30 * 60));
    let answer = client.schedule(&new_job).await?;
    println!("{:?}, due at {:?}", answer.verdict, answer.due());
    client.cancel(&new_job.id).await
}

#[tokio::main]
#[allow(dead_code, reason = "a test calls `run` by itself")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    println!("{:?}", run(&url).await?);
    Ok(())
}
