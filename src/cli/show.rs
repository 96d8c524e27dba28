//! `dwell show ID`: one job, directly from Redis.

use super::common::{Common, job_id};
use super::exit::{Exit, Stop};
use super::table::{clean, local, preview, relative};
use crate::job::JobId;
use crate::store::Store;
use crate::store::reader::lookup::StoredJob;
use crate::units::{show_duration_ms, show_size};
use crate::view;

/// `dwell show`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The job's id
    #[arg(value_parser = job_id)]
    pub id: JobId,
    /// Show the body too
    #[arg(long)]
    pub body: bool,
}

pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let store = Store::attach(&settings.redis).await?;
    let now_ms = store.read_clock().await? / 1000;
    let Some(found) = store.reader.find(&args.id).await? else {
        let message = format!("there is no job {}", crate::units::quote(args.id.as_str()));
        let hint = match store.schedules.find(&args.id).await {
            Ok(Some(_)) => "a recurring schedule has this id: see `dwell schedule ID`",
            _ => "it may have been published, finished or cancelled: such jobs are not kept",
        };
        return Err(Stop::because(Exit::NotFound, message, hint));
    };
    let job = view::Job::of(&found, &settings.delivery.retry);
    let mut text = text(&found, &job, now_ms);
    let job = if args.body { job.with_body(&found) } else { job };
    if args.body {
        text.push('\n');
        text.push_str(&preview(&found.record.job.body));
    }
    common.answer(&job, &text)?;
    Ok(Exit::Ok)
}

fn text(found: &StoredJob, job: &view::Job, now_ms: i64) -> String {
    let time = |ms: i64| format!("{} ({})", local(ms), relative(ms, now_ms));
    let state =
        match (job.awaiting_finish, found.state_record.as_ref().and_then(|state| state.reason)) {
            (true, _) => {
                format!(
                    "{}, awaiting its consumer's finish until {}",
                    job.state,
                    time(found.score_ms)
                )
            }
            (false, Some(reason)) => format!("{}, {}", job.state, reason.as_str()),
            (false, None) => job.state.to_owned(),
        };
    // The consumer of a queue always confirms.
    let confirm = if job.queue.is_some() {
        "consumer".to_owned()
    } else {
        format!("{:?}", job.confirm).to_lowercase()
    };
    let mut lines = vec![
        ("id", job.id.clone()),
        ("state", state),
        ("due", time(job.due_ms)),
        ("attempts", job.attempt.to_string()),
        ("retry", if job.retry.is_empty() { "none".to_owned() } else { job.retry.join(", ") }),
        ("ttr", show_duration_ms(job.ttr_ms.into())),
        ("confirm", confirm),
        ("size", show_size(job.size as u64)),
        ("created", time(job.created_ms)),
    ];
    let place = match (&job.queue, &job.broker) {
        (None, broker) => vec![
            ("broker", broker.clone().unwrap_or_default()),
            ("target", found.record.job.target.to_string()),
        ],
        (Some(queue), _) => vec![("queue", queue.clone())],
    };
    lines.splice(3..3, place);
    if !job.key.is_null() {
        lines.push(("key", job.key.as_str().map_or_else(|| job.key.to_string(), str::to_owned)));
    }
    if let Some(died_ms) = job.died_ms {
        lines.push(("died", time(died_ms)));
    }
    if let Some(error) = &job.last_error {
        lines.push(("last error", error.clone()));
    }
    for (name, value) in &job.headers {
        lines.push((
            "header",
            format!("{name}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        ));
    }
    lines
        .into_iter()
        .map(|(name, value)| format!("{name:<11} {}", clean(&value)))
        .collect::<Vec<_>>()
        .join("\n")
}
