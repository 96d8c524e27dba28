//! `dwell-lab bench`: load on real servers, and its results.

mod args;

use std::time::Duration;

pub(super) use args::Args;
use args::What;

use crate::bench::machine::Machine;
use crate::bench::metric::Run;
use crate::bench::report::{Report, Setup};
use crate::bench::{Options, backlog, drain, ingest, lateness, memory, pages, relay, scale, start};
use dwell::cli::common::Common;
use dwell::cli::exit::{Exit, Stop};
use dwell_testkit::environment::Failure;

/// Measures and prints the results. Fails if a job was lost, duplicated, early or damaged.
///
/// # Errors
/// A job was wrong, the servers failed, or a signal arrived.
pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    if let What::Report { lines, peers, docs, html } = &args.what {
        return Ok(pages::write(lines, peers.as_deref(), docs.as_deref(), html.as_deref())
            .map(|()| Exit::Ok)?);
    }
    if let Some(flag) = unused(args) {
        return Err(Stop::because(
            Exit::Usage,
            format!("{flag} does nothing here"),
            "leave it out, or measure `scale`",
        ));
    }
    super::until_signal(Box::pin(measure(common, args))).await
}

/// A flag that does not apply to this measurement.
fn unused(args: &Args) -> Option<&'static str> {
    let is_scale = matches!(args.what, What::Scale { .. });
    let has_one = matches!(args.what, What::Start { .. } | What::Relay { .. });
    [
        (!is_scale && args.instances.len() > 1, "more than one number of --instances"),
        (!is_scale && args.buckets.len() > 1, "more than one number of --buckets"),
        (has_one && args.instances != [1], "--instances"),
    ]
    .into_iter()
    .find_map(|(is_unused, flag)| is_unused.then_some(flag))
}

/// Measures every point once in each run, so that a slower machine affects all points alike.
/// Returns a report for each point.
async fn measure(common: &Common, args: &Args) -> Result<Exit, Stop> {
    let say = super::progress(common);
    let mut reports = reports(args);
    for _ in 0..args.runs {
        let runs = match &args.what {
            What::Scale { jobs, pending } => {
                let options = Options { pending: *pending, ..options(args, say) };
                Box::pin(scale::run(&options, &points(args), jobs.jobs)).await?
            }
            what => {
                let mut runs = Vec::new();
                for (options, rate) in settings(args, say) {
                    runs.push(Box::pin(one(&options, what, rate)).await?);
                }
                runs
            }
        };
        for (report, (run, machine)) in reports.iter_mut().zip(runs) {
            report.add(&run);
            report.machine = machine;
        }
    }
    for report in &reports {
        common.answer(report, &report.to_string())?;
    }
    let wrong: Vec<String> = reports.iter().filter_map(Report::wrong).collect();
    if wrong.is_empty() {
        Ok(Exit::Ok)
    } else {
        Err(Stop::because(Exit::Failed, wrong.join("; "), ""))
    }
}

/// One run at one point.
async fn one(
    options: &Options,
    what: &What,
    rate: Option<lateness::Rate>,
) -> Result<(Run, Machine), Failure> {
    match what {
        What::Drain(of) => Box::pin(drain::run(options, of.jobs.jobs, !of.alone)).await,
        What::Lateness { secs, .. } => {
            Box::pin(lateness::run(options, rate.unwrap_or(lateness::Rate::Half), *secs)).await
        }
        What::Backlog { overdue, rate, secs } => {
            Box::pin(backlog::run(options, *overdue, *rate, *secs)).await
        }
        What::Schedule(of) => Box::pin(ingest::run(options, of.jobs.jobs, !of.alone)).await,
        What::Memory { load_jobs, load_body, .. } => {
            Box::pin(memory::run(options, memory::Load { jobs: *load_jobs, body: *load_body }))
                .await
        }
        What::Relay { jobs } => Box::pin(relay::run(options, jobs.jobs)).await,
        What::Start { times, secs, .. } => {
            Box::pin(start::run(options, *times, Duration::from_secs(*secs))).await
        }
        What::Scale { .. } | What::Report { .. } => {
            Err(Failure::Unexpected("it has no single point".to_owned()))
        }
    }
}

fn options(args: &Args, say: fn(&str)) -> Options {
    Options {
        broker: args.broker,
        redis: args.redis.clone(),
        aof: args.aof,
        instances: args.instances.first().copied().map_or(1, usize::from),
        buckets: args.buckets.first().copied().unwrap_or(16),
        body: args.body,
        pending: 0,
        distance: args.far,
        say,
    }
}

fn points(args: &Args) -> Vec<scale::Point> {
    scale::points(
        &args.instances.iter().copied().map(usize::from).collect::<Vec<_>>(),
        &args.buckets,
    )
}

/// The points of a measurement other than `scale`.
fn settings(args: &Args, say: fn(&str)) -> Vec<(Options, Option<lateness::Rate>)> {
    let of = |pending: u64| Options { pending, ..options(args, say) };
    match &args.what {
        What::Drain(jobs) | What::Schedule(jobs) => vec![(of(jobs.pending), None)],
        What::Memory { pending, .. } => vec![(of(*pending), None)],
        What::Lateness { rate, pending, .. } => pending
            .iter()
            .flat_map(|&pending| rate.iter().map(move |&rate| (of(pending), Some(rate))))
            .collect(),
        What::Start { pending, .. } => pending.iter().map(|&pending| (of(pending), None)).collect(),
        What::Backlog { .. } | What::Relay { .. } | What::Scale { .. } | What::Report { .. } => {
            vec![(of(0), None)]
        }
    }
}

/// The empty report of each point.
fn reports(args: &Args) -> Vec<Report> {
    let (bench, jobs, secs) = match &args.what {
        What::Drain(of) => ("drain", Some(of.jobs.jobs), None),
        What::Lateness { secs, .. } => ("lateness", None, Some(*secs)),
        What::Backlog { overdue, secs, .. } => ("backlog", Some(*overdue), Some(*secs)),
        What::Schedule(of) => ("schedule", Some(of.jobs.jobs), None),
        What::Memory { .. } => ("memory", None, None),
        What::Scale { jobs, .. } => ("scale", Some(jobs.jobs), None),
        What::Relay { jobs } => ("relay", Some(jobs.jobs), None),
        What::Start { secs, .. } => ("start", None, Some(*secs)),
        What::Report { .. } => return Vec::new(),
    };
    // The path of the program and the URL of Redis are not part of a report.
    let words = std::env::args()
        .skip(1)
        .map(|word| if word.contains("://") { "URL".to_owned() } else { word });
    let command =
        std::iter::once("dwell-lab".to_owned()).chain(words).collect::<Vec<_>>().join(" ");
    let load = if let What::Memory { load_jobs, load_body, .. } = &args.what {
        Some((*load_jobs, *load_body))
    } else {
        None
    };
    let report =
        |setup: Setup| Report::new(bench, Setup { jobs, secs, load, ..setup }, command.clone());
    if let What::Scale { pending, .. } = &args.what {
        let of = |point: scale::Point| Setup {
            pending: *pending,
            instances: point.instances,
            buckets: point.buckets,
            ..options(args, |_| {}).setup()
        };
        return points(args).into_iter().map(|point| report(of(point))).collect();
    }
    let settings = settings(args, |_| {});
    settings
        .into_iter()
        .map(|(options, rate)| {
            report(Setup { rate: rate.map(|rate| rate.to_string()), ..options.setup() })
        })
        .collect()
}
