//! `dwell ls`: the jobs, by due time, straight from Redis.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::Duration;

use clap::ValueEnum;

use super::common::{Common, Form, json, line};
use super::exit::{Exit, Stop};
use super::table::{local, relative, table};
use crate::clock;
use crate::shutdown::Signals;
use crate::store::Store;
use crate::store::list::{Page, Query};
use crate::store::read::Place;
use crate::units::{parse_time_ms, show_size};
use crate::view;

/// How often `--watch` looks.
const WATCH: Duration = Duration::from_secs(1);

/// `dwell ls`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Which jobs
    #[arg(long, default_value = "scheduled")]
    pub state: State,
    /// Only jobs for this target
    #[arg(long)]
    pub target: Option<String>,
    /// Only jobs due at this time or later: 2026-01-31T12:00:00Z or epoch milliseconds
    #[arg(long, value_name = "TIME", value_parser = parse_time_ms, allow_negative_numbers = true)]
    pub from: Option<i64>,
    /// Only jobs due before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time_ms, allow_negative_numbers = true)]
    pub to: Option<i64>,
    /// How many jobs at most
    #[arg(long, default_value_t = 100)]
    pub limit: usize,
    /// Go on showing them until interrupted; as JSON, each job when it is new or has changed
    #[arg(long)]
    pub watch: bool,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum State {
    /// Waits for its time, or for its next attempt.
    Scheduled,
    /// An attempt is out, or waits for its consumer.
    Reserved,
    /// Kept as a dead letter.
    Dead,
}

impl From<State> for Place {
    fn from(state: State) -> Self {
        match state {
            State::Scheduled => Place::Scheduled,
            State::Reserved => Place::Reserved,
            State::Dead => Place::Dead,
        }
    }
}

pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let store = Store::attach(&settings.redis).await?;
    let query =
        Query { place: args.state.into(), from_ms: args.from, to_ms: args.to, target: args.target.clone(), after: None, limit: args.limit };
    let mut shown = Shown { common, default_retry_ms: &settings.delivery.retry_ms, watch: args.watch, lines: HashMap::new() };
    if !args.watch {
        shown.show(&store, &query).await?;
        return Ok(Exit::Ok);
    }
    // Heard from before the first look on: a signal that comes while Redis is asked must not be lost.
    let mut signals = Signals::new()?;
    loop {
        match shown.show(&store, &query).await {
            // Redis may come back; a closed pipe does not.
            Err(stop) if stop.exit() == Exit::Unavailable => eprintln!("{stop}"),
            shown => shown?,
        }
        tokio::select! {
            _ = signals.next() => return Ok(Exit::Ok),
            () = clock::sleep(WATCH) => {}
        }
    }
}

/// What was shown so far.
struct Shown<'a> {
    common: &'a Common,
    default_retry_ms: &'a [u64],
    watch: bool,
    /// The lines of the last look, by id, where only changes are shown.
    lines: HashMap<String, String>,
}

impl Shown<'_> {
    async fn show(&mut self, store: &Store, query: &Query) -> Result<(), Stop> {
        let now_ms = store.read_clock().await? / 1000;
        let page = store.list(query).await?;
        for (id, why) in &page.unreadable {
            eprintln!("job {}: {why}; run `dwell fsck`", crate::units::quote(id));
        }
        match self.common.output {
            Form::Json => self.objects(&page),
            Form::Text => self.text(&page, query, now_ms),
        }
    }

    fn objects(&mut self, page: &Page) -> Result<(), Stop> {
        let mut lines = HashMap::new();
        for found in &page.jobs {
            let job = view::Job::of(found, self.default_retry_ms);
            let text = json(&job)?;
            if self.lines.get(&job.id) != Some(&text) {
                line(&text)?;
            }
            if self.watch {
                lines.insert(job.id, text);
            }
        }
        self.lines = lines;
        Ok(())
    }

    fn text(&self, page: &Page, query: &Query, now_ms: i64) -> Result<(), Stop> {
        let clear = if self.watch && std::io::stdout().is_terminal() { "\u{1b}[2J\u{1b}[H" } else { "" };
        if page.jobs.is_empty() {
            return line(&format!("{clear}no {} jobs", query.place.as_str()));
        }
        let rows = page.jobs.iter().map(|found| {
            let job = view::Job::of(found, self.default_retry_ms);
            let target = found.record.job.to.to_string();
            let error = job.last_error.unwrap_or_default();
            let when = relative(job.due_ms, now_ms);
            [local(job.due_ms), when, job.id, job.broker, target, job.attempt.to_string(), show_size(job.size as u64), error]
        });
        let table = table(["DUE", "WHEN", "ID", "BROKER", "TARGET", "ATTEMPTS", "SIZE", "LAST ERROR"], rows);
        let more = if page.next.is_some() { format!("\nthe first {}; more with --limit", page.jobs.len()) } else { String::new() };
        line(&format!("{clear}{table}{more}"))
    }
}
