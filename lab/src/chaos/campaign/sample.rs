//! A look at an instance that disturbs nothing: its memory, and what it counted.

use std::time::Duration;

use dwell::clock;
use dwell_testkit::usage::Usage;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::chaos::history::Sample;
use crate::chaos::system::System;

/// How long an answer may take: one that is frozen gives none.
const TIMEOUT: Duration = Duration::from_millis(500);
/// What an instance counts when a copy becomes possible.
const POSSIBLE: &str = "dwell_possible_duplicates_total{";

/// Looks at an instance; `None` while something is done to it, or it is down.
pub(super) async fn sample(system: &System, instance: usize) -> Option<Sample> {
    let pid = system.instances[instance].server.try_lock().ok()?.pid()?;
    let rss = Usage::of([pid])?.rss;
    let scrape = clock::timeout(TIMEOUT, scrape(system, instance)).await;
    let possible_duplicates = scrape.and_then(Result::ok).map(|text| sum(&text, POSSIBLE));
    Some(Sample { instance, pid, rss, possible_duplicates })
}

async fn scrape(system: &System, instance: usize) -> std::io::Result<String> {
    let mut link = TcpStream::connect(system.probes(instance)).await?;
    link.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    link.read_to_string(&mut answer).await?;
    // Zero is said, too: without it this is no whole answer.
    if answer.contains(POSSIBLE) { Ok(answer) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}

/// All series that begin so.
fn sum(scrape: &str, begin: &str) -> u64 {
    let values = scrape.lines().filter(|line| line.starts_with(begin)).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_causes_are_summed() {
        let scrape = "# TYPE d_total counter\nd_total{a=\"x\"} 2\nd_total{a=\"y\"} 3\nd_totals 9\n";
        assert_eq!((sum(scrape, "d_total{"), sum(scrape, "e{")), (5, 0));
    }
}
