//! `dwell ls`: the jobs by due time, directly from Redis.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use clap::ValueEnum;

use super::common::{Common, Form, json, line};
use super::exit::{Exit, Stop};
use super::table::{Column, local, relative, table, terminal, width};
use crate::clock;
use crate::shutdown::Signals;
use crate::store::Store;
use crate::store::reader::list::{Page, Query};
use crate::store::reader::lookup::JobState;
use crate::units::{parse_time_ms, show_size};
use crate::view;

/// Due time and id are never cut: the one orders the list, the other is the argument of other
/// commands.
const COLUMNS: [Column; 8] = [
    Column::whole("DUE"),
    Column::whole("WHEN").spare(2),
    Column::cut("ID", 16),
    Column::cut("BROKER", 6).spare(3),
    Column::cut("TARGET", 12).spare(1),
    Column::whole("ATTEMPTS").spare(4),
    Column::whole("SIZE").spare(5),
    Column::cut("LAST ERROR", 12).spare(6),
];
/// How often `--watch` reads the list.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// `dwell ls`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The state of the jobs
    #[arg(long, default_value = "scheduled")]
    pub state: ListedState,
    /// Only jobs for this target
    #[arg(long)]
    pub target: Option<String>,
    /// Only jobs of this queue
    #[arg(long)]
    pub queue: Option<String>,
    /// Only jobs due at this time or later: 2026-01-31T12:00:00Z or epoch milliseconds
    #[arg(long, value_name = "TIME", value_parser = parse_time_ms, allow_negative_numbers = true)]
    pub from: Option<i64>,
    /// Only jobs due before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time_ms, allow_negative_numbers = true)]
    pub to: Option<i64>,
    /// The maximum number of jobs
    #[arg(long, default_value_t = 100)]
    pub limit: usize,
    /// Refresh the list until interrupted; as JSON, print each new or changed job
    #[arg(long)]
    pub watch: bool,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListedState {
    /// Waits for its due time or its next attempt.
    Scheduled,
    /// Of a queue: due, and not fetched.
    Ready,
    /// An attempt is in flight, or the job waits for its consumer.
    Reserved,
    /// Kept as a dead job.
    Dead,
}

impl From<ListedState> for JobState {
    fn from(state: ListedState) -> Self {
        match state {
            ListedState::Scheduled => JobState::Scheduled,
            ListedState::Ready => JobState::Ready,
            ListedState::Reserved => JobState::Reserved,
            ListedState::Dead => JobState::Dead,
        }
    }
}

pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let store = Store::attach(&settings.redis).await?;
    let query = Query {
        queue: args.queue.clone(),
        from_ms: args.from,
        to_ms: args.to,
        target: args.target.clone(),
        limit: args.limit,
        ..Query::new(args.state.into())
    };
    let mut shown = ListOutput {
        common,
        default_retry_ms: &settings.delivery.retry,
        watch: args.watch,
        lines: HashMap::new(),
        follows: false,
    };
    if !args.watch {
        shown.show(&store, &query).await?;
        return Ok(Exit::Ok);
    }
    // Signals are received from here on: one that arrives during a call to Redis must not be lost.
    let mut signals = Signals::new()?;
    loop {
        match shown.show(&store, &query).await {
            // Redis may come back; a closed pipe does not.
            Err(stop) if stop.exit() == Exit::Unavailable => eprintln!("{stop}"),
            shown => shown?,
        }
        tokio::select! {
            _ = signals.next() => return Ok(Exit::Ok),
            () = clock::sleep(WATCH_INTERVAL) => {}
        }
    }
}

/// The state of the output: what was printed so far.
struct ListOutput<'a> {
    common: &'a Common,
    default_retry_ms: &'a [u64],
    watch: bool,
    /// The lines of the last read by id, if only changes are printed.
    lines: HashMap<String, String>,
    /// A page was printed before.
    follows: bool,
}

impl ListOutput<'_> {
    async fn show(&mut self, store: &Store, query: &Query) -> Result<(), Stop> {
        let now_ms = store.read_clock().await? / 1000;
        let page = store.reader.list(query).await?;
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

    fn text(&mut self, page: &Page, query: &Query, now_ms: i64) -> Result<(), Stop> {
        let rows = page.jobs.iter().map(|found| {
            let job = view::Job::of(found, self.default_retry_ms);
            let target = found.record.job.target.to_string();
            let error = job.last_error.unwrap_or_default();
            let when = relative(job.due_ms, now_ms);
            [
                local(job.due_ms),
                when,
                job.id,
                job.broker.unwrap_or_default(),
                target,
                job.attempt.to_string(),
                show_size(job.size as u64),
                error,
            ]
        });
        let mut text = match page.jobs.len() {
            0 => format!("no {} jobs", query.state.as_str()),
            _ => table(COLUMNS, rows, width()),
        };
        if page.next.is_some() {
            text.push_str(&format!("\nthe first {}; more with --limit", page.jobs.len()));
        }
        match terminal() {
            Some((_, rows)) if self.watch => redraw(&text, rows),
            // Prints pages with an empty line between two.
            _ if std::mem::replace(&mut self.follows, true) => line(&format!("\n{text}")),
            _ => line(&text),
        }
    }
}

/// Overwrites the terminal, as many rows as it has.
fn redraw(text: &str, rows: usize) -> Result<(), Stop> {
    let lines: Vec<&str> = text.lines().collect();
    // The cursor needs the last row.
    let most = rows.saturating_sub(1).max(2);
    let (shown, more) = match lines.len() > most {
        true => (&lines[..most - 1], format!("{} more lines\u{1b}[K\n", lines.len() - most + 1)),
        false => (&lines[..], String::new()),
    };
    // Moves to the top. Each line and the rest below are cleared as they are written, to avoid
    // flicker.
    let shown: String = shown.iter().map(|line| format!("{line}\u{1b}[K\n")).collect();
    let mut out = std::io::stdout().lock();
    write!(out, "\u{1b}[H{shown}{more}\u{1b}[J")?;
    Ok(out.flush()?)
}
