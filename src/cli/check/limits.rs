//! The check of limits: whether other instances have others.

use super::Check;
use crate::config::Settings;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::limits::Limit;

/// The name of this check.
const NAME: &str = "limits";

/// Warns of limits with which other instances have taken turns within the last minute. No check
/// without limits.
pub(super) async fn checks(settings: &Settings) -> Vec<Check> {
    let limits: Vec<Limit> = settings
        .brokers
        .iter()
        .flat_map(|(name, broker)| {
            broker
                .ordered_limits()
                .into_iter()
                .map(move |(pattern, limit)| Limit::of_targets(name, pattern, limit.rate()))
        })
        .collect();
    if limits.is_empty() {
        return Vec::new();
    }
    vec![look(settings, &limits).await.unwrap_or_else(|error| Check::of_error(NAME, error))]
}

async fn look(settings: &Settings, limits: &[Limit]) -> Result<Check, StoreError> {
    let store = Store::attach(&settings.redis).await?;
    let others = store.other_limits(limits).await?;
    if others.is_empty() {
        return Ok(Check::good(NAME, format!("{} of targets", limits.len())));
    }
    let detail =
        format!("another instance has other limits, or had them before: {}", others.join(", "));
    Ok(Check::warning(NAME, detail, "make the limits of all instances the same"))
}
