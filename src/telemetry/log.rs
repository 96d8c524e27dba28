//! Logs: tracing to stderr. WARN: a failure that was recovered. ERROR: an operator must act.

use std::fmt::{self, Debug};
use std::io::{self, IsTerminal};

use dwell_connectors::BrokerConfig;
use tracing::field::Field;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{EnvFilter, ParseError, filter_fn};
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

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
/// `DWELL_LOG`, else `RUST_LOG`, else `info`. The content of messages in the logs of libraries is
/// left out, whatever the filter says.
pub fn start() -> Result<(), LogError> {
    let filter = filter(|variable| std::env::var(variable).ok())?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = if is_json() {
        without_messages(
            logs.json().flatten_event(true).with_current_span(true).with_span_list(false).finish(),
        )
        .try_init()
    } else {
        without_messages(
            logs.with_target(false).fmt_fields(debug_fn(field).delimited(" ")).finish(),
        )
        .try_init()
    };
    started.map_err(|_| LogError::Twice)
}

/// Whether a line of the log is a JSON object.
#[must_use]
pub fn is_json() -> bool {
    !io::stderr().is_terminal()
}

/// Leaves out what libraries log of messages: below `info` they write what passes through them,
/// such as headers, bodies and URLs, and some of them at any level.
fn without_messages(
    logs: impl Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
) -> impl Subscriber + Send + Sync {
    logs.with(filter_fn(is_shown))
}

fn is_shown(metadata: &Metadata<'_>) -> bool {
    let library = metadata.target().split("::").next().unwrap_or_default();
    let is_own = library == "dwell" || library.starts_with("dwell_");
    let logs_bodies = || {
        BrokerConfig::KINDS
            .iter()
            .any(|kind| kind.logs_bodies && kind.log_filter.split('=').next() == Some(library))
    };
    is_own || (*metadata.level() <= Level::INFO && !logs_bodies())
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
            return EnvFilter::builder().parse(&value).map_err(|error| LogError::Filter {
                variable: name,
                value,
                error,
            });
        }
    }
    let of_libraries = BrokerConfig::KINDS
        .iter()
        .map(|kind| kind.log_filter)
        .filter(|directives| !directives.is_empty());
    Ok(EnvFilter::new(
        [DEFAULT_LEVEL].into_iter().chain(of_libraries).collect::<Vec<_>>().join(","),
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::filter::LevelFilter;

    use super::*;

    #[test]
    fn own_variable_wins_over_the_common_one() {
        let both = |name: &str| {
            Some(if name == "DWELL_LOG" { "debug".to_owned() } else { "trace".to_owned() })
        };
        assert_eq!(filter(both).unwrap().max_level_hint(), Some(LevelFilter::DEBUG));
        let common = |name: &str| (name == "RUST_LOG").then(|| "trace".to_owned());
        assert_eq!(filter(common).unwrap().max_level_hint(), Some(LevelFilter::TRACE));
    }

    /// The written lines.
    #[derive(Clone, Default)]
    pub(in crate::telemetry) struct Seen(Arc<Mutex<Vec<u8>>>);

    impl Seen {
        pub(in crate::telemetry) fn text(&self) -> String {
            String::from_utf8(self.0.lock().clone()).unwrap()
        }
    }

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
    fn no_library_logs_messages_whatever_the_filter_says() {
        for filter in [
            "trace",
            "trace,async_nats=trace,h2=trace,hyper_util=trace,lapin=trace,rdkafka=trace,redis=trace,log=trace",
        ] {
            let seen = Seen::default();
            let into = seen.clone();
            let logs = tracing_subscriber::fmt()
                .with_env_filter(filter)
                .with_writer(move || into.clone())
                .finish();
            tracing::subscriber::with_default(without_messages(logs), || {
                tracing::trace!(target: "async_nats::connection", "HPUB secret");
                tracing::debug!(target: "async_nats", "secret");
                tracing::trace!(target: "h2::codec::framed_write", "secret");
                tracing::debug!(target: "hyper_util::client", "secret");
                tracing::debug!(target: "rdkafka::client", "secret");
                tracing::trace!(target: "redis", "secret");
                tracing::trace!(target: "log", "secret");
                #[cfg(feature = "amqp")]
                tracing::error!(target: "lapin::channel", "secret");
                tracing::info!(target: "rdkafka::client", "of a library");
                tracing::trace!(target: "dwell::dispatch", "of the program");
                tracing::trace!(target: "dwell_connectors::http", "of a connector");
            });
            let text = seen.text();
            assert!(!text.contains("secret"), "{text}");
            assert_eq!(
                text.matches("of a").count() + text.matches("of the program").count(),
                3,
                "{text}"
            );
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
        let text = seen.text();
        let line = text.strip_suffix('\n').unwrap();
        let shown = r"k\n2026-01-31 ERROR\r\t\u{b}\u{1c}\u{85}\u{2028}\u{2029}\u{1b}[2J ü";
        assert_eq!(line.matches(shown).count(), 2, "{line:?}");
        assert!(line.contains("\x1b[33m WARN\x1b[0m"), "{line:?}");
    }

    #[test]
    fn without_a_variable_it_is_info() {
        assert!(filter(|_| None).unwrap().to_string().contains("info"));
        #[cfg(feature = "nats")]
        assert!(filter(|_| None).unwrap().to_string().contains("async_nats::connector=off"));
        assert!(filter(|_| Some(String::new())).unwrap().to_string().contains("info"));
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn a_consumer_that_ends_after_its_error_is_no_error() {
        let seen = Seen::default();
        let into = seen.clone();
        let logs = tracing_subscriber::fmt()
            .with_env_filter(filter(|_| None).unwrap())
            .with_writer(move || into.clone())
            .finish();
        tracing::subscriber::with_default(logs, || {
            tracing::error!(target: "rdkafka::consumer::base_consumer", "cannot close");
            tracing::error!(target: "rdkafka::client", "another error");
        });
        let text = seen.text();
        assert!(text.contains("another error") && !text.contains("cannot close"), "{text}");
    }

    #[test]
    fn a_bad_filter_is_named() {
        let error = filter(|name| (name == "DWELL_LOG").then(|| "dwell=loud".to_owned()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("DWELL_LOG=`dwell=loud`"), "{error}");
    }
}
