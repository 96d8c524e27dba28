//! Logs: tracing to stderr. WARN: something went wrong and was recovered. ERROR: someone must act.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::{EnvFilter, ParseError};

/// Which filter applies where neither `DWELL_LOG` nor `RUST_LOG` is set. The clients' own logs only where they matter.
const DEFAULT_FILTER: &str = "info,async_nats=warn,lapin=off";

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not one.
    #[error("{variable}=`{value}` is no log filter ({error}): write info, or warn,dwell=debug")]
    Filter {
        /// Where it came from.
        variable: &'static str,
        /// What stands there.
        value: String,
        /// Why it is none.
        error: ParseError,
    },
    /// Something else in this process logs already.
    #[error("logging was started twice")]
    Twice,
}

/// Starts logging: for people where stderr is a terminal, else a JSON object a line. The filter is `DWELL_LOG`, else `RUST_LOG`, else `info`.
pub fn start() -> Result<(), LogError> {
    let filter = filter(|variable| std::env::var(variable).ok())?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = if io::stderr().is_terminal() {
        logs.with_target(false).try_init()
    } else {
        logs.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
    };
    started.map_err(|_| LogError::Twice)
}

fn filter(variable: impl Fn(&str) -> Option<String>) -> Result<EnvFilter, LogError> {
    for name in ["DWELL_LOG", "RUST_LOG"] {
        if let Some(value) = variable(name).filter(|value| !value.trim().is_empty()) {
            // AMQP's client logs returned messages with their bodies: only for who asks for it by name.
            let filter = if value.contains("lapin") { value.clone() } else { format!("{value},lapin=off") };
            return EnvFilter::builder().parse(&filter).map_err(|error| LogError::Filter { variable: name, value, error });
        }
    }
    Ok(EnvFilter::new(DEFAULT_FILTER))
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::LevelFilter;

    use super::*;

    #[test]
    fn own_variable_wins_over_the_common_one() {
        let both = |name: &str| Some(if name == "DWELL_LOG" { "debug".to_owned() } else { "trace".to_owned() });
        assert_eq!(filter(both).unwrap().max_level_hint(), Some(LevelFilter::DEBUG));
        let common = |name: &str| (name == "RUST_LOG").then(|| "trace".to_owned());
        assert_eq!(filter(common).unwrap().max_level_hint(), Some(LevelFilter::TRACE));
    }

    #[test]
    fn the_client_that_logs_bodies_is_silent_unless_named() {
        for (value, silent) in [("", true), ("debug", true), ("debug,lapin=warn", false)] {
            let shown = filter(|_| Some(value.to_owned())).unwrap().to_string();
            assert_eq!(shown.contains("lapin=off"), silent, "{shown}");
        }
    }

    #[test]
    fn without_a_variable_it_is_info() {
        assert!(filter(|_| None).unwrap().to_string().contains("info"));
        assert!(filter(|_| Some(String::new())).unwrap().to_string().contains("info"));
    }

    #[test]
    fn a_bad_filter_is_named() {
        let error = filter(|name| (name == "DWELL_LOG").then(|| "dwell=loud".to_owned())).unwrap_err().to_string();
        assert!(error.contains("DWELL_LOG=`dwell=loud`"), "{error}");
    }
}
