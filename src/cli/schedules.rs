//! `dwell schedules`: the recurring schedules by id, directly from Redis.

use super::common::{Common, Form, line};
use super::exit::{Exit, Stop};
use super::table::{Column, local, relative, table, width};
use crate::schedule::StoredSchedule;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::schedules::{ScheduleFilter, ScheduleQuery};
use crate::view;

/// The id is never cut: it is the argument of other commands.
const COLUMNS: [Column; 7] = [
    Column::whole("ID"),
    Column::cut("SCHEDULE", 12),
    Column::cut("ZONE", 6).spare(3),
    Column::whole("NEXT"),
    Column::whole("WHEN").spare(2),
    Column::cut("TARGET", 12).spare(1),
    Column::whole("MISSED").spare(4),
];
/// The next times in JSON, as over HTTP.
const NEXT: usize = 5;
/// The most schedules that are read at once.
const PAGE_SCHEDULES: usize = 1000;

/// `dwell schedules`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Only schedules whose id has this part
    #[arg(long, value_name = "TEXT")]
    pub q: Option<String>,
    /// Only paused schedules
    #[arg(long)]
    pub paused: bool,
    /// The maximum number of schedules
    #[arg(long, default_value_t = 100)]
    pub limit: usize,
}

pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let store = Store::attach(&settings.redis).await?;
    let now_ms = store.read_clock().await? / 1000;
    let (found, has_more) = read(&store, args).await?;
    let shown = found.iter().map(|stored| {
        let next = stored.upcoming(now_ms, NEXT);
        (stored, view::Schedule::of(stored, next, &settings.delivery.retry))
    });
    if common.output == Form::Json {
        for (_, schedule) in shown {
            common.answer(&schedule, "")?;
        }
        return Ok(Exit::Ok);
    }
    let mut text = match found.len() {
        0 => "no recurring schedules".to_owned(),
        _ => table(COLUMNS, shown.map(|(stored, schedule)| row(stored, schedule, now_ms)), width()),
    };
    if has_more {
        text.push_str(&format!("\nthe first {}; more with --limit", found.len()));
    }
    line(&text)?;
    Ok(Exit::Ok)
}

/// The schedules, and whether there are more than `limit`.
async fn read(store: &Store, args: &Args) -> Result<(Vec<StoredSchedule>, bool), StoreError> {
    let filter = ScheduleFilter {
        q: args.q.clone(),
        paused: args.paused.then_some(true),
        ..ScheduleFilter::default()
    };
    let mut query = ScheduleQuery { filter, limit: 0, after: None };
    let mut found = Vec::new();
    while found.len() < args.limit {
        query.limit = (args.limit - found.len()).min(PAGE_SCHEDULES);
        let page = store.schedules.list(&query).await?;
        found.extend(page.schedules);
        query.after = page.next;
        if query.after.is_none() {
            return Ok((found, false));
        }
    }
    Ok((found, true))
}

fn row(stored: &StoredSchedule, schedule: view::Schedule, now_ms: i64) -> [String; 7] {
    let next = schedule.next.first().copied();
    let when = match next {
        _ if schedule.paused => "paused".to_owned(),
        Some(ms) => relative(ms, now_ms),
        None => String::new(),
    };
    [
        schedule.id,
        schedule.schedule,
        schedule.time_zone.unwrap_or_default(),
        next.map(local).unwrap_or_default(),
        when,
        stored.job.target.to_string(),
        schedule.missed.to_string(),
    ]
}
