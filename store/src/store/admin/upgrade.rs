//! Brings an older namespace to the schema that this version writes.

use crate::config::Redis;
use crate::store::client::RedisClient;
use crate::store::error::StoreError;
use crate::store::keys::Keys;
use crate::store::meta;
use crate::store::schema::{SCHEMA, Schema};

/// The schema of a namespace before and after its upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct Upgraded {
    /// The schema before. The same as `to`: there was nothing to do.
    pub from: u32,
    /// The schema now: the one that this version writes.
    pub to: u32,
}

/// Brings the namespace to the schema that this version writes. A namespace of that schema stays as
/// it is, and so does one that is refused.
///
/// # Errors
/// Of kind `Incompatible` where the schema is newer, or where no step leads from an older one; of
/// class `Settings` where the namespace does not exist.
pub async fn upgrade(settings: &Redis) -> Result<Upgraded, StoreError> {
    let link = RedisClient::new(settings);
    let key = Keys::new(&settings.namespace, settings.buckets).meta();
    let fields = meta::fields(&link, &key).await?;
    step(&key, meta::schema_of(&fields)).map_err(|error| meta::located(error, settings))
}

/// What is to be done from this schema on. A new [`SCHEMA`] adds an arm for the one before it, which
/// refuses replicas and namespaces with instances that live, since these would go on to write the old
/// form; then it changes the keys, and writes the schema in the end.
fn step(key: &str, found: Option<Schema>) -> Result<Upgraded, StoreError> {
    match found {
        None => Err(meta::missing(key)),
        Some(found) => found.refuse_other(key).map(|()| Upgraded { from: SCHEMA, to: SCHEMA }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::store::error::{Class, ErrorKind};

    #[test]
    fn only_a_namespace_of_this_schema_needs_no_step() {
        let done = step("dwell:meta", Some(Schema::Current)).unwrap();
        assert_eq!(done, Upgraded { from: SCHEMA, to: SCHEMA });
        for (found, kind, message, hint) in [
            (None, ErrorKind::Configuration, "no namespace at `dwell:meta`", "redis.namespace"),
            (
                Some(Schema::Older(2)),
                ErrorKind::Incompatible,
                "has schema 2, this program knows 3",
                "before 0.1.0",
            ),
            (
                Some(Schema::Newer("4".to_owned())),
                ErrorKind::Incompatible,
                "has schema 4, this program knows 3",
                "that wrote it, or a newer one",
            ),
        ] {
            let error = step("dwell:meta", found).unwrap_err();
            assert_eq!((error.class, error.kind()), (Class::Settings, kind), "{error}");
            assert!(error.message.contains(message), "{error}");
            assert!(error.hint.contains(hint), "{}", error.hint);
        }
    }
}
