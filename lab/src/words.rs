//! The words of settings and faults: those of their JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The word of a value that is a string in JSON.
pub fn word(value: &impl Serialize) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

/// The value of a word.
///
/// # Errors
/// The word is none; the text names those that are.
pub fn parse<T: DeserializeOwned>(word: &str) -> Result<T, String> {
    serde_json::from_value(word.into()).map_err(|error| error.to_string())
}
