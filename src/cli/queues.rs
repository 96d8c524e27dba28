//! `dwell queues`: the queues and their jobs by state, directly from Redis.

use super::common::{Common, Form, line};
use super::exit::{Exit, Stop};
use super::table::{Column, relative, table, width};
use crate::store::Store;
use crate::view::Queue;

const COLUMNS: [Column; 7] = [
    Column::cut("QUEUE", 12),
    Column::whole("SCHEDULED").spare(3),
    Column::whole("READY"),
    Column::whole("RESERVED").spare(2),
    Column::whole("DEAD"),
    Column::whole("OLDEST READY").spare(1),
    Column::whole("PAUSED").spare(4),
];

/// `dwell queues`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {}

/// Prints the queues that the settings name, and all that have jobs or are paused.
pub(super) async fn run(common: &Common, _: &Args) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let store = Store::attach(&settings.redis).await?;
    let now_ms = store.read_clock().await? / 1000;
    let mut counts = store.reader.active_counts(|_| true).await?;
    counts.name(settings.queues.names());
    let queues: Vec<Queue> =
        counts.queues.into_values().map(|counts| Queue::of(counts, None)).collect();
    match common.output {
        Form::Json => queues.iter().try_for_each(|queue| common.answer(queue, ""))?,
        Form::Text if queues.is_empty() => line("no queues")?,
        Form::Text => {
            line(&table(COLUMNS, queues.iter().map(|queue| row(queue, now_ms)), width()))?
        }
    }
    Ok(Exit::Ok)
}

fn row(queue: &Queue, now_ms: i64) -> [String; 7] {
    [
        queue.queue.clone(),
        queue.scheduled.to_string(),
        queue.ready.to_string(),
        queue.reserved.to_string(),
        queue.dead.to_string(),
        queue.oldest_ready_ms.map_or(String::new(), |ms| relative(ms, now_ms)),
        if queue.paused { "paused".to_owned() } else { String::new() },
    ]
}
