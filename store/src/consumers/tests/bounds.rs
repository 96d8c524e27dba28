//! Waiting pops that name more queues than a process waits for, and pauses of too many queues.

use tokio::task::JoinHandle;

use super::*;
use crate::store::error::Class;

const SOON: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

/// A process with places for so many watched queues and further names.
async fn with_places(queues: usize, names: usize) -> Fixture {
    let mut fixture = Fixture::new().await;
    fixture.consumers = Consumers::with_places(
        fixture.store.clone(),
        LateRules::default(),
        Arc::new(()),
        CancellationToken::new(),
        Places::new(queues, names),
    );
    fixture
}

fn from(queues: &[&str], wait: Duration) -> PopRequest {
    let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
    PopRequest { queues, ..request(1, wait) }
}

/// A pop that waits for these queues.
async fn waiting(fixture: &Fixture, queues: &[&str]) -> JoinHandle<usize> {
    let (consumers, asked) = (fixture.consumers.clone(), from(queues, LONG));
    let before: Vec<usize> = queues.iter().map(|queue| consumers.waiting(queue)).collect();
    let waiting = tokio::spawn(async move { consumers.pop(&asked).await.unwrap().sent().len() });
    for (queue, before) in queues.iter().zip(before) {
        while fixture.consumers.waiting(queue) <= before {
            tokio::task::yield_now().await;
        }
    }
    waiting
}

/// The class and the message of the refusal of a pop.
async fn refusal(fixture: &Fixture, queues: &[&str]) -> (Class, String) {
    let error = fixture.consumers.pop(&from(queues, LONG)).await.map(drop).unwrap_err();
    assert!(!error.hint.is_empty(), "{error}");
    (error.class, error.message)
}

#[tokio::test]
async fn a_pop_that_would_wait_for_one_queue_too_many_is_refused() {
    let fixture = with_places(2, 100).await;
    let others = waiting(&fixture, &["a", "b"]).await;
    for queues in [&["c"][..], &["a", "c"]] {
        let (class, message) = refusal(&fixture, queues).await;
        assert!(class == Class::Memory && message.contains(" 2 queues"), "{class:?}: {message}");
    }
    assert_eq!(["a", "c"].map(|queue| fixture.consumers.waiting(queue)), [1, 0]);
    // A queue that is watched has room for more pops, and a job that is due waits for nobody.
    let more = waiting(&fixture, &["b", "a"]).await;
    fixture.add("x", Due::In(0)).await;
    assert_eq!(fixture.pop(1, LONG).await.sent().len(), 1);
    assert!(fixture.consumers.pop(&from(&["c"], Duration::ZERO)).await.unwrap().is_empty());
    others.abort();
    more.abort();
}

#[tokio::test]
async fn waiting_pops_keep_so_many_names_and_no_more() {
    let fixture = with_places(100, 2).await;
    let others = waiting(&fixture, &["a", "b"]).await;
    let (class, message) = refusal(&fixture, &["a", "b", "c"]).await;
    assert!(class == Class::Memory && message.contains(" 2 queues"), "{class:?}: {message}");
    // The first name of a pop needs no place, and the second one finds one.
    for queues in [&["c"][..], &["a", "c"]] {
        assert!(fixture.consumers.pop(&from(queues, SOON)).await.unwrap().is_empty());
    }
    others.abort();
    assert!(others.await.unwrap_err().is_cancelled());
    // The place is free at once.
    let asked = from(&["a", "b", "c"], SOON);
    assert!(fixture.consumers.pop(&asked).await.unwrap().is_empty());
}

#[tokio::test]
async fn so_many_queues_can_be_paused_and_no_more() {
    let fixture = Fixture::new().await;
    let mut raw = crate::raw_link::raw_link(fixture.server.url()).await;
    // As 999 pauses leave the first bucket.
    let mut others = redis::cmd("HSET");
    others.arg(fixture.store.keys().queues(0));
    for number in 0..999 {
        others.arg(format!("!{}", DueSet::Queue(&format!("mine.{number}")))).arg(1);
    }
    others.exec_async(&mut raw).await.unwrap();
    let pause = async |queue: &str| fixture.store.admin.pause(queue, 1000).await;
    let is_paused = async |queue: &str| {
        fixture.store.reader.queue_counts(&[queue.to_owned()]).await.unwrap()[0].paused
    };
    // The jobs of queues that are not paused take no place.
    fixture.add("x", FAR).await;
    pause(QUEUE).await.unwrap();
    let refused = pause("mine.one-more").await.unwrap_err();
    assert!(
        refused.class == Class::TooManyPaused
            && refused.message.contains("1000")
            && !refused.hint.is_empty(),
        "{refused:?}"
    );
    assert_eq!((is_paused("mine.one-more").await, is_paused(QUEUE).await), (false, true));
    // A pause may be repeated, and a resume makes room.
    pause(QUEUE).await.unwrap();
    fixture.store.admin.resume("mine.7").await.unwrap();
    pause("mine.one-more").await.unwrap();
    // A caller may have another bound.
    let less = fixture.store.admin.pause("mine.7", 750).await;
    assert_eq!(less.map_err(|error| error.class), Err(Class::TooManyPaused));
    fixture.store.admin.pause("named", usize::MAX).await.unwrap();
    assert_eq!(pause("mine.7").await.map_err(|error| error.class), Err(Class::TooManyPaused));
}
