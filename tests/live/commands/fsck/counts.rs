//! The counts of reserved jobs of queues: damage to them, and none where jobs move.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dwell::consumers::{Consumers, PopRequest};
use dwell::job::{Due, Job};
use dwell::policy::late::LateRules;
use dwell::request::NewJob;
use dwell::store::Store;
use dwell::store::admin::fsck::{self, Finding, FsckRules, Problem as P};
use dwell::store::jobs::acknowledge::{Acknowledgement, LeaseAction};
use dwell::store::jobs::pop::Popped;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Damaged, findings};
use crate::commands::fixture::Said;
use crate::store::fixture::{KEEP, MAIN, RETRY, id, open};
use crate::support::wait_until;

const QUEUES: [&str; 2] = ["bills", "emails"];

/// An application with consumers.
struct Application {
    store: Arc<Store>,
    consumers: Consumers,
}

impl Application {
    async fn of(damaged: &Damaged) -> Application {
        let store = Arc::new(open(&damaged.listed.fixture.settings, &[MAIN]).await);
        let consumers = Consumers::new(
            store.clone(),
            LateRules::default(),
            Arc::new(()),
            CancellationToken::new(),
        );
        Application { store, consumers }
    }

    async fn add(&self, name: &str, queue: &str) {
        let new_job = NewJob::new(Job::for_queue(queue, "x"), Due::In(0)).id(id(name));
        self.store.jobs.schedule(&[new_job]).await.unwrap();
    }

    async fn fetch(&self, max: usize) -> Vec<Popped> {
        let queues = QUEUES.map(str::to_owned).to_vec();
        let asked = PopRequest {
            queues,
            max,
            max_bytes: 1 << 20,
            wait: Duration::ZERO,
            ttr_ms: None,
            max_ttr_ms: 3_600_000,
        };
        self.consumers.pop(&asked).await.unwrap().sent()
    }

    async fn finish(&self, job: Popped) {
        self.consumers
            .acknowledge(&[Acknowledgement {
                id: job.id,
                lease: job.lease,
                action: LeaseAction::Finish,
            }])
            .await
            .remove(0)
            .unwrap();
    }

    /// Schedules, fetches and finishes jobs until told to stop. Ids come again, in the other queue
    /// too.
    async fn work(&self, stop: &CancellationToken) {
        let mut held = VecDeque::new();
        for number in 0_usize.. {
            if stop.is_cancelled() {
                return;
            }
            self.add(&format!("job-{}", number % 61), QUEUES[number % 2]).await;
            held.extend(self.fetch(3).await);
            if held.len() > 40 {
                self.finish(held.pop_front().unwrap()).await;
            }
        }
    }
}

async fn count(d: &Damaged, bucket: u16, queue: &str) -> Option<i64> {
    let mut raw = d.listed.fixture.raw.clone();
    redis::cmd("HGET")
        .arg(d.key_in(bucket, "queues"))
        .arg(format!("={queue}"))
        .query_async(&mut raw)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_wrong_count_is_found_named_and_repaired() {
    let d = Damaged::new().await;
    d.healthy().await;
    let application = Application::of(&d).await;
    for number in 0..40 {
        application.add(&format!("job-{number}"), QUEUES[number % 2]).await;
    }
    let held = application.fetch(30).await;
    assert_eq!((held.len(), d.fsck(&[]).out.as_str()), (30, ""));
    let before = d.dump().await;
    let there = |queue: &'static str| (0..4).map(move |bucket| (bucket, queue));
    let mut counted = Vec::new();
    for (bucket, queue) in QUEUES.into_iter().flat_map(there) {
        counted.extend(
            count(&d, bucket, queue).await.filter(|count| *count > 0).map(|_| (bucket, queue)),
        );
    }
    let [more, none, no_number] = counted[..3].try_into().unwrap();
    d.redis("HINCRBY", &d.key_in(more.0, "queues"), (format!("={}", more.1), 5)).await;
    d.redis("HDEL", &d.key_in(none.0, "queues"), format!("={}", none.1)).await;
    d.redis("HSET", &d.key_in(no_number.0, "queues"), (format!("={}", no_number.1), "many")).await;
    let damage = d.dump().await;

    let told = |said: &Said, repaired: bool| {
        let mut wanted = [more, none, no_number].map(|(bucket, queue)| {
            json!({"bucket": bucket, "id": queue, "problem": "bad_count", "repaired": repaired})
                .to_string()
        });
        let mut lines: Vec<String> = said.lines().iter().map(ToString::to_string).collect();
        wanted.sort();
        lines.sort();
        assert_eq!(lines, wanted, "{}", said.err);
        said.code
    };
    assert_eq!((told(&d.fsck(&[]), false), d.dump().await), (1, damage));
    assert_eq!((told(&d.fsck(&["--repair"]), true), d.dump().await), (0, before));
    assert_eq!((d.fsck(&[]).code, d.fsck(&[]).out), (0, String::new()));
}

#[tokio::test]
async fn the_count_of_a_job_that_was_lost_is_right_after_the_repair() {
    let d = Damaged::new().await;
    let application = Application::of(&d).await;
    application.add("lost", "emails").await;
    assert_eq!(application.fetch(1).await.len(), 1);
    d.redis("HDEL", &d.key("lost", "jobs"), "lost").await;
    let lost = ("lost".to_owned(), P::IndexWithoutRecord.as_str().to_owned());
    assert_eq!(findings(&d.fsck(&[])), [lost.clone()].into(), "which queue had it is not known");
    let count_of_it = ("emails".to_owned(), P::BadCount.as_str().to_owned());
    assert_eq!(findings(&d.fsck(&["--repair"])), [lost, count_of_it].into());
    assert_eq!((count(&d, d.bucket("lost"), "emails").await, d.fsck(&[]).code), (Some(0), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_move_are_no_damage_and_hide_none() {
    let d = Damaged::new().await;
    let (application, stop) = (Application::of(&d).await, CancellationToken::new());
    let look = async |repair: bool| {
        let mut told = Vec::new();
        let rules = FsckRules { lease_ms: 20_000, retry_ms: RETRY.to_vec(), sweep: KEEP, repair };
        fsck::run(&d.listed.fixture.settings, rules, &mut |finding: Finding| told.push(finding))
            .await
            .unwrap();
        told
    };
    let looks = async {
        for _ in 0..20 {
            assert_eq!(look(true).await, []);
        }
        d.redis("HINCRBY", &d.key_in(2, "queues"), ("=bills", 7)).await;
        let wanted = |repaired: bool| {
            [Finding { bucket: Some(2), id: "bills".to_owned(), problem: P::BadCount, repaired }]
        };
        wait_until("it is found", async || (look(false).await == wanted(false)).then_some(()))
            .await;
        wait_until("it is repaired", async || (look(true).await == wanted(true)).then_some(()))
            .await;
        stop.cancel();
    };
    tokio::join!(application.work(&stop), looks);
    assert_eq!(look(false).await, []);
}
