//! Logs: tracing to stderr. WARN: a failure that was recovered. ERROR: an operator must act.

use std::fmt::{self, Debug};
use std::io::{self, IsTerminal};

use dwell_connectors::{BrokerConfig, Capabilities};
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{EnvFilter, ParseError};
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// The level where neither `DWELL_LOG` nor `RUST_LOG` is set.
const DEFAULT_LEVEL: &str = "info";

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not valid.
    #[error("{variable}=`{value}` is not a log filter ({error}): write info, or warn,dwell=debug")]
    Filter {
        /// The variable that has it.
        variable: &'static str,
        /// Its value.
        value: String,
        /// Why it is not valid.
        error: ParseError,
    },
    /// Another subscriber is installed in this process.
    #[error("logging was started twice")]
    Twice,
}

/// Starts logging to stderr: text on a terminal, else one JSON object a line. The filter is
/// `DWELL_LOG`, else `RUST_LOG`, else `info`.
pub fn start() -> Result<(), LogError> {
    let filter = filter(|variable| std::env::var(variable).ok())?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = if io::stderr().is_terminal() {
        logs.with_target(false).fmt_fields(debug_fn(field).delimited(" ")).try_init()
    } else {
        logs.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
    };
    started.map_err(|_| LogError::Twice)
}

/// Writes one field as the default formatter does, but escaped: values from messages (a routing
/// key, an id) may hold line breaks, which look like other events, and terminal control sequences.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let text: String = format!("{value:?}").chars().flat_map(shown).collect();
    match (field.name(), writer.has_ansi_escapes()) {
        ("message", _) => writer.write_str(&text),
        // The target of a library's event.
        (name, _) if name.starts_with("log.") => Ok(()),
        (name, true) => write!(writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m{text}"),
        (name, false) => write!(writer, "{name}={text}"),
    }
}

fn shown(c: char) -> impl Iterator<Item = char> {
    let escapes = c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    escapes.then(|| c.escape_default()).into_iter().flatten().chain((!escapes).then_some(c))
}

fn filter(variable: impl Fn(&str) -> Option<String>) -> Result<EnvFilter, LogError> {
    for name in ["DWELL_LOG", "RUST_LOG"] {
        if let Some(value) = variable(name).filter(|value| !value.trim().is_empty()) {
            // A library that logs message bodies does so only where the user names the library.
            let is_named = |directive: &str| directive.split('=').next().is_some_and(|library| value.contains(library));
            let added = BrokerConfig::KINDS.iter().filter(|kind| kind.logs_bodies && !is_named(kind.log_filter));
            let filter = joined(&value, added);
            return EnvFilter::builder().parse(&filter).map_err(|error| LogError::Filter { variable: name, value, error });
        }
    }
    Ok(EnvFilter::new(joined(DEFAULT_LEVEL, BrokerConfig::KINDS.iter().filter(|kind| !kind.log_filter.is_empty()))))
}

/// The filter, and the directives of these client libraries.
fn joined<'a>(filter: &str, kinds: impl Iterator<Item = &'a &'a Capabilities>) -> String {
    [filter].into_iter().chain(kinds.map(|kind| kind.log_filter)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
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
    #[cfg(feature = "amqp")]
    fn the_client_that_logs_bodies_is_silent_unless_named() {
        for (value, silent) in [("", true), ("debug", true), ("debug,lapin=warn", false)] {
            let shown = filter(|_| Some(value.to_owned())).unwrap().to_string();
            assert_eq!(shown.contains("lapin=off"), silent, "{shown}");
        }
    }

    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Seen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_message_brought_begins_no_line() {
        let seen = Seen::default();
        let into = seen.clone();
        let logs = tracing_subscriber::fmt()
            .with_ansi(true)
            .with_target(false)
            .fmt_fields(debug_fn(field).delimited(" "))
            .with_writer(move || into.clone())
            .finish();
        tracing::subscriber::with_default(logs, || {
            let key = "k\n2026-01-31 ERROR\r\t\u{b}\u{1c}\u{85}\u{2028}\u{2029}\x1b[2J ü";
            tracing::warn!(%key, "no queue takes {key}");
        });
        let text = String::from_utf8(seen.0.lock().clone()).unwrap();
        let line = text.strip_suffix('\n').unwrap();
        let shown = r"k\n2026-01-31 ERROR\r\t\u{b}\u{1c}\u{85}\u{2028}\u{2029}\u{1b}[2J ü";
        assert_eq!(line.matches(shown).count(), 2, "{line:?}");
        assert!(line.contains("\x1b[33m WARN\x1b[0m"), "{line:?}");
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
