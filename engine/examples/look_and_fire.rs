//! Lists what waits, fires a job before its time, and reads what became of it:
//! `cargo run -p dwell-engine --example look_and_fire redis://127.0.0.1:6379`

use std::time::Duration;

use dwell_engine::{
    Client, Destination, Error, Job, JobState, NewJob, Page, Query, Redis, Verdict,
};

/// Stores two jobs, fires one, and answers the page of what waits.
pub(crate) async fn run(url: &str) -> Result<Page, Error> {
    let client = Client::connect(&Redis::new(url), &["main"]).await?;
    for order in [17, 18] {
        let id = format!("order-{order}")
            .parse()
            .expect("a short text without control characters is an id");
        let job = Job::new("main", Destination::new("orders.close"), order.to_string());
        client.schedule(&NewJob::new(job, Duration::from_secs(3600)).id(id)).await?;
    }
    let first = "order-17".parse().expect("a short text without control characters is an id");
    assert_eq!(client.fire(&first).await?, Verdict::Firing);
    if let Some(job) = client.get(&first).await? {
        println!("{} is due at {:?}, {} attempts so far", job.id, job.due(), job.attempts());
    }
    client.list(&Query::new(JobState::Scheduled)).await
}

#[tokio::main]
#[allow(dead_code, reason = "a test calls `run` by itself")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    for job in run(&url).await?.jobs {
        println!("{}: {} at {:?}", job.id, job.job().target, job.due());
    }
    Ok(())
}
