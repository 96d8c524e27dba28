//! The property: random lives of one or two ids over two instances, with redelivery, lost answers,
//! crashes, leases that run out and a failover. The real scripts and a reference of maps must agree
//! at every step; every call is repeated at once and must change nothing.

mod op;
mod reference;
mod run;
mod settled;
mod system;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use op::op;
use run::Run;
use system::System;

use super::fixture::shared;

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/live/store/model.regressions"))),
        ..ProptestConfig::default()
    })]
    #[test]
    fn scripts_and_reference_agree_whatever_happens(ops in (1..=2_u8).prop_flat_map(|ids| proptest::collection::vec(op(ids), 1..60))) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(shared());
        System::load(&server.url());
        let mut run = Run::new(&server.url());
        for op in &ops {
            run.step(op);
        }
    }
}
