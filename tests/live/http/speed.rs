//! The time until the list of the dashboard is there, with 100 000 jobs pending. No test: `cargo
//! test --release --test live http::speed -- --ignored --nocapture`.

use dwell::job::Due;

use super::browser::story;
use super::sidecar::Sidecar;
use crate::commands::fixture::Fixture;
use crate::store::fixture::{MAIN, open, request, settings};

const PENDING: u64 = 100_000;
/// Epoch ms, not within the life of a test.
const FAR: i64 = 4_000_000_000_000;

#[tokio::test]
#[ignore = "a measurement, of a release build on a quiet machine"]
async fn of_the_list() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    let store = open(&settings(&fixture.redis.url(), "dwell", 16), &[MAIN]).await;
    for chunk in (0..PENDING).collect::<Vec<_>>().chunks(1000) {
        let requests: Vec<_> = chunk
            .iter()
            .map(|n| {
                request(&format!("order-{n:06}"), *n, Due::At(FAR + i64::try_from(*n).unwrap()))
            })
            .collect();
        store.jobs.schedule(&requests).await.unwrap();
    }
    story(&sidecar, "pace", &[], async |figures: &str| println!("{figures}")).await;
}
