//! The checks of brokers, and of the sources that the ingests read.

use std::time::Duration;

use dwell_connectors::{
    Caution, CautionKind, ConnectorError, ConsumerState, ErrorKind, FirstRead, Sink, SourceOptions,
    Start,
};
use futures_util::future::join_all;

use super::Check;
use crate::config::{Broker, DelayFrom, Ingest, Settings};
use crate::ingest::source_options;
use crate::runtime::{Needed, nothing_takes, of_dispatch, of_events, of_ingest};
use crate::units::show_time_ms;

pub(super) async fn checks(settings: &Settings) -> Vec<Check> {
    let looks = settings.brokers.iter().map(|(name, broker)| of_broker(settings, name, broker));
    join_all(looks).await.into_iter().flatten().collect()
}

/// Checks the broker, then its destinations, then its ingests.
async fn of_broker(settings: &Settings, name: &str, broker: &Broker) -> Vec<Check> {
    let own_name = format!("brokers.{name}");
    let ingests: Vec<(String, &Ingest)> = settings
        .ingest
        .iter()
        .filter(|(_, ingest)| ingest.broker == *name)
        .map(|(ingest_name, ingest)| (format!("ingest.{ingest_name}"), ingest))
        .collect();
    let of_ingests = settings.ingest.iter().filter(|(_, ingest)| ingest.broker == *name);
    let of_ingests =
        of_ingests.flat_map(|(ingest_name, ingest)| of_ingest(ingest_name, ingest, broker));
    let of_agents = of_dispatch(settings, name, broker).into_iter();
    let of_agents = of_agents.chain(of_events(settings, name, broker));
    let needed: Vec<Needed> = of_agents.chain(of_ingests).collect();
    let timeout = Duration::from_millis(settings.delivery.publish_timeout.ms());
    // The outcomes are kept until the end: a sink without a receiver counts as lost.
    let (sink, _outcomes) = match broker.connector.sink(timeout).await {
        Ok(opened) => opened,
        Err(error) => {
            let away = Check::of_error(own_name, error);
            let names = needed
                .iter()
                .map(|needed| needed.setting.clone())
                .chain(ingests.iter().map(|(name, _)| name.clone()));
            let others: Vec<Check> = names.map(|name| Check::skipped(name, &away)).collect();
            return [away].into_iter().chain(others).collect();
        }
    };
    let mut checks = vec![Check::good(
        own_name,
        format!("{} at {}", broker.connector.kind(), broker.connector.place()),
    )];
    // All at once: patterns share a host, and all hosts the certificates.
    let named = needed.iter().map(|needed| needed.to.address.as_str());
    let named: Vec<&str> = named.chain(broker.allow.iter().map(String::as_str)).collect();
    let mut reached: Reached = broker.connector.reach(&named).await.map(Vec::into_iter);
    for needed in &needed {
        checks.push(of_destination(name, broker, sink.as_ref(), needed, &mut reached).await);
    }
    for (ingest_name, ingest) in ingests {
        let options = source_options(ingest, &settings.limits);
        let looked = of_source(ingest_name.clone(), broker, &options, ingest).await;
        // A missing source has no facts to check.
        if looked.ok {
            match broker.connector.cautions(&options).await {
                Ok(cautions) => checks.extend(cautions.into_iter().filter_map(|caution| {
                    of_caution(&ingest_name, ingest.delay_from == DelayFrom::Receipt, caution)
                })),
                // Not there yet: there is nothing to say of it.
                Err(error) if error.kind == ErrorKind::Missing => {}
                Err(error) => checks.push(Check::warning(
                    &ingest_name,
                    format!("nobody knows whether `{}` loses requests: {error}", ingest.topic),
                    error.hint.clone(),
                )),
            }
        }
        checks.push(looked);
    }
    checks.extend(of_targets(name, broker, sink.as_ref(), &mut reached).await);
    // Nothing was published: errors on close change nothing.
    let _ = sink.close().await;
    checks
}

/// What is told of what can be reached, one after the other; `None` where a sink tells.
type Reached = Option<std::vec::IntoIter<Result<String, ConnectorError>>>;

async fn of_destination(
    name: &str,
    broker: &Broker,
    sink: &dyn Sink,
    needed: &Needed,
    reached: &mut Reached,
) -> Check {
    let check = needed.setting.as_str();
    // Whether a URL takes messages shows only when it is used; whether its host is there shows now.
    match reached.as_mut().and_then(Iterator::next) {
        Some(Ok(reached)) => return Check::good(check, reached),
        Some(Err(error)) => return Check::warning(check, error.message, error.hint),
        None => {}
    }
    match sink.exists(&needed.to).await {
        Ok(true) => {
            Check::good(check, format!("{} on {name} takes messages", needed.shown(broker)))
        }
        Ok(false) if needed.declare => Check::good(
            check,
            format!("{} on {name} would be created (declare)", needed.shown(broker)),
        ),
        Ok(false) => Check::of_error(check, nothing_takes(broker, name, needed)),
        Err(error) => Check::of_error(check, error),
    }
}

async fn of_source(
    check: String,
    broker: &Broker,
    options: &SourceOptions,
    ingest: &Ingest,
) -> Check {
    let (topic, group) = (&ingest.topic, &ingest.group);
    match broker.connector.inspect(options).await {
        Ok(ConsumerState::Exists) => Check::good(check, format!("`{topic}` is read as `{group}`")),
        Ok(ConsumerState::Changed) => Check::good(
            check,
            format!("`{topic}` is read as `{group}`, whose settings would be changed to fit"),
        ),
        Ok(ConsumerState::Made(first)) => first_read(check, ingest, first),
        Err(error) if error.kind == ErrorKind::Missing && ingest.declare => {
            let made = options
                .expired_queue
                .as_ref()
                .map_or_else(String::new, |expired| format!(" or `{expired}`"));
            Check::good(
                check,
                format!("`{topic}`{made} would be created (declare), and its reader `{group}`"),
            )
        }
        Err(error) => Check::of_error(check, error),
    }
}

/// Warns of risks of a source, if they matter to this ingest.
fn of_caution(
    ingest_name: &str,
    from_receipt: bool,
    Caution { kind, message, hint }: Caution,
) -> Option<Check> {
    let (message, hint) = match kind {
        CautionKind::Drops
        | CautionKind::Expires
        | CautionKind::Loses
        | CautionKind::HoldsBack
        | CautionKind::Paused => (message, hint),
        CautionKind::ProducerTime { deletes: false } if from_receipt => return None,
        CautionKind::ProducerTime { deletes: true } if from_receipt => (message, hint),
        CautionKind::ProducerTime { deletes } => {
            let receipt = format!("{ingest_name}.delay_from = \"receipt\"");
            let hint = match deletes {
                true => format!("{hint}; {receipt} helps the delays alone"),
                false => format!("{hint}, or {receipt}"),
            };
            let delays = "delays count from that time: a producer whose clock is behind makes its delays end early";
            (format!("{message}; {delays}"), hint)
        }
    };
    Some(Check::warning(ingest_name, message, hint))
}

/// What a first start would read. Users seldom want everything that was ever sent.
fn first_read(check: String, ingest: &Ingest, first: Option<FirstRead>) -> Check {
    let Ingest { topic, group, .. } = ingest;
    let made = format!("`{topic}` exists; its reader `{group}` would be created");
    let start = match ingest.start {
        Start::Earliest => "with the earliest message".to_owned(),
        Start::Latest => "with new messages".to_owned(),
        Start::At(ms) => format!("with messages since {}", show_time_ms(ms)),
    };
    match first {
        None => Check::good(check, format!("{made}, and start {start}")),
        Some(FirstRead { messages: 0, .. }) => {
            Check::good(check, format!("{made}, and start {start}: no message waits"))
        }
        Some(FirstRead { messages, oldest_ms }) => {
            let oldest = oldest_ms
                .map_or_else(String::new, |ms| format!(", the oldest of {}", show_time_ms(ms)));
            let hint = format!(
                "set {check}.start (latest, or a time) or {check}.max_age, to skip old requests"
            );
            Check::warning(
                check,
                format!("{made}, and start {start}: up to {messages} messages{oldest}"),
                hint,
            )
        }
    }
}

/// Warns of targets in `allow` that do not exist or cannot be reached: their jobs would fail, retry
/// and die. For patterns only some brokers can tell.
async fn of_targets(
    name: &str,
    broker: &Broker,
    sink: &dyn Sink,
    reached: &mut Reached,
) -> Vec<Check> {
    let mut checks = Vec::new();
    for pattern in &broker.allow {
        match reached.as_mut().and_then(Iterator::next) {
            Some(Ok(reached)) => checks.push(Check::good(format!("brokers.{name}.allow"), reached)),
            Some(Err(error)) => checks.push(Check::warning(
                format!("brokers.{name}.allow"),
                error.message,
                error.hint,
            )),
            None => {}
        }
        let to = broker.connector.destination(pattern);
        let tells =
            broker.connector.capabilities().finds_patterns || !broker.connector.is_pattern(pattern);
        if tells && matches!(sink.exists(&to).await, Ok(false)) {
            checks.push(Check::warning(
                format!("brokers.{name}.allow"),
                format!("nothing takes messages at `{to}`: jobs for it would be retried, and die"),
                "create that destination before its first job is due",
            ));
        }
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_producers_is_told_where_delays_or_retention_go_by_it() {
        for (from_receipt, deletes, tells_of_delays) in [
            (false, false, Some(true)),
            (false, true, Some(true)),
            (true, true, Some(false)),
            (true, false, None),
        ] {
            let caution = Caution {
                kind: CautionKind::ProducerTime { deletes },
                message: "whose clock".to_owned(),
                hint: "set the broker's".to_owned(),
            };
            let check = of_caution("ingest.main", from_receipt, caution);
            let told = check.as_ref().map(|check| {
                assert!(check.ok && check.detail.starts_with("whose clock"), "{check:?}");
                assert!(check.hint.starts_with("set the broker's"), "{check:?}");
                check.detail.contains("delays") && check.hint.contains("delay_from")
            });
            assert_eq!(told, tells_of_delays, "{from_receipt} {deletes}: {check:?}");
        }
    }
}
