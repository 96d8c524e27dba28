//! The checks of limits: whether other instances have others.

use super::Check;
use crate::config::{Broker, Settings};
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::limits::Limit;
use crate::store::places::PlaceLimit;

/// The name of this check.
const NAME: &str = "limits";

/// Warns of limits that other instances have.
pub(super) async fn checks(settings: &Settings) -> Vec<Check> {
    let mut checks = of_targets(settings).await;
    checks.extend(of_queues(settings).await);
    checks
}

/// Warns of limits of queues of which the namespace keeps others, which a start changes for all.
async fn of_queues(settings: &Settings) -> Option<Check> {
    let queues = &settings.queues;
    if queues.is_empty() {
        return None;
    }
    let store = match Store::attach(&settings.redis).await {
        Ok(store) => store,
        Err(error) => return Some(Check::of_error(NAME, error)),
    };
    let others = store.other_queue_limits(&queues.limits(), &queues.in_flight());
    (!others.is_empty()).then(|| {
        let detail = format!("the namespace keeps other limits of queues: {}", others.join(", "));
        let hint = "a start changes them for all instances: make the limits of all the same";
        Check::warning(NAME, detail, hint)
    })
}

/// Warns of limits with which other instances have taken turns or places within the last minute. No
/// check without limits.
async fn of_targets(settings: &Settings) -> Vec<Check> {
    let of_broker = |(name, broker): (&'_ String, &'_ Broker)| {
        let limits = broker.ordered_limits().into_iter();
        limits
            .map(|(pattern, limit)| {
                let turns = limit.rate().map(|rate| Limit::of_targets(name, pattern, rate));
                let places =
                    limit.in_flight.map(|most| PlaceLimit::of_targets(name, pattern, most));
                (turns, places)
            })
            .collect::<Vec<_>>()
    };
    let limits: Vec<(Option<Limit>, Option<PlaceLimit>)> =
        settings.brokers.iter().flat_map(of_broker).collect();
    if limits.is_empty() {
        return Vec::new();
    }
    let count = limits.len();
    let (turns, places): (Vec<_>, Vec<_>) = limits.into_iter().unzip();
    let turns: Vec<Limit> = turns.into_iter().flatten().collect();
    let places: Vec<PlaceLimit> = places.into_iter().flatten().collect();
    let looked = look(settings, count, &turns, &places).await;
    vec![looked.unwrap_or_else(|error| Check::of_error(NAME, error))]
}

async fn look(
    settings: &Settings,
    count: usize,
    turns: &[Limit],
    places: &[PlaceLimit],
) -> Result<Check, StoreError> {
    let store = Store::attach(&settings.redis).await?;
    let mut others = store.other_limits(turns).await?;
    others.extend(store.other_places(places).await?);
    others.sort();
    others.dedup();
    if others.is_empty() {
        return Ok(Check::good(NAME, format!("{count} of targets")));
    }
    let detail =
        format!("another instance has other limits, or had them before: {}", others.join(", "));
    Ok(Check::warning(NAME, detail, "make the limits of all instances the same"))
}
