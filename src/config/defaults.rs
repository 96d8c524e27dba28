//! The defaults of the sections: those of config/default.toml.

use std::sync::LazyLock;

use figment::value::{Dict, Value};
use serde::de::DeserializeOwned;

/// The file of defaults, with its examples.
static FILE: LazyLock<Dict> = LazyLock::new(|| {
    let table: toml::Table = toml::from_str(include_str!("../../config/default.toml"))
        .expect("config/default.toml is TOML");
    Value::serialize(table).ok().and_then(Value::into_dict).unwrap_or_default()
});

/// The defaults of this section, as written. Those of a section with names are in its example.
pub(super) fn table(section: &str) -> Dict {
    let table = FILE.get(section).and_then(Value::as_dict);
    let example = table.and_then(|table| table.get("main")?.as_dict());
    let mut defaults = example.or(table).cloned().unwrap_or_default();
    // An example alone: an ingest has to name its own.
    defaults.remove("broker");
    defaults
}

/// The defaults of this section.
pub(super) fn section<T: DeserializeOwned>(section: &str) -> T {
    Value::from(table(section)).deserialize().expect("config/default.toml has the whole section")
}
