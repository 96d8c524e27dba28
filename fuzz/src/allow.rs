//! The allow-list and the brokers' own destinations, beside a naive matcher.

use dwell_connectors::Destination;

use crate::input::Input;
use crate::naive;
use crate::rules::{KINDS, broker};

/// A kind of broker, a pattern, an exchange, an address.
pub(crate) fn target(bytes: &[u8]) {
    let mut input = Input(bytes);
    let kind = KINDS[usize::from(input.byte()) % KINDS.len()];
    let (pattern, exchange, address) = (input.text(), input.text(), input.text());
    let to =
        Destination { exchange: if kind == "amqp" { exchange } else { String::new() }, address };
    let config = broker(kind);
    assert_eq!(
        config.allows(&pattern, &to),
        naive::allows(kind, &pattern, &to),
        "{kind}: {pattern:?} {to:?}"
    );
    let refused = config.forbidden(&to);
    assert!(refused.is_some() || !naive::never(kind, &to), "{kind}: {to:?}");
    let _ = config.pattern_problem(&pattern);
}
