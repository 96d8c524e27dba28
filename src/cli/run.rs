//! `dwell run`: the sidecar.

use std::time::Duration;

use clap::Args as ClapArgs;
use futures_util::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio_util::sync::CancellationToken;

use super::common::Common;
use super::exit::{Exit, Stop};
use crate::bridge::{Bridge, Failure, Roles, StartError};
use crate::compat::listeners::{self, Serving};
use crate::compat::{Access, Service};
use crate::config::read_secret;
use crate::http::api::{self, Api};
use crate::http::listener::CONSUMERS_MAX;
use crate::http::{ListenError, Listener, Rates, StartGate, probes, router};
use crate::queues::QueueService;
use crate::readiness::{Readiness, Waiting};
use crate::request::Rules;
use crate::shutdown::Signals;
use crate::telemetry::trace::Traces;
use crate::telemetry::{Metrics, log};
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
    /// How long to wait for an unreachable Redis or broker; by default without limit
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
            Failure::Agent(what) => Stop::because(Exit::Failed, what, "this is a bug in dwell; it ends so that it is started again"),
            Failure::Start(error) => error.into(),
        }
    }
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// The settings are not valid; a server refuses access, does not have what the settings name, or
/// cannot be reached in time; or an agent failed.
pub async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    log::start().map_err(|error| Stop::because(Exit::Usage, error.to_string(), ""))?;
    let mut signals = Signals::new()?;
    let traces = Traces::from_environment().map_err(|error| {
        Stop::because(Exit::Settings, error.to_string(), "write the URL of an OTLP collector, as http://127.0.0.1:4317")
    })?;
    let metrics = Metrics::new(settings.brokers.keys().map(String::as_str), settings.ingest.keys().map(String::as_str))
        .with_queues(settings.queues.iter().map(|rules| rules.name.as_str()));
    let read = settings.ingest.keys().filter(|_| !args.no_ingest).map(String::as_str);
    let readiness = Readiness::new(read);
    readiness.waits_for(Waiting::Api);
    let listener = bind("probes.listen", &settings.probes.listen).await?;
    tracing::info!(address = %listener.address(), "probes");
    let admin = bind("http.listen", &settings.http.listen).await?;
    let admin = if settings.queues.is_empty() {
        admin
    } else {
        allow_connections();
        admin.for_consumers()
    };
    let compat = listeners::bind(&settings.compat).await.map_err(cannot_listen)?;
    let token = match &settings.http.token_file {
        Some(file) => Some(read_secret(file).map_err(|why| Stop::because(Exit::Settings, format!("http.token_file: {why}"), ""))?),
        None => None,
    };
    let http_stop = CancellationToken::new();
    let http = tokio::spawn(listener.serve(probes::router(readiness.clone(), metrics.clone()), http_stop.clone()));

    tracing::info!(address = %admin.address(), "admin api");
    let gate = StartGate::default();
    let admin = tokio::spawn(admin.serve(gate.router(), http_stop.clone()));
    let compat: Vec<Serving> = compat.into_iter().map(|bound| bound.serve(http_stop.clone())).collect();

    let roles = Roles { ingest: !args.no_ingest, dispatch: !args.no_dispatch };
    let max_wait = args.wait_ms.map(Duration::from_millis);
    let starting = Box::pin(Bridge::begin(&settings, roles, max_wait, &metrics, &traces, &readiness));
    let mut bridge = tokio::select! {
        started = starting => started?,
        signal = signals.next() => {
            tracing::info!(signal, "stopped during the start");
            return Ok(Exit::Ok);
        }
    };
    let rates = Rates::new(metrics.clone());
    let queues = QueueService::new(settings.queues.clone(), bridge.consumers().clone(), metrics.clone(), settings.limits.max_ttr_ms.into());
    let api = Api::new(api::Parts {
        settings: &settings,
        roles,
        instance: bridge.instance(),
        apply: bridge.apply().clone(),
        queues: queues.clone(),
        gauge: bridge.gauge().clone(),
        rates: rates.clone(),
        readiness: readiness.clone(),
        token: token.as_deref(),
        stop: http_stop.clone(),
    });
    let sampling = tokio::spawn(rates.run(http_stop.clone()));
    gate.open(router::router(api));
    readiness.reached(&Waiting::Api);
    let service = Service::new(bridge.apply().clone(), queues, Rules { gauge: bridge.gauge().clone(), ..Rules::direct(&settings) });
    let access = Access::new(token.as_deref(), &settings.http.tokens);
    compat.iter().for_each(|listener| listener.open(&service, &access));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "running");
    let failed = tokio::select! {
        signal = signals.next() => {
            tracing::info!(signal, drain_ms = settings.shutdown.drain_ms, "draining");
            None
        }
        failed = bridge.failed() => {
            tracing::error!(%failed, "ending");
            Some(failed)
        }
    };
    readiness.shutting_down();
    let drain = Duration::from_millis(settings.shutdown.drain_ms);
    tokio::select! {
        clean = bridge.stop(drain) => {
            if !clean {
                tracing::warn!("the drain time is over; other instances take over the remaining jobs when their leases expire");
            }
        }
        signal = signals.next() => tracing::warn!(signal, "a second signal: ending at once"),
    }
    traces.stop().await;
    http_stop.cancel();
    // Open requests are answered, for a second at most.
    let _ = tokio::join!(http, admin, sampling, join_all(compat.into_iter().map(Serving::ended)));
    failed.map_or(Ok(Exit::Ok), |failed| Err(failed.into()))
}

/// Raises the limit of open files to what the system allows: each waiting consumer has a connection.
fn allow_connections() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = CONSUMERS_MAX as u64 + 1024;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = limit.maximum.map_or(wanted, |most| most.min(wanted));
        if setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit }).is_err() || current < wanted {
            tracing::warn!(files = current, wanted, "the system's limit of open files is low for waiting consumers: raise it (ulimit -n)");
        }
    }
}

async fn bind(setting: &'static str, listen: &str) -> Result<Listener, Stop> {
    Listener::bind(setting, listen).await.map_err(cannot_listen)
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn cannot_listen(error: ListenError) -> Stop {
    let exit = if error.exit_code() == Exit::Settings.code() { Exit::Settings } else { Exit::Unavailable };
    Stop::because(exit, error.to_string(), "")
}
