//! Limits of queues, which the namespace keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dwell_store::store::places::PlaceCall;
use dwell_store::store::{Store, Unobserved};
use tokio::sync::Semaphore;

use super::*;

#[tokio::test]
async fn a_worker_has_no_more_jobs_of_a_queue_than_there_are_places() {
    let fixture = Fixture::new().await;
    let store = Store::open(&fixture.config, &[], Arc::new(Unobserved)).await.unwrap();
    store.keep_queue_in_flight(&[("q".to_owned(), Some(2))]).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(fixture.add("q", NOW).await);
    }
    let (say, mut said) = unbounded_channel();
    let (ends, out) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let ends = ends.clone();
        move |_: Job, _: Context| {
            say.send(out.fetch_add(1, Ordering::SeqCst) + 1).unwrap();
            let (ends, out) = (ends.clone(), out.clone());
            async move {
                ends.acquire().await.unwrap().forget();
                out.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, String>(Outcome::Finish)
            }
        }
    };
    let another = Client::connect(&fixture.config, &[]).await.unwrap();
    let running = Running::start(Worker::new(another).queue("q", handler));
    assert_eq!([next(&mut said).await, next(&mut said).await], [1, 2]);
    let limit = store.places_of_queue("q").unwrap();
    assert_eq!(store.places(&[PlaceCall::new(&limit)]).await.unwrap()[0].free, 0);
    for _ in 0..4 {
        ends.add_permits(1);
        assert!(next(&mut said).await <= 2);
    }
    ends.add_permits(2);
    for id in &ids {
        fixture.until_state(id, None).await;
    }
    running.stop().await;
    assert_eq!(store.places(&[PlaceCall::new(&limit)]).await.unwrap()[0].free, 2);
}
