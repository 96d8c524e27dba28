//! A store whose connection loses answers on demand.

use std::time::Duration;

use dwell::config::Redis;
use dwell::store::Store;
use dwell::store::error::{Class, StoreError};
use dwell::store::jobs::claim::ClaimRequest;
use dwell::store::scripts::Name;
use dwell_connectors::conformance::proxy::{Direction, Flow, Proxy};

use super::fixture::{Fixture, LEASE, MAIN, open};
use crate::support::wait_until;

pub(super) struct Lossy {
    pub(super) link: Proxy,
    pub(super) store: Store,
}

impl Lossy {
    /// On the Redis and the namespace of a fixture.
    pub(super) async fn beside(fixture: &Fixture) -> Lossy {
        let place = fixture.settings.urls[0].trim_start_matches("redis://").to_owned();
        let link = Proxy::start(place).await.unwrap();
        let through =
            Redis { urls: vec![format!("redis://{}", link.address())], ..fixture.settings.clone() };
        Lossy { store: open(&through, &[MAIN]).await, link }
    }

    /// Claims up to this many of bucket 0, due so much later too, in a way that Redis's answer is
    /// lost.
    pub(super) async fn lose_a_claim(
        &self,
        fixture: &Fixture,
        most: usize,
        ahead: Duration,
    ) -> StoreError {
        // Else what is lost is that Redis does not know the script.
        fixture.redis(&["SCRIPT", "LOAD", &Name::Claim.source(1)]).await;
        let claimed =
            async || match fixture.redis(&["ZCARD", &fixture.key("claim_deadlines")]).await {
                redis::Value::Int(count) => count,
                other => panic!("{other:?}"),
            };
        let before = claimed().await;
        self.link.set(Direction::Down, Flow::Drop);
        let applied = async {
            wait_until("the claim is applied", async || (claimed().await > before).then_some(()))
                .await;
            // Before any of it can come: a long answer may still be on its way.
            self.link.reset();
            self.link.heal();
        };
        let (answer, ()) = tokio::join!(
            self.store.jobs.claim_ahead(
                0,
                MAIN,
                ClaimRequest { lease: LEASE, most, most_bytes: 1 << 20, ahead }
            ),
            applied
        );
        let error = answer.unwrap_err();
        assert_eq!(error.class, Class::Io, "{error}");
        error
    }
}
