//! The schema of a namespace: the version of its keys and records.

use super::error::{Class, ErrorKind, StoreError};

/// The schema that this program writes.
pub(super) const SCHEMA: u32 = 3;

/// The schema of 0.1.0, the first version. No step leads from those before.
const FIRST_SCHEMA: u32 = 3;
const UNRELEASED_HINT: &str = "a version before 0.1.0 wrote it: use another redis.namespace, and let that version deliver what is left in this one";

/// A stored schema, beside the one that this program writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Schema {
    /// The one that this program writes.
    Current,
    /// An older one: its number.
    Older(u32),
    /// A newer one, or one that no version is known to write: its text.
    Newer(String),
}

impl Schema {
    /// The schema of this text in `<ns>:meta`.
    pub(super) fn of(text: &str) -> Schema {
        match text.parse::<u32>() {
            // No version writes another form of a number.
            Ok(number) if number.to_string() != text => Schema::Newer(text.to_owned()),
            Ok(SCHEMA) => Schema::Current,
            Ok(number) if number < SCHEMA => Schema::Older(number),
            _ => Schema::Newer(text.to_owned()),
        }
    }

    /// Refuses every schema but the one that this program writes. `key`: the one of the description.
    pub(super) fn refuse_other(&self, key: &str) -> Result<(), StoreError> {
        let (stored, hint) = match self {
            Schema::Current => return Ok(()),
            Schema::Older(number) if *number < FIRST_SCHEMA => {
                (number.to_string(), UNRELEASED_HINT)
            }
            Schema::Older(number) => (
                number.to_string(),
                "stop every instance of the namespace, then run `dwell upgrade` or call Client::upgrade",
            ),
            Schema::Newer(text) => {
                (text.clone(), "run the version of Dwell that wrote it, or a newer one")
            }
        };
        Err(incompatible(
            format!("redis: `{key}` has schema {stored}, this program knows {SCHEMA}"),
            hint,
        ))
    }
}

/// The error of a schema that cannot be worked with.
pub(super) fn incompatible(message: String, hint: &str) -> StoreError {
    StoreError::new(Class::Settings, message).hint(hint).of_kind(ErrorKind::Incompatible)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn every_schema_but_the_own_is_refused_and_its_hint_says_what_helps() {
        let newer = (SCHEMA + 1).to_string();
        for (text, schema, hint) in [
            ("0", Schema::Older(0), "before 0.1.0"),
            ("2", Schema::Older(2), "before 0.1.0"),
            ("03", Schema::Newer("03".to_owned()), "the version of Dwell that wrote it"),
            ("+3", Schema::Newer("+3".to_owned()), "the version of Dwell that wrote it"),
            (" 3", Schema::Newer(" 3".to_owned()), "the version of Dwell that wrote it"),
            (newer.as_str(), Schema::Newer(newer.clone()), "the version of Dwell that wrote it"),
            ("", Schema::Newer(String::new()), "the version of Dwell that wrote it"),
            ("-1", Schema::Newer("-1".to_owned()), "the version of Dwell that wrote it"),
            ("next", Schema::Newer("next".to_owned()), "the version of Dwell that wrote it"),
        ] {
            let found = Schema::of(text);
            assert_eq!(found, schema);
            let error = found.refuse_other("dwell:meta").unwrap_err();
            assert_eq!((error.class, error.kind()), (Class::Settings, ErrorKind::Incompatible));
            let message =
                format!("redis: `dwell:meta` has schema {text}, this program knows {SCHEMA}");
            assert_eq!(error.message, message);
            assert!(error.hint.contains(hint), "{text}: {}", error.hint);
        }
        let own = Schema::of(&SCHEMA.to_string());
        assert_eq!(own, Schema::Current);
        own.refuse_other("dwell:meta").unwrap();
    }
}
