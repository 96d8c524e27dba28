//! `dwell check`: checks settings, then servers; a line and a hint each. Exits as `run --wait 0s`
//! would.

mod brokers;
mod limits;
mod redis;
mod schedules;

use serde::Serialize;

use super::common::Common;
use super::exit::{Exit, Stop};
use super::table::clean;
use crate::config::{Problem, Settings};
use crate::runtime::StartError;
use crate::store::meta::{SweepRules, adopt};

/// `dwell check`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Check only the settings, without connecting to servers
    #[arg(long)]
    pub offline: bool,
    /// Store delivery.dead_retention and delivery.dedupe_window in the namespace, for all its
    /// instances
    #[arg(long, conflicts_with = "offline")]
    pub adopt: bool,
}

/// One check.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// The name: `redis.durability`, `brokers.main`.
    #[serde(rename = "check")]
    pub name: String,
    /// Whether `run` would continue.
    pub ok: bool,
    /// The result; without secrets.
    pub detail: String,
    /// What to do about it; empty if nothing is to be done.
    pub hint: String,
    /// The exit code of `run` because of it.
    #[serde(skip)]
    pub exit: Exit,
    /// The check was skipped because another one failed.
    #[serde(skip)]
    pub skipped: bool,
}

impl Check {
    /// The check passed.
    pub fn good(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Check {
            name: name.into(),
            ok: true,
            detail: detail.into(),
            hint: String::new(),
            exit: Exit::Ok,
            skipped: false,
        }
    }

    /// The check passed, with a warning.
    pub fn warning(
        name: impl Into<String>,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Check {
            name: name.into(),
            ok: true,
            detail: detail.into(),
            hint: hint.into(),
            exit: Exit::Ok,
            skipped: false,
        }
    }

    /// `run` would exit with this code.
    pub fn bad(
        exit: Exit,
        name: impl Into<String>,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Check {
            name: name.into(),
            ok: false,
            detail: detail.into(),
            hint: hint.into(),
            exit,
            skipped: false,
        }
    }

    /// The check was skipped: `on` failed, and `run` would stop there.
    pub fn skipped(name: impl Into<String>, on: &Check) -> Self {
        let (detail, hint) =
            (format!("skipped: see {}", on.name), format!("fix {} first", on.name));
        Check { name: name.into(), ok: false, detail, hint, exit: on.exit, skipped: true }
    }

    /// The error that `run` would stop with.
    pub fn of_error(name: impl Into<String>, error: impl Into<StartError>) -> Self {
        let error = error.into();
        Check::bad(Exit::of(error.cause), name, error.message, error.hint)
    }

    fn of_problem(problem: &Problem) -> Self {
        let name = if problem.key.is_empty() { "settings" } else { &problem.key };
        Check::bad(
            Exit::Settings,
            name,
            format!("{}: {}", problem.source, problem.message),
            &problem.hint,
        )
    }

    fn text(&self) -> String {
        let mark = match (self.ok, self.hint.is_empty()) {
            _ if self.skipped => return format!("skip  {}  {}", self.name, self.detail),
            (false, _) => "FAIL",
            (true, false) => "warn",
            (true, true) => "ok  ",
        };
        let hint = if self.hint.is_empty() {
            String::new()
        } else {
            format!("\n        {}", clean(&self.hint))
        };
        // Answers of servers may hold terminal control sequences.
        format!("{mark}  {}  {}{hint}", clean(&self.name), clean(&self.detail))
    }
}

/// The exit code of all checks. Wrong settings count more than unreachable servers: waiting helps
/// only with the latter.
#[must_use]
pub fn exit_of(checks: &[Check]) -> Exit {
    let failed = |exit: Exit| checks.iter().any(|check| !check.ok && check.exit == exit);
    [Exit::Settings, Exit::Unavailable].into_iter().find(|exit| failed(*exit)).unwrap_or(
        match checks.iter().all(|check| check.ok) {
            true => Exit::Ok,
            false => Exit::Failed,
        },
    )
}

/// Runs all checks. Changes nothing but what `--adopt` asks for.
pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    let settings = match common.settings() {
        Ok(settings) => settings,
        Err(Stop::Settings(problems)) => {
            return tell(common, &problems.iter().map(Check::of_problem).collect::<Vec<_>>());
        }
        Err(stop) => return Err(stop),
    };
    let mut checks = vec![settings_read(common, &settings)];
    if !args.offline {
        if args.adopt {
            adopt(&settings.redis, SweepRules::from(&settings.delivery)).await?;
        }
        let (of_redis, of_brokers) =
            tokio::join!(redis::checks(&settings), brokers::checks(&settings));
        checks.extend(of_redis.into_iter().chain(of_brokers));
    }
    tell(common, &checks)
}

fn tell(common: &Common, checks: &[Check]) -> Result<Exit, Stop> {
    for check in checks {
        common.answer(check, &check.text())?;
    }
    Ok(exit_of(checks))
}

fn settings_read(common: &Common, settings: &Settings) -> Check {
    let from =
        common.config.as_ref().map_or("environment".to_owned(), |path| path.display().to_string());
    let names =
        |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let brokers = names(settings.brokers.keys().map(String::as_str).collect());
    let ingests = names(settings.ingest.keys().map(String::as_str).collect());
    let queues: Vec<&str> = settings.queues.iter().map(|rules| rules.name.as_str()).collect();
    let queues =
        if queues.is_empty() { String::new() } else { format!("; queues: {}", names(queues)) };
    let schedules = match settings.schedules.len() {
        0 => String::new(),
        count => format!("; schedules: {count}"),
    };
    let detail = format!("{from}; brokers: {brokers}; ingests: {ingests}{queues}{schedules}");
    Check::good("settings", detail)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn settings_win_over_servers_that_are_away() {
        let away = Check::bad(Exit::Unavailable, "redis", "", "");
        let wrong = Check::bad(Exit::Settings, "redis.buckets", "", "");
        let other = Check::bad(Exit::Failed, "clock", "", "");
        let fine = Check::warning("redis.maxmemory-policy", "volatile-lru", "set noeviction");
        assert_eq!(exit_of(&[]), Exit::Ok);
        assert_eq!(exit_of(std::slice::from_ref(&fine)), Exit::Ok);
        assert_eq!(exit_of(&[fine.clone(), other.clone()]), Exit::Failed);
        assert_eq!(exit_of(&[other, away.clone(), fine]), Exit::Unavailable);
        assert_eq!(exit_of(&[away, wrong]), Exit::Settings);
    }

    #[test]
    fn a_line_of_json_has_the_four_keys_of_the_contract() {
        let json = serde_json::to_value(Check::good("settings", "fine")).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"check": "settings", "ok": true, "detail": "fine", "hint": ""})
        );
    }
}
