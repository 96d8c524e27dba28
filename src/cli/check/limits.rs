//! The check of limits: whether other instances have others.

use super::Check;
use crate::config::{Broker, Settings};
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::limits::Limit;
use crate::store::places::PlaceLimit;

/// The name of this check.
const NAME: &str = "limits";

/// Warns of limits with which other instances have taken turns or places within the last minute, and
/// of those of queues that the namespace keeps otherwise. No check without limits.
pub(super) async fn checks(settings: &Settings) -> Vec<Check> {
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
    if limits.is_empty() && settings.queues.is_empty() {
        return Vec::new();
    }
    let count = limits.len();
    let (turns, places): (Vec<_>, Vec<_>) = limits.into_iter().unzip();
    let turns: Vec<Limit> = turns.into_iter().flatten().collect();
    let places: Vec<PlaceLimit> = places.into_iter().flatten().collect();
    let looked = look(settings, count, &turns, &places).await;
    looked.unwrap_or_else(|error| Some(Check::of_error(NAME, error))).into_iter().collect()
}

/// `None`: no limit is declared, and none is kept of the queues that are.
async fn look(
    settings: &Settings,
    of_targets: usize,
    turns: &[Limit],
    places: &[PlaceLimit],
) -> Result<Option<Check>, StoreError> {
    let (store, queues) = (Store::attach(&settings.redis).await?, &settings.queues);
    let mut others = store.other_limits(turns).await?;
    others.extend(store.other_places(places).await?);
    let of_queues = store.other_queue_limits(&queues.limits(), &queues.in_flight());
    others.extend(of_queues.iter().map(|name| format!("queues.\"{name}\"")));
    others.sort();
    others.dedup();
    if !others.is_empty() {
        let detail =
            format!("another instance has other limits, or had them before: {}", others.join(", "));
        let hint = "make the limits of all instances the same";
        return Ok(Some(Check::warning(NAME, detail, hint)));
    }
    let of_queues = queues.iter().filter(|rules| rules.is_limited()).count();
    let counts: Vec<String> = [(of_targets, "targets"), (of_queues, "queues")]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} of {what}"))
        .collect();
    Ok((!counts.is_empty()).then(|| Check::good(NAME, counts.join(", "))))
}
