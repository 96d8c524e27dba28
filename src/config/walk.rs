//! Compares the settings with their shape: finds every unknown key and every value of the wrong
//! type.

use figment::value::{Dict, Num, Value};

use super::layers::{self, Layers};
use super::secret;
use super::shape::{Shape, Table};
use super::{Problem, nearest};

/// The value without its wrong parts, with untyped text converted to the expected types; and a
/// problem for each wrong part.
pub(super) fn walk(layers: &Layers, shape: &Shape) -> (Value, Vec<Problem>) {
    let mut walk = Walk { layers, all: shape.paths(), problems: Vec::new() };
    let value = walk
        .value(layers.value.clone(), shape, &mut Vec::new())
        .unwrap_or_else(|| Dict::new().into());
    (value, walk.problems)
}

/// Problems of variables with `_` where a setting has `__`, which would otherwise be ignored
/// silently.
pub(super) fn near_misses(env: &[(String, String)], shape: &Shape) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, _) in env {
        let Some(rest) =
            name.strip_prefix(layers::VARIABLE_PREFIX).filter(|_| !layers::is_setting(name))
        else {
            continue;
        };
        let rest = rest.to_lowercase();
        let meant = shape.paths().into_iter().find_map(|path| meant(&rest, path));
        if let Some(path) = meant {
            problems.push(Problem {
                key: path.join("."),
                source: name.clone(),
                message: "this variable is not a setting: levels are separated by `__`".to_owned(),
                hint: format!("rename it {}", layers::variable(&path)),
            });
        }
    }
    problems
}

/// The path that `redis_urls` or `ingest_main_topic` probably means.
fn meant(text: &str, mut path: Vec<String>) -> Option<Vec<String>> {
    let Some(star) = path.iter().position(|name| name == "*") else {
        return (path.join("_") == text).then_some(path);
    };
    let name = text
        .strip_prefix(&format!("{}_", path[..star].join("_")))?
        .strip_suffix(&format!("_{}", path[star + 1..].join("_")))?;
    (!name.is_empty()).then(|| {
        path[star] = name.to_owned();
        path
    })
}

struct Walk<'a> {
    layers: &'a Layers,
    all: Vec<Vec<String>>,
    problems: Vec<Problem>,
}

impl Walk<'_> {
    fn value(&mut self, value: Value, shape: &Shape, path: &mut Vec<String>) -> Option<Value> {
        let plain = self.layers.is_plain(value.tag());
        match (shape, value) {
            (Shape::Any, value)
            | (Shape::Text | Shape::Texts, value @ Value::String(..))
            | (Shape::Switch, value @ Value::Bool(..)) => Some(value),
            (Shape::Table(table), Value::Dict(tag, dict)) => {
                Some(Value::Dict(tag, self.table(dict, table, path)))
            }
            (Shape::Named(shape), Value::Dict(tag, dict)) => {
                let mut kept = Dict::new();
                for (name, value) in dict {
                    path.push(name.clone());
                    if let Some(value) = self.value(value, shape, path) {
                        kept.insert(name, value);
                    }
                    path.pop();
                }
                Some(Value::Dict(tag, kept))
            }
            (Shape::List(item), Value::Array(tag, values)) => {
                let all = values.len();
                let kept: Vec<Value> =
                    values.into_iter().filter_map(|value| self.value(value, item, path)).collect();
                (kept.len() == all).then_some(Value::Array(tag, kept))
            }
            (Shape::Texts, value @ Value::Array(..)) => {
                self.value(value, &Shape::List(Box::new(Shape::Text)), path)
            }
            (Shape::List(item), Value::String(tag, text)) if plain => {
                // As in the file, or separated by commas.
                let parts: Vec<String> = serde_json::from_str(&text).unwrap_or_else(|_| {
                    text.split(',')
                        .map(str::trim)
                        .filter(|part| !part.is_empty())
                        .map(str::to_owned)
                        .collect()
                });
                let values = parts.into_iter().map(|part| Value::String(tag, part)).collect();
                self.value(Value::Array(tag, values), &Shape::List(item.clone()), path)
            }
            (Shape::Word(words), Value::String(tag, text)) => {
                if words.contains(&text) {
                    return Some(Value::String(tag, text));
                }
                let hint = nearest(&text, words.iter().map(String::as_str))
                    .map(|word| format!("did you mean \"{word}\"?"));
                self.wrong(
                    path,
                    format!("\"{text}\" is not one of {}", listed(words)),
                    hint.unwrap_or_else(|| "write one of them".to_owned()),
                );
                None
            }
            (Shape::Integer { min, max }, Value::Num(tag, number))
                if whole(number).is_some_and(|n| (*min..=*max).contains(&n)) =>
            {
                Some(Value::Num(tag, number))
            }
            (Shape::Integer { .. }, Value::String(tag, text))
                if plain && text.trim().parse::<i64>().is_ok() =>
            {
                let number = text.trim().parse().unwrap_or(0);
                // As a number, so that the arm above checks the bounds.
                self.value(
                    Value::Num(
                        tag,
                        if number < 0 { Num::I64(number) } else { Num::U64(number.unsigned_abs()) },
                    ),
                    shape,
                    path,
                )
            }
            (Shape::Switch, Value::String(tag, text))
                if plain && matches!(text.trim(), "true" | "false") =>
            {
                Some(Value::Bool(tag, text.trim() == "true"))
            }
            (shape, value) => {
                let hidden = path.iter().any(|name| secret::is_secret(name));
                self.wrong(
                    path,
                    format!("this is {}, not {}", kind(&value, hidden), wanted(shape)),
                    format!("write {}", example(shape, &value)),
                );
                None
            }
        }
    }

    fn table(&mut self, dict: Dict, table: &Table, path: &mut Vec<String>) -> Dict {
        let word = table.variants.as_ref().and_then(|(tag, _)| dict.get(tag)?.as_str());
        // The keys of an unknown `type` are unknown too: report one problem only.
        let unknown_kind = table
            .variants
            .as_ref()
            .is_some_and(|(_, tables)| word.is_none_or(|word| !tables.contains_key(word)));
        let (keys, required) = table.keys_for(word);
        let mut kept = Dict::new();
        for name in required.iter().filter(|name| !dict.contains_key(**name)) {
            path.push((*name).to_owned());
            let doc = keys.get(name).map_or("", |key| key.doc.as_str());
            let source = self.layers.source_around(path);
            self.problems.push(Problem {
                key: layers::key(path),
                source,
                message: "this setting is missing".to_owned(),
                hint: format!("add it: {doc}"),
            });
            path.pop();
        }
        for (name, value) in dict {
            path.push(name.clone());
            if let Some(key) = keys.get(name.as_str()) {
                if let Some(value) = self.value(value, &key.shape, path) {
                    kept.insert(name, value);
                }
            } else if !unknown_kind {
                let hint = self.instead(&name, keys.keys().copied(), path);
                self.wrong(path, "there is no such setting".to_owned(), hint);
            }
            path.pop();
        }
        kept
    }

    /// The probable meaning of an unknown key: a similar key of this table, or the same key of
    /// another table.
    fn instead<'b>(
        &self,
        name: &str,
        keys: impl Iterator<Item = &'b str> + Clone,
        path: &[String],
    ) -> String {
        if let Some(key) = nearest(name, keys.clone()) {
            return format!("did you mean `{key}`?");
        }
        if matches!(name, "queue" | "subject" | "stream") && keys.clone().any(|key| key == "topic")
        {
            return "write `topic`, which names a topic, a queue or a subject".to_owned();
        }
        if let Some(elsewhere) = self
            .all
            .iter()
            .find(|known| path.len() > 1 && known.last().is_some_and(|last| last == name))
        {
            return format!(
                "it belongs to another section: `{}`",
                elsewhere.join(".").replace('*', "NAME")
            );
        }
        format!("remove it; known here: {}", keys.collect::<Vec<_>>().join(", "))
    }

    fn wrong(&mut self, path: &[String], message: String, hint: String) {
        self.problems.push(Problem {
            key: layers::key(path),
            source: self.layers.source(path),
            message,
            hint,
        });
    }
}

fn whole(number: Num) -> Option<i128> {
    number.to_i128().or_else(|| number.to_u128().and_then(|n| n.try_into().ok()))
}

fn listed(words: &[String]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

fn kind(value: &Value, hidden: bool) -> String {
    match value {
        Value::String(..) | Value::Char(..) => "text".to_owned(),
        Value::Bool(..) => "true or false".to_owned(),
        Value::Num(..) if hidden => "a number".to_owned(),
        Value::Num(_, number) => {
            whole(*number).map_or("a fraction".to_owned(), |n| format!("the number {n}"))
        }
        Value::Empty(..) => "nothing".to_owned(),
        Value::Dict(..) => "a table".to_owned(),
        Value::Array(..) => "a list".to_owned(),
    }
}

fn wanted(shape: &Shape) -> String {
    match shape {
        Shape::Table(_) | Shape::Named(_) => "a table".to_owned(),
        Shape::List(_) => "a list".to_owned(),
        Shape::Word(words) => format!("one of {}", listed(words)),
        Shape::Text => "text".to_owned(),
        Shape::Texts => "text or a list of texts".to_owned(),
        Shape::Switch => "true or false".to_owned(),
        Shape::Integer { min, max } if *max < i128::from(u32::MAX) => {
            format!("a number from {min} to {max}")
        }
        Shape::Integer { min, .. } if *min >= 0 => format!("a number from {min}"),
        Shape::Integer { .. } => "a whole number".to_owned(),
        Shape::Any => "what belongs here".to_owned(),
    }
}

fn example(shape: &Shape, value: &Value) -> &'static str {
    match shape {
        Shape::Table(_) | Shape::Named(_) => "its settings under a [header] of their own",
        Shape::List(_) => "a list: [\"a\", \"b\"]; in a variable: a,b",
        Shape::Word(_) | Shape::Text | Shape::Texts => "it in quotes",
        Shape::Switch => "true or false, without quotes",
        Shape::Integer { .. } if matches!(value, Value::String(..)) => {
            "such a number, without quotes"
        }
        Shape::Integer { .. } => "such a number",
        Shape::Any => "it as the manual has it",
    }
}
