//! The consumer's confirm, over JetStream as it is: its deduplication on.

use std::sync::Arc;
use std::time::Duration;

use dwell::store::reader::lookup::JobState;
use dwell_connectors::{Message, Outcome};
use dwell_testkit::servers::RedisOptions;
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;

use super::environment::{Environment, TARGET, published};
use super::load::Producer;
use crate::support::{jetstream, wait_until};

/// The time for which a stream keeps ids where nobody says otherwise.
const JETSTREAM_WINDOW: Duration = Duration::from_secs(120);
const RETRY: &str = r#"delivery.retry = ["200ms", "200ms", "200ms", "200ms", "1h"]"#;

fn job(id: &str, delay: &str, ttr: &str) -> Message {
    let message =
        Message::new(id.to_owned()).with_header("delay-id", id).with_header("delay-for", delay);
    message
        .with_header("delay-target", TARGET)
        .with_header("delay-confirm", "consumer")
        .with_header("delay-ttr", ttr)
}

fn word(action: &str, id: &str) -> Message {
    Message::new("")
        .with_header("delay-action", action)
        .with_header("delay-id", id)
        .with_header("delay-reply-to", "replies")
}

/// The messages on a subject, in the order in which they came.
struct Mailbox(
    Arc<Mutex<Vec<Message>>>,
    #[allow(dead_code, reason = "reads as long as it lives")]
    dwell_testkit::environment::traffic::Consumer,
);

impl Mailbox {
    async fn of(env: &Environment, subject: &str) -> Mailbox {
        let came = Arc::<Mutex<Vec<Message>>>::default();
        let into = came.clone();
        let reader = dwell_testkit::environment::traffic::Consumer::open(
            &env.broker(),
            subject,
            dwell_connectors::Acks::Explicit,
            move |_, messages| into.lock().extend(messages),
        )
        .await;
        Mailbox(came, reader.unwrap())
    }

    async fn until(&self, count: usize) -> Vec<Message> {
        let what = format!("{count} messages");
        wait_until(&what, async || Some(self.0.lock().clone()).filter(|came| came.len() >= count))
            .await
    }

    /// The verdict of the reply of this place, with its id.
    async fn verdict(&self, nth: usize) -> (String, String) {
        let reply: Value = serde_json::from_slice(&self.until(nth + 1).await[nth].body).unwrap();
        (reply["id"].as_str().unwrap().to_owned(), reply["verdict"].as_str().unwrap().to_owned())
    }
}

async fn ask(producer: &mut Producer, message: Message) {
    assert_eq!(producer.publish(vec![message]).await, [Some(Outcome::Confirmed)]);
}

fn of(came: &[Message], id: &str) -> Vec<u32> {
    let of_id = came.iter().filter(|message| message.headers.text("delayed-id") == Some(id));
    of_id.map(|message| message.headers.text("delayed-attempt").unwrap().parse().unwrap()).collect()
}

#[tokio::test]
async fn a_job_is_repeated_until_its_consumer_finishes_it_and_jetstream_swallows_no_repeat() {
    let env =
        Environment::with_dedupe("finish", RedisOptions::default(), RETRY, JETSTREAM_WINDOW).await;
    let dwell = env.dwell().await;
    let (orders, replies) = tokio::join!(Mailbox::of(&env, TARGET), Mailbox::of(&env, "replies"));
    let mut producer = env.producer();
    // The finish comes long before the third attempt is over.
    ask(&mut producer, job("repeated", "0", "3s")).await;
    let came = orders.until(3).await;
    let carried = |name| came[2].headers.text(name).unwrap();
    let finish = word("finish", "repeated").with_header("delayed-due", carried("delayed-due"));
    ask(&mut producer, finish.with_header("delayed-attempt", carried("delayed-attempt"))).await;
    assert_eq!(replies.verdict(0).await, ("repeated".to_owned(), "finished".to_owned()));

    // A job that is repeated as often as the array allows has all the time that the finished one
    // would have had to come again.
    ask(&mut producer, job("after", "0", "3s")).await;
    wait_until("the other is repeated to the last wait", async || {
        (of(&orders.until(3).await, "after").len() == 5).then_some(())
    })
    .await;
    assert_eq!(of(&orders.until(8).await, "repeated"), [1, 2, 3]);
    assert_eq!(of(&orders.until(8).await, "after"), [1, 2, 3, 4, 5]);
    assert_eq!(
        published(&dwell, "confirmed").await,
        jetstream::messages(env.nats.port(), "ORDERS").await,
        "none was swallowed"
    );
    assert_eq!(published(&dwell, "confirmed").await, 8);
}

#[tokio::test]
async fn a_late_finish_ends_it_and_cancel_answers_with_what_it_found() {
    let env = Environment::with_dedupe(
        "late",
        RedisOptions::default(),
        r#"delivery.retry = ["1h"]"#,
        JETSTREAM_WINDOW,
    )
    .await;
    let _dwell = env.dwell().await;
    let (orders, replies) = tokio::join!(Mailbox::of(&env, TARGET), Mailbox::of(&env, "replies"));
    let (mut producer, store) = (env.producer(), env.store().await);
    let state = async |id: &str, held: bool| {
        let found = store.reader.find(&dwell::job::JobId::new(id).unwrap()).await.unwrap();
        found
            .filter(|found| found.state_record.as_ref().is_none_or(|state| state.held) == held)
            .map(|found| found.state)
    };
    let until = async |id: &str, held: bool, wanted: JobState| {
        wait_until(&format!("{id} is {wanted:?}"), async || {
            (state(id, held).await == Some(wanted)).then_some(())
        })
        .await;
    };
    ask(&mut producer, job("late", "0", "200ms")).await;
    orders.until(1).await;
    until("late", false, JobState::Scheduled).await;
    ask(&mut producer, word("finish", "late")).await;
    assert_eq!(replies.verdict(0).await, ("late".to_owned(), "finished".to_owned()));

    ask(&mut producer, job("waits", "1h", "1m")).await;
    ask(&mut producer, job("held", "0", "1h")).await;
    orders.until(2).await;
    until("held", true, JobState::Reserved).await;
    for id in ["waits", "held", "nobody", "late"] {
        ask(&mut producer, word("cancel", id)).await;
    }
    let verdicts = [
        replies.verdict(1).await,
        replies.verdict(2).await,
        replies.verdict(3).await,
        replies.verdict(4).await,
    ];
    let expected = [
        ("waits", "cancelled"),
        ("held", "cancelled_after_attempt"),
        ("nobody", "not_found"),
        ("late", "fired"),
    ];
    assert_eq!(verdicts, expected.map(|(id, verdict)| (id.to_owned(), verdict.to_owned())));
    let counts = store.reader.counts(&[]).await.unwrap();
    assert_eq!(
        [&counts.scheduled, &counts.reserved, &counts.dead].map(|of| of.iter().sum::<u64>()),
        [0, 0, 0]
    );
    assert_eq!(orders.until(2).await.len(), 2);
}

#[tokio::test]
async fn a_ttr_that_ends_after_its_instance_was_killed_is_noticed_as_soon() {
    let env = Environment::with_dedupe(
        "killed",
        RedisOptions::default(),
        r#"delivery.retry = ["1s", "1h"]"#,
        JETSTREAM_WINDOW,
    )
    .await;
    let (mut killed, lives) = tokio::join!(env.dwell(), env.dwell());
    for dwell in [&killed, &lives] {
        let log = dwell.dir().join("log");
        wait_until("they know of each other", async || {
            std::fs::read_to_string(&log).unwrap().contains("\"instances\":2,").then_some(())
        })
        .await;
    }
    let orders = Mailbox::of(&env, TARGET).await;
    let jobs = (0..64).map(|n| job(&format!("job-{n}"), "0", "6s"));
    env.producer().publish(jobs.collect()).await;
    orders.until(64).await;
    // An attempt whose confirm was not settled yet is over with its lease, not with its TTR.
    let store = env.store().await;
    wait_until("all wait for their consumer", async || {
        let ids = (0..64).map(|n| dwell::job::JobId::new(format!("job-{n}")).unwrap());
        let found = join_all(ids.map(async |id| store.reader.find(&id).await.unwrap())).await;
        found
            .into_iter()
            .all(|found| found.and_then(|found| found.state_record).is_some_and(|state| state.held))
            .then_some(())
    })
    .await;
    killed.kill().unwrap();
    let came = orders.until(128).await;
    let at = |id: &str, attempt: &str| {
        let is_meant = |message: &&Message| {
            message.headers.text("delayed-id") == Some(id)
                && message.headers.text("delayed-attempt") == Some(attempt)
        };
        came.iter().find(is_meant).unwrap().timestamp_ms.unwrap()
    };
    let apart: Vec<i64> =
        (0..64).map(|n| format!("job-{n}")).map(|id| at(&id, "2") - at(&id, "1")).collect();
    println!(
        "attempt 2 came {:?} to {:?} ms after attempt 1",
        apart.iter().min(),
        apart.iter().max()
    );
    // The TTR and the wait are seven seconds; two are for noticing, the rest for a busy machine.
    assert!(apart.iter().all(|ms| (7000..14_000).contains(ms)), "{apart:?}");
}
