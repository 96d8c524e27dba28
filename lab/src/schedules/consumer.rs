//! A consumer over HTTP: it pops, writes down what it received, and finishes that with its next pop.

use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use parking_lot::Mutex;
use serde_json::json;

use crate::checker::Receipt;
use crate::client::Link;
use crate::client::answers::{Fetched, Job};

/// The most jobs of a pop.
const MAX_POP_JOBS: usize = 100;
/// The longest wait of a pop.
const POP_WAIT: &str = "1s";
/// The wait after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Consumes from a queue until it is dropped, at the first of these ports that answers from the
/// number `at` on.
pub(crate) async fn consume(
    queue: &'static str,
    ports: Vec<u16>,
    mut at: usize,
    receipts: Arc<Mutex<Vec<Receipt>>>,
) {
    let path = format!("/v1/queues/{queue}/pop");
    let mut held = Vec::new();
    loop {
        let mut link = Link::to(ports[at % ports.len()]);
        loop {
            let ask = json!({ "max": MAX_POP_JOBS, "wait": POP_WAIT, "finish": held });
            let Ok((200, body)) = link.post(&path, &ask).await else { break };
            let at_us = clock::wall_us();
            let Ok(Fetched { jobs }) = serde_json::from_slice(&body) else { break };
            held.clear();
            let mut receipts = receipts.lock();
            for Job { id, lease, attempt, headers, .. } in jobs {
                held.push(json!({ "id": id, "lease": lease }));
                let (id, number) = (id.into_owned(), headers.occurrence);
                receipts.push(Receipt { id, number, attempt, at_us });
            }
        }
        // The instance was killed: what it may have carried out is said again to another one.
        at += 1;
        clock::sleep(RETRY_PAUSE).await;
    }
}
