//! `dwell stats`: counts of jobs, directly from Redis.

use super::common::Common;
use super::exit::{Exit, Stop};
use super::table::{Column, local, relative, table, width};
use crate::store::Store;
use crate::store::reader::counts::Counts;
use crate::view;

/// `dwell stats`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {}

pub(super) async fn run(common: &Common, _: &Args) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let store = Store::attach(&settings.redis).await?;
    let counts = store.reader.counts(&[]).await?;
    let mut stats = view::Stats::of(&counts);
    let limited = store.reader.limited().await?;
    stats.limited = limited.into_iter().map(view::Limited::from).collect();
    common.answer(&stats, &text(&stats, &counts, &settings.redis.namespace))?;
    Ok(Exit::Ok)
}

fn text(stats: &view::Stats, counts: &Counts, namespace: &str) -> String {
    let next = stats
        .next_due_ms
        .map_or("none".to_owned(), |ms| format!("{} ({})", local(ms), relative(ms, counts.now_ms)));
    let lines = [
        ("namespace", format!("{namespace}, {} buckets", stats.buckets.len())),
        ("scheduled", stats.scheduled.to_string()),
        ("overdue", stats.overdue.to_string()),
        ("ready", stats.ready.to_string()),
        ("reserved", stats.reserved.to_string()),
        ("dead", stats.dead.to_string()),
        ("next due", next),
    ];
    let head = lines
        .into_iter()
        .map(|(name, value)| format!("{name:<11} {value}"))
        .collect::<Vec<_>>()
        .join("\n");
    let rows =
        stats.brokers.iter().map(|(name, broker)| [name.clone(), broker.scheduled.to_string()]);
    let limited = stats.limited.iter().map(|limit| {
        let name = limit.broker.as_ref().or(limit.queue.as_ref()).cloned().unwrap_or_default();
        let since = relative(limit.since_ms, counts.now_ms);
        [name, limit.pattern.clone(), limit.waiting.to_string(), since]
    });
    let limited: Vec<_> = limited.collect();
    let limited = if limited.is_empty() {
        String::new()
    } else {
        let columns = [
            Column::cut("LIMITED", 8),
            Column::cut("PATTERN", 8),
            Column::whole("WAITING"),
            Column::whole("SINCE"),
        ];
        format!("\n\n{}", table(columns, limited, width()))
    };
    format!(
        "{head}\n\n{}{limited}",
        table([Column::cut("BROKER", 8), Column::whole("SCHEDULED")], rows, width())
    )
}
