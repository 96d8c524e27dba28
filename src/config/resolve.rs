//! Turns the settings as written into [`Settings`]: units, names, references and secrets. Collects
//! every mistake.

mod events;
mod listeners;
mod queues;
mod routes;
mod schedules;
mod sections;
mod target_limits;

use std::sync::Arc;

use figment::error::Kind;
use figment::value::Value;
use serde::de::DeserializeOwned;

use super::layers::{self, Layers};
use super::rules::Wrong;
use super::{Problem, Settings, defaults, secret, values};

/// The sections in the order of the file.
const SECTIONS: [&str; 13] = [
    "redis",
    "brokers",
    "ingest",
    "queues",
    "schedules",
    "delivery",
    "events",
    "limits",
    "http",
    "compat",
    "probes",
    "shutdown",
    "runtime",
];

/// The settings, or every problem, including those found before.
pub(super) fn resolve(
    layers: &Layers,
    value: &Value,
    problems: Vec<Problem>,
) -> Result<Settings, Vec<Problem>> {
    let mut resolver = Resolver { layers, value, problems };
    let redis = resolver.redis();
    let brokers = resolver.brokers();
    let ingest = resolver.ingests(&brokers);
    let limits = resolver.limits();
    let delivery = resolver.delivery(&limits, &brokers, &ingest);
    let events = resolver.events(&brokers, &ingest);
    let queues = resolver.queues(&limits, &delivery);
    let schedules = resolver.schedules();
    let (http, compat, probes) = resolver.listeners();
    let (shutdown, runtime) = (resolver.read(&["shutdown"]), resolver.read(&["runtime"]));

    let settings = Settings {
        redis,
        brokers,
        ingest,
        queues: Arc::new(queues),
        schedules,
        delivery,
        events,
        limits,
        http,
        compat,
        probes,
        shutdown,
        runtime,
    };
    resolver.check_schedules(&settings);

    let mut problems = resolver.problems;
    if !problems.is_empty() {
        problems.sort_by_key(|problem| {
            SECTIONS.iter().position(|section| problem.key.split('.').next() == Some(section))
        });
        return Err(problems);
    }
    Ok(settings)
}

struct Resolver<'a> {
    layers: &'a Layers,
    value: &'a Value,
    problems: Vec<Problem>,
}

impl Resolver<'_> {
    /// The names in a table of named tables.
    fn names(&self, section: &str) -> Vec<String> {
        let dict = self.value.as_dict().and_then(|value| value.get(section)?.as_dict());
        dict.into_iter().flat_map(|dict| dict.keys().cloned()).collect()
    }

    /// What is written at this path.
    fn written(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self.value, |value, name| value.as_dict()?.get(*name))
    }

    /// A section: what is written, over the defaults. A value that is wrong is noted, and its
    /// default taken, so that the others are read too.
    fn read<T: DeserializeOwned + Default>(&mut self, path: &[&str]) -> T {
        let mut written = self.written(path).and_then(Value::as_dict).cloned().unwrap_or_default();
        loop {
            let mut table = defaults::table(path[0]);
            table.extend(written.clone());
            let error = match Value::from(table).deserialize() {
                Ok(section) => return section,
                Err(error) => error,
            };
            let setting = error.path.first().cloned().unwrap_or_default();
            let at = [path, &[setting.as_str()]].concat();
            let mut mistakes = match &error.kind {
                Kind::Message(message) => values::mistakes(message),
                _ => Vec::new(),
            };
            if mistakes.is_empty() {
                let message = refusal(&error.kind, &layers::key(&at));
                mistakes.push((message, "write it as `dwell schema` says".to_owned()));
            }
            mistakes.into_iter().for_each(|wrong| self.note_at(&at, wrong));
            if written.remove(&setting).is_none() {
                return T::default();
            }
        }
    }

    /// The table of this key. `walk` checked the types of values, so serde can only fail by a
    /// connector's own rule.
    fn entry<T: DeserializeOwned>(&mut self, key: &str, noted: bool) -> Option<T> {
        let value = self.value.clone().find(key)?;
        match value.deserialize() {
            Ok(entry) => Some(entry),
            Err(_) if noted => None,
            Err(error) => {
                let key = [key]
                    .into_iter()
                    .chain(error.path.iter().map(String::as_str))
                    .collect::<Vec<_>>()
                    .join(".");
                self.note(
                    &key,
                    (refusal(&error.kind, &key), "write it as `dwell schema` says".to_owned()),
                );
                None
            }
        }
    }

    /// Whether a mistake in this setting is noted.
    fn is_told(&self, key: &str) -> bool {
        self.problems.iter().any(|problem| problem.key == key)
    }

    /// The text of a setting: as written, or the default.
    fn text(&self, path: &[&str]) -> String {
        let defaults = defaults::table(path[0]);
        let value = self.written(path).or_else(|| defaults.get(*path.last()?));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Checks the text of a setting against a limit, unless one of both is wrong by itself.
    fn check_limit<T>(
        &mut self,
        path: &[&str],
        limit: &str,
        check: impl FnOnce(&str) -> Result<T, Wrong>,
    ) {
        if !self.is_told(&layers::key(path)) && !self.is_told(limit) {
            let result = check(&self.text(path));
            self.check_at(path, result);
        }
    }

    fn check<T>(&mut self, key: &str, result: Result<T, Wrong>) -> Option<T> {
        result.map_err(|wrong| self.note(key, wrong)).ok()
    }

    /// As [`Resolver::check`], for a setting whose name may have dots.
    fn check_at<T>(&mut self, path: &[&str], result: Result<T, Wrong>) -> Option<T> {
        result.map_err(|wrong| self.note_at(path, wrong)).ok()
    }

    fn note_at(&mut self, path: &[&str], (message, hint): Wrong) {
        let levels: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
        self.problems.push(Problem {
            key: layers::key(path),
            source: self.layers.source(&levels),
            message,
            hint,
        });
    }

    /// A mistake in an item of a list.
    fn note_item(&mut self, path: &[&str], index: usize, (message, hint): Wrong) {
        let list: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
        let source =
            self.layers.item_source(&list, index).unwrap_or_else(|| self.layers.source(&list));
        self.problems.push(Problem { key: layers::key(path), source, message, hint });
    }

    fn note(&mut self, key: &str, (message, hint): Wrong) {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        self.problems.push(Problem {
            key: key.to_owned(),
            source: self.layers.source(&path),
            message,
            hint,
        });
    }
}

/// Why serde failed, without the value, which may be secret.
fn refusal(kind: &Kind, key: &str) -> String {
    match kind {
        Kind::MissingField(name) => format!("`{name}` is missing"),
        Kind::UnknownField(name, _) => format!("there is no setting `{name}`"),
        Kind::InvalidType(_, wanted)
        | Kind::InvalidValue(_, wanted)
        | Kind::InvalidLength(_, wanted) => format!("this is not {wanted}"),
        Kind::DuplicateField(name) => format!("`{name}` is repeated"),
        Kind::UnknownVariant(_, words) => format!("this is not one of {}", words.join(", ")),
        Kind::Message(message)
            if !key.split('.').any(secret::is_secret) && !key.starts_with("brokers.") =>
        {
            message.clone()
        }
        Kind::Message(_)
        | Kind::ISizeOutOfRange(_)
        | Kind::USizeOutOfRange(_)
        | Kind::Unsupported(_)
        | Kind::UnsupportedKey(..) => "this cannot be read".to_owned(),
    }
}
