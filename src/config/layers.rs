//! File, environment and flags, merged. Every value keeps its source.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dwell_connectors::io_reason;
use figment::value::{Dict, Map, Tag, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::{Overrides, Problem};

const FILE_LAYER: &str = "file";
const ENVIRONMENT_LAYER: &str = "environment";
const FLAGS_LAYER: &str = "flags";
/// Prefix of variables that are settings. These variables have a `__` too, unlike `DWELL_CONFIG`
/// and the `DWELL_PORT` of a Kubernetes service.
pub(super) const VARIABLE_PREFIX: &str = "DWELL_";
pub(super) const VARIABLE_SEPARATOR: &str = "__";

/// The merged settings, not checked yet.
pub(super) struct Layers {
    /// A table of the sections.
    pub(super) value: Value,
    figment: Figment,
    file: Option<PathBuf>,
    lines: BTreeMap<Vec<String>, usize>,
}

impl Layers {
    /// Reads and merges the sources. An unreadable source is a problem; the others are merged
    /// without it.
    pub(super) fn read(
        file: Option<&Path>,
        env: &[(String, String)],
        overrides: &Overrides,
    ) -> (Layers, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut lines = BTreeMap::new();
        let mut figment = Figment::new();
        if let Some(path) = file {
            match read_file(path) {
                Ok((table, at)) => {
                    lines = at;
                    figment = figment.merge(Layer { name: FILE_LAYER, dict: table });
                }
                Err(problem) => problems.push(problem),
            }
        }
        figment = figment.merge(Layer { name: ENVIRONMENT_LAYER, dict: environment(env) });
        let mut flags = Dict::new();
        for (key, text) in &overrides.set {
            insert(&mut flags, &levels(key), text);
        }
        figment = figment.merge(Layer { name: FLAGS_LAYER, dict: flags });
        let value = figment.find_value("").unwrap_or_else(|_| Dict::new().into());
        (Layers { value, figment, file: file.map(Path::to_owned), lines }, problems)
    }

    /// Whether the value is text of no known type: from a variable or a flag.
    pub(super) fn is_plain(&self, tag: Tag) -> bool {
        matches!(self.layer(tag), Some(ENVIRONMENT_LAYER | FLAGS_LAYER))
    }

    /// Where the setting was written; `default` if nowhere.
    pub(super) fn source(&self, path: &[String]) -> String {
        let Some(value) = find(&self.value, path) else { return "default".to_owned() };
        // A table may come from several layers: prefer the file, else name its first setting.
        let mut leaves = Vec::new();
        add_leaves(value, &mut path.to_vec(), &mut leaves);
        if leaves.iter().any(|(_, tag)| self.layer(*tag) == Some(FILE_LAYER)) {
            return self.place(path);
        }
        match leaves.first().map(|(leaf, tag)| (leaf, self.layer(*tag))) {
            Some((leaf, Some(ENVIRONMENT_LAYER))) => variable(leaf),
            Some((leaf, Some(FLAGS_LAYER))) => format!("--set {}", key(leaf)),
            Some(_) => "default".to_owned(),
            // Only a file can hold an empty table.
            None => self.place(path),
        }
    }

    /// The line of an item of a list, if the file has the list.
    pub(super) fn item_source(&self, list: &[String], index: usize) -> Option<String> {
        let item: Vec<String> = list.iter().cloned().chain([index.to_string()]).collect();
        (self.lines.contains_key(&item) && self.source(list) == self.place(list))
            .then(|| self.place(&item))
    }

    fn layer(&self, tag: Tag) -> Option<&str> {
        self.figment.get_metadata(tag).map(|metadata| metadata.name.as_ref())
    }

    /// The source for a missing setting: that of the nearest table around it.
    pub(super) fn source_around(&self, path: &[String]) -> String {
        let around = (1..path.len())
            .rev()
            .map(|length| &path[..length])
            .find(|path| find(&self.value, path).is_some());
        match (around, &self.file) {
            (Some(path), _) => self.source(path),
            (None, Some(file)) => file.display().to_string(),
            (None, None) => "no settings file".to_owned(),
        }
    }

    /// Whether any source sets this.
    pub(super) fn is_set(&self, path: &[&str]) -> bool {
        find(&self.value, &path.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).is_some()
    }

    /// Everything that a user wrote: the names and texts of all settings, and the name of the file.
    pub(super) fn texts(&self) -> Vec<&str> {
        let mut texts: Vec<&str> = self.file.iter().filter_map(|file| file.to_str()).collect();
        add_texts(&self.value, &mut texts);
        texts
    }

    fn place(&self, path: &[String]) -> String {
        let file = self.file.as_deref().unwrap_or(Path::new("")).display();
        match self.lines.get(path) {
            Some(line) => format!("{file}:{line}"),
            None => file.to_string(),
        }
    }
}

/// The setting as a user writes it: a name that TOML quotes is quoted.
pub(super) fn key<T: AsRef<str>>(path: &[T]) -> String {
    let bare = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let quoted = path
        .iter()
        .map(AsRef::as_ref)
        .map(|name| if bare(name) { name.to_owned() } else { format!("\"{name}\"") });
    quoted.collect::<Vec<_>>().join(".")
}

/// The names of a setting with dots between them; dots within quotes are part of a name.
fn levels(key: &str) -> Vec<String> {
    let (mut names, mut quoted) = (vec![String::new()], false);
    for c in key.chars() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => names.push(String::new()),
            _ => names.iter_mut().last().into_iter().for_each(|name| name.push(c)),
        }
    }
    names
}

/// Whether a variable of this name is a setting.
pub(super) fn is_setting(name: &str) -> bool {
    name.strip_prefix(VARIABLE_PREFIX).is_some_and(|rest| rest.contains(VARIABLE_SEPARATOR))
}

/// The variable of a setting.
pub(super) fn variable(path: &[String]) -> String {
    format!("{VARIABLE_PREFIX}{}", path.join(VARIABLE_SEPARATOR).to_uppercase())
}

fn find<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| value.as_dict()?.get(name))
}

fn add_leaves(value: &Value, at: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, Tag)>) {
    let Value::Dict(_, dict) = value else { return leaves.push((at.clone(), value.tag())) };
    for (name, value) in dict {
        at.push(name.clone());
        add_leaves(value, at, leaves);
        at.pop();
    }
}

fn add_texts<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(_, text) => texts.push(text),
        Value::Array(_, values) => values.iter().for_each(|value| add_texts(value, texts)),
        Value::Dict(_, dict) => {
            for (name, value) in dict {
                texts.push(name);
                add_texts(value, texts);
            }
        }
        _ => {}
    }
}

/// One layer, for figment.
struct Layer {
    name: &'static str,
    dict: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.dict.clone())]))
    }
}

/// The variables that are settings. Their values stay text: a password may look like a number.
fn environment(env: &[(String, String)]) -> Dict {
    let mut settings: Vec<(Vec<String>, &String)> = Vec::new();
    for (name, text) in env {
        if let Some(rest) = name.strip_prefix(VARIABLE_PREFIX).filter(|_| is_setting(name)) {
            settings.push((rest.split(VARIABLE_SEPARATOR).map(str::to_lowercase).collect(), text));
        }
    }
    settings.sort();
    let mut dict = Dict::new();
    for (path, text) in settings {
        insert(&mut dict, &path, text);
    }
    dict
}

fn insert(dict: &mut Dict, path: &[String], text: &str) {
    let Some((name, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        dict.insert(name.clone(), Value::from(text.to_owned()));
        return;
    }
    let mut inner = dict.remove(name).and_then(Value::into_dict).unwrap_or_default();
    insert(&mut inner, rest, text);
    dict.insert(name.clone(), inner.into());
}

/// The file's table, and the line of each key, and of each item of a list. Errors quote nothing of
/// the file: the line may hold a password.
fn read_file(path: &Path) -> Result<(Dict, BTreeMap<Vec<String>, usize>), Problem> {
    let problem = |source: String, message: String, hint: &str| Problem {
        key: String::new(),
        source,
        message,
        hint: hint.to_owned(),
    };
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        problem(
            file.clone(),
            format!("cannot read the settings: {}", io_reason(&error)),
            "name a file that can be read with --config",
        )
    })?;
    let wrong = |error: toml::de::Error| {
        let line = error.span().map_or(1, |span| line_of(&text, span.start));
        problem(
            format!("{file}:{line}"),
            format!("this is not TOML: {}", error.message()),
            "correct the line",
        )
    };
    let table: toml::Table = toml::from_str(&text).map_err(wrong)?;
    let spans = toml::de::DeTable::parse(&text).map_err(wrong)?;
    let mut lines = BTreeMap::new();
    add_lines(&text, spans.get_ref(), &mut Vec::new(), &mut lines);
    let dict = Value::serialize(table).ok().and_then(Value::into_dict).unwrap_or_default();
    Ok((dict, lines))
}

fn add_lines(
    text: &str,
    table: &toml::de::DeTable<'_>,
    at: &mut Vec<String>,
    lines: &mut BTreeMap<Vec<String>, usize>,
) {
    for (key, value) in table {
        at.push(key.get_ref().to_string());
        lines.insert(at.clone(), line_of(text, key.span().start));
        match value.get_ref() {
            toml::de::DeValue::Table(inner) => add_lines(text, inner, at, lines),
            toml::de::DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    at.push(index.to_string());
                    lines.insert(at.clone(), line_of(text, item.span().start));
                    at.pop();
                }
            }
            _ => {}
        }
        at.pop();
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
