//! `dwell run`: the sidecar.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args as ClapArgs;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use tracing::Level;

use super::common::Common;
use super::exit::{Exit, Stop};
use crate::compat::listeners::{self, Serving};
use crate::compat::{Access, Service};
use crate::config::{Problem, Settings, read_secret};
use crate::http::api::guard::Guard;
use crate::http::api::{self, Api};
use crate::http::server::account::Memory;
use crate::http::server::listener::MAX_CONSUMER_CONNECTIONS;
use crate::http::server::probes;
use crate::http::{ListenError, Listener, Rates, Room, StartGate, router};
use crate::queues::QueueService;
use crate::readiness::{Readiness, Waiting};
use crate::request::RequestRules;
use crate::runtime::{Failure, Roles, Runtime, StartError};
use crate::shutdown::Signals;
use crate::telemetry::trace::Traces;
use crate::telemetry::{Events, Metrics, log};
use crate::units::parse_duration_ms;

/// The flags of `dwell run`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Only deliver: read no requests
    #[arg(long, conflicts_with = "no_dispatch")]
    no_ingest: bool,
    /// Only read requests: deliver nothing. Consumers of queues are served all the same
    #[arg(long)]
    no_dispatch: bool,
    /// How long to wait at the start for a Redis, a broker or a destination; by default without
    /// limit
    #[arg(long = "wait", value_name = "DURATION", value_parser = parse_duration_ms)]
    wait_ms: Option<u64>,
}

impl From<StartError> for Stop {
    fn from(error: StartError) -> Self {
        Stop::because(Exit::of(error.cause), error.message, error.hint)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Agent(what) => Stop::because(
                Exit::Failed,
                what,
                "this is a bug in dwell; it ends so that it is started again",
            ),
            Failure::Start(error) => error.into(),
        }
    }
}

/// Reads the settings, and runs with the threads that they allow.
///
/// # Errors
/// See [`run`].
pub(super) fn start(common: &Common, args: &Args) -> Result<Exit, Stop> {
    log::start().map_err(|error| Stop::because(Exit::Usage, error.to_string(), ""))?;
    let settings = common.settings()?;
    // Boxed: the future of all agents is large.
    super::runtime(&settings.runtime)?.block_on(Box::pin(run(settings, args)))
}

/// The exit code. Says why the run ended: as the last line of the log, and for people on a
/// terminal.
pub(super) fn finish(done: Result<Exit, Stop>) -> ExitCode {
    match &done {
        Err(stop) if log::is_json() && tracing::enabled!(Level::ERROR) => {
            let (exit_code, mask) = (stop.exit().code(), super::mask());
            match stop {
                Stop::Settings(problems) => {
                    for problem in problems {
                        let Problem { key, source, message, hint } = problem;
                        let [key, source, message, hint] =
                            [key, source, message, hint].map(|text| mask.over(text));
                        tracing::error!(
                            exit_code,
                            setting = key,
                            source,
                            error = message,
                            hint,
                            "the settings are wrong"
                        );
                    }
                }
                Stop::Because { message, hint, .. } => {
                    tracing::error!(
                        exit_code,
                        error = mask.over(message),
                        hint = mask.over(hint),
                        "ended by an error"
                    );
                }
            }
            stop.exit().into()
        }
        _ => super::finish(done),
    }
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// The settings are not valid; a server refuses access; what the start waits for does not come in
/// time; or an agent failed.
async fn run(settings: Settings, args: &Args) -> Result<Exit, Stop> {
    let mut signals = Signals::new()?;
    let traces = Traces::from_environment().map_err(|error| {
        Stop::because(
            Exit::Settings,
            error.to_string(),
            "write the URL of an OTLP collector, as http://127.0.0.1:4317",
        )
    })?;
    let metrics = Metrics::new(
        settings.brokers.keys().map(String::as_str),
        settings.ingest.keys().map(String::as_str),
    )
    .with_queues(settings.queues.clone());
    let read = settings.ingest.keys().filter(|_| !args.no_ingest).map(String::as_str);
    let readiness = Readiness::new(read);
    readiness.waits_for(Waiting::Api);
    let (room, memory) = (Room::of_system(), Memory::of(&settings.limits));
    let listener = bind("probes.listen", &settings.probes.listen)
        .await?
        .for_probes()
        .within(&room.for_probes(), &Memory::of_probes());
    tracing::info!(address = %listener.address(), "probes");
    let admin = bind("http.listen", &settings.http.listen).await?;
    let admin = if settings.queues.is_empty() {
        admin
    } else {
        if room.most() < MAX_CONSUMER_CONNECTIONS {
            let (most, wanted) = (room.most(), MAX_CONSUMER_CONNECTIONS);
            tracing::warn!(
                most,
                wanted,
                "the system's limit of open files is low for waiting consumers: raise it (ulimit -n)"
            );
        }
        admin.for_consumers()
    };
    let admin = admin.within(&room, &memory);
    let compat = listeners::bind(&settings.compat, &room, &memory).await.map_err(cannot_listen)?;
    let token =
        match settings.http.token_file.as_deref() {
            Some(file) => Some(read_secret(file).map_err(|why| {
                Stop::because(Exit::Settings, format!("http.token_file: {why}"), "")
            })?),
            None => None,
        };
    let guard = Guard::following(&settings.http, token.as_deref());
    let http_stop = CancellationToken::new();
    let http = tokio::spawn(listener.serve(
        probes::router(readiness.clone(), metrics.clone(), settings.redis.refusals.clone()),
        http_stop.clone(),
    ));

    tracing::info!(address = %admin.address(), "admin api");
    let gate = StartGate::default();
    let admin = tokio::spawn(admin.serve(gate.router(), http_stop.clone()));
    let compat: Vec<Serving> =
        compat.into_iter().map(|bound| bound.serve(http_stop.clone())).collect();

    let roles = Roles { ingest: !args.no_ingest, dispatch: !args.no_dispatch };
    let max_wait = args.wait_ms.map(Duration::from_millis);
    let starting =
        Box::pin(Runtime::begin(&settings, roles, max_wait, &metrics, &traces, &readiness));
    let mut runtime = tokio::select! {
        started = starting => started?,
        signal = signals.next() => {
            tracing::info!(signal, "stopped during the start");
            return Ok(Exit::Ok);
        }
    };
    runtime.consumers().share(memory.calls());
    let rates = Rates::new(metrics.clone());
    let queues = QueueService::new(
        settings.queues.clone(),
        runtime.consumers().clone(),
        Events::new(metrics.clone()),
        settings.limits.max_ttr.ms(),
    );
    let api = Api::new(api::Parts {
        settings: &settings,
        roles,
        instance: runtime.instance(),
        apply: runtime.apply().clone(),
        queues: queues.clone(),
        full_queues: runtime.full_queues().clone(),
        rates: rates.clone(),
        readiness: readiness.clone(),
        guard: guard.clone(),
        stop: http_stop.clone(),
    });
    let sampling = tokio::spawn(rates.run(http_stop.clone()));
    gate.open(router::router(api));
    readiness.reached(&Waiting::Api);
    let service = Service::new(
        runtime.apply().clone(),
        queues,
        RequestRules {
            full_queues: runtime.full_queues().clone(),
            ..RequestRules::direct(&settings)
        },
    );
    let access = Access::new(guard);
    compat.iter().for_each(|listener| listener.open(&service, &access));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "running");
    let failed = tokio::select! {
        signal = signals.next() => {
            tracing::info!(signal, drain_ms = settings.shutdown.drain.ms(), "draining");
            None
        }
        failed = runtime.failed() => {
            tracing::error!(%failed, "ending");
            Some(failed)
        }
    };
    readiness.shutting_down();
    let drain = Duration::from_millis(settings.shutdown.drain.ms());
    tokio::select! {
        clean = runtime.stop(drain) => {
            if clean {
                tracing::info!("drained: nothing is left in flight");
            } else {
                tracing::warn!("the drain time is over; other instances take over the remaining jobs when their leases expire");
            }
        }
        signal = signals.next() => tracing::warn!(signal, "a second signal: ending at once"),
    }
    traces.stop().await;
    http_stop.cancel();
    // Open requests are answered, for a second at most.
    let _ = tokio::join!(http, admin, sampling, join_all(compat.into_iter().map(Serving::ended)));
    tracing::info!("ended");
    failed.map_or(Ok(Exit::Ok), |failed| Err(failed.into()))
}

async fn bind(setting: &'static str, listen: &str) -> Result<Listener, Stop> {
    Listener::bind(setting, listen).await.map_err(cannot_listen)
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn cannot_listen(error: ListenError) -> Stop {
    let exit =
        if error.exit_code() == Exit::Settings.code() { Exit::Settings } else { Exit::Unavailable };
    Stop::because(exit, error.to_string(), "")
}
