//! Turns the settings as written into [`Settings`]: units, names, references and secrets. Collects
//! every mistake.

mod listeners;
mod queues;
mod routes;
mod sections;

use std::sync::Arc;

use figment::error::Kind;
use figment::value::Value;
use serde::de::DeserializeOwned;

use super::layers::{self, Layers};
use super::rules::Wrong;
use super::{Problem, Settings, defaults, secret, values};

/// The sections in the order of the file.
const SECTIONS: [&str; 11] = [
    "redis", "brokers", "ingest", "queues", "delivery", "limits", "http", "compat", "probes",
    "shutdown", "runtime",
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
    let delivery = resolver.delivery(limits.as_ref(), &brokers, &ingest);
    let queues = resolver.queues(limits.as_ref(), delivery.as_ref());
    let (http, compat, probes) = resolver.listeners();
    let (shutdown, runtime) = (resolver.read("shutdown"), resolver.read("runtime"));

    let mut problems = resolver.problems;
    if !problems.is_empty() {
        problems.sort_by_key(|problem| {
            SECTIONS.iter().position(|section| problem.key.split('.').next() == Some(section))
        });
        return Err(problems);
    }
    match (redis, delivery, limits, http, compat, probes, shutdown, runtime) {
        (
            Some(redis),
            Some(delivery),
            Some(limits),
            Some(http),
            Some(compat),
            Some(probes),
            Some(shutdown),
            Some(runtime),
        ) => Ok(Settings {
            redis,
            brokers,
            ingest,
            queues: Arc::new(queues),
            delivery,
            limits,
            http,
            compat,
            probes,
            shutdown,
            runtime,
        }),
        // Without problems every section exists.
        _ => Err(problems),
    }
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

    fn section<T: DeserializeOwned + Default>(&mut self, name: &str) -> Option<T> {
        if self.value.as_dict().is_some_and(|value| value.contains_key(name)) {
            self.entry(name, false)
        } else {
            Some(T::default())
        }
    }

    /// A section: what is written, over the defaults. A value that is wrong is noted, and its
    /// default taken, so that the others are read too.
    fn read<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let section = self.value.as_dict().and_then(|value| value.get(name)?.as_dict());
        let mut written = section.cloned().unwrap_or_default();
        loop {
            let mut table = defaults::table(name);
            table.extend(written.clone());
            let error = match Value::from(table).deserialize() {
                Ok(section) => return Some(section),
                Err(error) => error,
            };
            let setting = error.path.first().cloned().unwrap_or_default();
            let key = format!("{name}.{setting}");
            let wrong = match &error.kind {
                Kind::Message(message) => values::wrong(message),
                _ => None,
            };
            self.note(
                &key,
                wrong.unwrap_or_else(|| {
                    (refusal(&error.kind, &key), "write it as `dwell schema` says".to_owned())
                }),
            );
            written.remove(&setting)?;
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
