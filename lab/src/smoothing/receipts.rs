//! What arrives at targets.

use std::collections::HashSet;
use std::sync::Arc;

use dwell::delayed_headers::{ATTEMPT, ID};
use dwell_connectors::Message;
use dwell_testkit::environment::Result;
use parking_lot::Mutex;

use crate::checker::Receipt;
use crate::place::Place;

/// The deliveries, in the order of their arrival.
pub(super) type Receipts = Arc<Mutex<Vec<Receipt>>>;

/// Adds what arrives at a target to these.
pub(super) async fn receive(place: &mut Place, target: &str, receipts: &Receipts) -> Result<()> {
    let receipts = receipts.clone();
    let seen = move |at_us, message: &Message| {
        let id = header(message, ID).unwrap_or_default();
        receipts.lock().push(Receipt { id, number: 0, attempt: number(message, ATTEMPT), at_us });
    };
    place.read(target, seen).await
}

/// The text of a header.
pub(super) fn header(message: &Message, name: &str) -> Option<String> {
    Some(message.headers.get(name)?.written()?.into_owned())
}

/// The number of a header; 0 if there is none.
pub(super) fn number<T: std::str::FromStr + Default>(message: &Message, name: &str) -> T {
    header(message, name).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// How many jobs arrived, each counted once.
pub(super) fn distinct(receipts: &Receipts) -> usize {
    let receipts = receipts.lock();
    receipts.iter().map(|receipt| receipt.id.as_str()).collect::<HashSet<_>>().len()
}
