//! The keys and value types of the settings, read from the JSON Schema, so that only the structs
//! define them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

/// The allowed values of one setting.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    /// Named keys.
    Table(Table),
    /// Any keys with values of one shape: `[brokers.NAME]`.
    Named(Box<Shape>),
    List(Box<Shape>),
    /// One of these words.
    Word(Vec<String>),
    Text,
    /// A text or a list of texts.
    Texts,
    Switch,
    Integer {
        min: i128,
        max: i128,
    },
    /// Unknown: serde decides.
    Any,
}

/// A table with named keys. Some keys may depend on the value of one key (`type`).
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Table {
    pub(super) keys: BTreeMap<String, Key>,
    pub(super) required: Vec<String>,
    /// The deciding key, and the further keys by its value.
    pub(super) variants: Option<(String, BTreeMap<String, Table>)>,
}

/// A key of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) shape: Shape,
    /// Its documentation.
    pub(super) doc: String,
}

impl Shape {
    /// The shape of the settings.
    pub(super) fn of_settings() -> &'static Shape {
        static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
            let schema = super::schema();
            Reader { root: &schema }.shape(&schema)
        });
        &SHAPE
    }

    /// Every path to a key, with `*` for any name.
    pub(super) fn paths(&self) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        self.add_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn add_paths(&self, at: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
        match self {
            Shape::Table(table) => table.add_paths(at, paths),
            Shape::Named(shape) => {
                at.push("*".to_owned());
                shape.add_paths(at, paths);
                at.pop();
            }
            Shape::List(_)
            | Shape::Word(_)
            | Shape::Text
            | Shape::Texts
            | Shape::Switch
            | Shape::Integer { .. }
            | Shape::Any => paths.push(at.clone()),
        }
    }
}

impl Table {
    /// The allowed and the required keys of a table whose deciding key has the value `word`.
    pub(super) fn keys_for(&self, word: Option<&str>) -> (BTreeMap<&str, &Key>, Vec<&str>) {
        let variant = self.variants.as_ref().and_then(|(_, tables)| tables.get(word?));
        let tables = || std::iter::once(self).chain(variant);
        (
            tables()
                .flat_map(|table| &table.keys)
                .map(|(name, key)| (name.as_str(), key))
                .collect(),
            tables().flat_map(|table| &table.required).map(String::as_str).collect(),
        )
    }

    fn add_paths(&self, at: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
        for (name, key) in &self.keys {
            at.push(name.clone());
            key.shape.add_paths(at, paths);
            at.pop();
        }
        for table in self.variants.iter().flat_map(|(_, tables)| tables.values()) {
            table.add_paths(at, paths);
        }
    }
}

/// Reads the part of JSON Schema that schemars writes for structs, maps, lists, enums and tagged
/// enums.
struct Reader<'a> {
    root: &'a Value,
}

impl<'a> Reader<'a> {
    fn shape(&self, schema: &'a Value) -> Shape {
        let parts = self.parts(schema);
        if let Some(words) = words(&parts) {
            return Shape::Word(words);
        }
        let names = || parts.iter().filter_map(|part| part.get("type")).flat_map(names);
        let find = |key: &str| parts.iter().find_map(|part| part.get(key));
        if names().any(|name| name == "object") || find("properties").is_some() {
            return match find("additionalProperties") {
                Some(inner @ Value::Object(_)) if find("properties").is_none() => {
                    Shape::Named(Box::new(self.shape(inner)))
                }
                _ => Shape::Table(self.table(&parts)),
            };
        }
        if names().any(|name| name == "array") && names().any(|name| name == "string") {
            return Shape::Texts;
        }
        let name = names().find(|name| *name != "null");
        match name {
            Some("array") => {
                Shape::List(Box::new(find("items").map_or(Shape::Any, |items| self.shape(items))))
            }
            Some("string") => Shape::Text,
            Some("boolean") => Shape::Switch,
            Some("integer") => Shape::Integer {
                min: bound(find("minimum"), i64::MIN.into()),
                max: bound(find("maximum"), i64::MAX.into()),
            },
            _ => Shape::Any,
        }
    }

    fn table(&self, parts: &[&'a Value]) -> Table {
        let mut table = Table::default();
        for part in parts {
            for (name, schema) in
                part.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                let doc = self
                    .parts(schema)
                    .iter()
                    .find_map(|part| part.get("description")?.as_str())
                    .unwrap_or_default()
                    .to_owned();
                table.keys.insert(name.clone(), Key { shape: self.shape(schema), doc });
            }
            table.required.extend(
                part.get("required")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(str::to_owned),
            );
            for variant in part.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
                self.add_variant(&mut table, variant);
            }
        }
        if let Some((tag, tables)) = &table.variants {
            let words = tables.keys().cloned().collect();
            table.keys.insert(
                tag.clone(),
                Key { shape: Shape::Word(words), doc: "The kind.".to_owned() },
            );
            table.required.push(tag.clone());
        }
        table
    }

    fn add_variant(&self, table: &mut Table, variant: &'a Value) {
        let mut keys = self.table(&self.parts(variant));
        let tag = keys.keys.iter().find_map(|(name, key)| match &key.shape {
            Shape::Word(words) if words.len() == 1 => Some((name.clone(), words[0].clone())),
            _ => None,
        });
        let Some((tag, word)) = tag else { return };
        keys.keys.remove(&tag);
        keys.required.retain(|name| *name != tag);
        table.variants.get_or_insert_with(|| (tag, BTreeMap::new())).1.insert(word, keys);
    }

    /// The schema and its referenced parts: `$ref`, `allOf`, and the part of an `anyOf` that is not
    /// null.
    fn parts(&self, schema: &'a Value) -> Vec<&'a Value> {
        let mut parts = vec![schema];
        let target = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|name| self.root.pointer(name.strip_prefix('#')?));
        parts.extend(target.into_iter().flat_map(|target| self.parts(target)));
        for key in ["allOf", "anyOf"] {
            let inner = schema.get(key).and_then(Value::as_array).into_iter().flatten();
            parts.extend(
                inner
                    .filter(|part| part.get("type").and_then(Value::as_str) != Some("null"))
                    .flat_map(|part| self.parts(part)),
            );
        }
        parts
    }
}

/// The names in `type`, which is one name or a list of them.
fn names(value: &Value) -> impl Iterator<Item = &str> {
    value
        .as_str()
        .into_iter()
        .chain(value.as_array().into_iter().flatten().filter_map(Value::as_str))
}

/// The words of an enum without fields, in any of its schema forms.
fn words(parts: &[&Value]) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for part in parts {
        let listed = part.get("enum").and_then(Value::as_array).into_iter().flatten();
        let chosen = part.get("oneOf").and_then(Value::as_array).into_iter().flatten();
        let nested = chosen
            .clone()
            .flat_map(|part| part.get("enum").and_then(Value::as_array).into_iter().flatten());
        let constants =
            part.get("const").into_iter().chain(chosen.filter_map(|part| part.get("const")));
        words.extend(
            listed.chain(nested).chain(constants).filter_map(Value::as_str).map(str::to_owned),
        );
    }
    (!words.is_empty()).then_some(words)
}

fn bound(value: Option<&Value>, otherwise: i128) -> i128 {
    value
        .and_then(|value| value.as_i64().map(i128::from).or(value.as_u64().map(i128::from)))
        .unwrap_or(otherwise)
}
