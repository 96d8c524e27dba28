//! Every input of the corpus, and random bytes, through every target.
#![cfg(all(feature = "amqp", feature = "kafka", feature = "nats"))]
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;

use dwell_fuzz::TARGETS;
use proptest::prelude::*;

#[test]
fn every_promise_holds_for_what_was_ever_found() {
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let inputs: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(inputs.len() >= 10, "{name} has only {} inputs", inputs.len());
        for input in inputs {
            let bytes = std::fs::read(&input).unwrap();
            if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                panic!("a promise broke on {}: run it alone, see above", input.display());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn every_promise_holds_for_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for (_, target) in TARGETS {
            target(&bytes);
        }
    }
}
