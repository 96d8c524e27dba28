//! A master of a Redis Cluster that hangs: calls for the jobs of the others are answered, no job is
//! handed out by a pop whose acknowledgements it does not answer, and those of a client that hung
//! up are carried out once it goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dwell::config::{Redis, RedisMode};
use dwell::store::Store;
use dwell_testkit::servers::{RedisCluster, RedisOptions};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::queues::send;
use super::sidecar::Sidecar;
use crate::support::{DEADLINE, metric, namespace, wait_until};

/// The longest time of a call whose master answers: far more than it takes, and less than the five
/// seconds that the store waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The calls for the master that hangs: several times as many as the batches that run at once.
const WAITING_CALLS: usize = 16;
/// The jobs of the other masters. So few that a round over them is short.
const LIVING_JOBS: usize = 40;

/// Stores a job of this id, on a thread of its own. Returns the status.
fn post(sidecar: &Arc<Sidecar>, id: &str) -> JoinHandle<u16> {
    let (sidecar, job) = (sidecar.clone(), json!({"id": id, "queue": "emails", "for": "1h"}));
    tokio::task::spawn_blocking(move || sidecar.post("/v1/jobs", &job).status)
}

/// The calls to Redis that got no answer in time.
fn timeouts(sidecar: &Sidecar) -> f64 {
    metric(&sidecar.metrics(), r#"dwell_redis_errors_total{class="timeout"}"#)
}

/// A sidecar on a cluster, and ids of jobs: of its first master, and of the others.
struct Halves {
    cluster: RedisCluster,
    sidecar: Arc<Sidecar>,
    of_first: Vec<String>,
    of_others: Vec<String>,
}

async fn halves() -> Halves {
    let more = [("cluster-require-full-coverage", "no"), ("cluster-replica-no-failover", "yes")];
    let more = more.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let cluster =
        RedisCluster::start(RedisOptions { more, ..RedisOptions::default() }).await.unwrap();
    let namespace = namespace("hanging");
    let settings = format!(
        "[redis]\nmode = \"cluster\"\nurls = {:?}\nnamespace = \"{namespace}\"\n\
         buckets = 64\ndurability = \"memory\"\n[queues.emails]\n",
        cluster.urls()
    );
    let sidecar = Arc::new(Sidecar::run(&settings, "", &[]).await);
    let redis = Redis {
        mode: RedisMode::Cluster,
        urls: cluster.urls(),
        namespace,
        ..Redis::new(String::new())
    };
    let store = Store::attach(&redis).await.unwrap();
    let mut is_first = Vec::new();
    for bucket in 0..store.keys().buckets() {
        let slot = cluster.slot_of(store.keys().jobs(bucket)).await.unwrap();
        is_first.push(cluster.master_of(slot).await.unwrap() == 0);
    }
    let (of_first, of_others) = (0..200)
        .map(|number| format!("job-{number}"))
        .partition(|id| is_first[usize::from(store.keys().bucket_of(id))]);
    Halves { cluster, sidecar, of_first, of_others }
}

#[tokio::test]
async fn calls_for_the_masters_that_answer_wait_for_none_that_hangs() {
    let Halves { cluster, sidecar, of_first: hanging, of_others: living } = halves().await;
    assert!(hanging.len() >= WAITING_CALLS && living.len() >= LIVING_JOBS);

    let before = timeouts(&sidecar);
    cluster.nodes[0].freeze().unwrap();
    let waiting: Vec<JoinHandle<u16>> =
        hanging.iter().take(WAITING_CALLS).map(|id| post(&sidecar, id)).collect();
    // The first tries of those end within this time, and the next ones begin.
    while timeouts(&sidecar) == before {
        for id in &living[..LIVING_JOBS] {
            let status = timeout(ANSWER_TIMEOUT, post(&sidecar, id)).await;
            let status = status.expect("a master that answers is held up by one that hangs");
            assert_eq!(status.unwrap(), 201, "{id}");
        }
    }
    assert!(waiting.iter().all(|call| !call.is_finished()), "they wait for their master");

    cluster.nodes[0].thaw().unwrap();
    for call in waiting {
        let status = timeout(DEADLINE, call).await.expect("an answer").unwrap();
        assert!([201, 503].contains(&status), "{status}");
    }
    cluster.whole().await.unwrap();
    wait_until("the master takes jobs again", async || {
        (post(&sidecar, &hanging[0]).await.unwrap() == 201).then_some(())
    })
    .await;
}

/// Stores a job that is due now.
fn add(sidecar: &Sidecar, id: &str) {
    let job = json!({"id": id, "queue": "emails", "for": 0, "body": ""});
    assert_eq!(sidecar.post("/v1/jobs", &job).status, 201, "{id}");
}

/// Stores a job and pops it. Returns its lease, as a word on it takes it.
fn hold(sidecar: &Sidecar, id: &str) -> Value {
    add(sidecar, id);
    let popped = sidecar.post("/v1/queues/emails/pop", &json!({"wait": "20s", "ttr": "10m"}));
    let job = &popped.json()["jobs"][0];
    assert_eq!(job["id"], id, "{job}");
    json!({"id": id, "lease": job["lease"]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_on_leases_are_carried_out_after_their_client_hung_up() {
    let Halves { cluster, sidecar, of_first: hanging, of_others: living } = halves().await;
    let ends = |end: &str| {
        let series = format!(r#"dwell_lease_ends_total{{queue="emails",end="{end}"}}"#);
        metric(&sidecar.metrics(), &series)
    };
    let gone = || sidecar.log().matches("a connection ended early").count();
    for (hanging, living) in hanging.iter().zip(living.chunks_exact(2)) {
        let held = [hanging, &living[0], &living[1]].map(|id| hold(&sidecar, id));
        let (released, finished) = (ends("released"), ends("finished"));
        let began = Instant::now();
        cluster.nodes[0].freeze().unwrap();
        // The `finish` of the first job waits behind its `touch`. The verdict of a master that
        // answers shows that a call has begun.
        let mut release = held[1].clone();
        release["for"] = json!("1h");
        let touch = json!({"touch": [held[0]], "release": [release]});
        let _touches = send(&sidecar, "/v1/leases", &touch);
        wait_until("the first call", async || (ends("released") > released).then_some(())).await;
        let finish = json!({"finish": [held[0], held[2]]});
        let finishes = send(&sidecar, "/v1/leases", &finish);
        wait_until("the second call", async || (ends("finished") > finished).then_some(())).await;
        let before = gone();
        drop(finishes);
        wait_until("the end of its connection", async || (gone() > before).then_some(())).await;
        cluster.nodes[0].thaw().unwrap();
        // The store waits for five seconds: nobody hears of a job that ends after them, and other
        // jobs are taken.
        let is_heard = began.elapsed() < ANSWER_TIMEOUT;
        cluster.whole().await.unwrap();
        if !is_heard {
            continue;
        }
        wait_until("the report of the job that ended late", async || {
            (ends("finished") == finished + 2.0).then_some(())
        })
        .await;
        wait_until("its end", async || {
            (sidecar.get(&format!("/v1/jobs/{hanging}")).status == 404).then_some(())
        })
        .await;
        let released = sidecar.get(&format!("/v1/jobs/{}", living[0])).json();
        assert_eq!(released["state"], "scheduled", "{released}");
        return;
    }
    panic!("each time the machine took too long");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_whose_acknowledgements_hang_hands_out_no_job() {
    let Halves { cluster, sidecar, of_first: hanging, of_others: living } = halves().await;
    let (hanging, done, living) = (&hanging[0], &living[0], &living[1]);
    let pop = |body: &Value| sidecar.post("/v1/queues/emails/pop", body);
    let held = [hanging, done].map(|id| hold(&sidecar, id));
    add(&sidecar, living);

    cluster.nodes[0].freeze().unwrap();
    let call = json!({"finish": held});
    let problem = pop(&call).problem(503);
    assert_eq!(problem["code"], "redis", "{problem}");
    // That of the master that answers.
    let known = problem["results"].as_array().map(|results| {
        results.iter().map(|result| (&result["id"], &result["verdict"])).collect::<Vec<_>>()
    });
    assert_eq!(known, Some(vec![(&json!(done), &json!("finished"))]), "{problem}");
    assert_eq!(sidecar.get(&format!("/v1/jobs/{living}")).json()["state"], "ready");
    // The jobs of the other masters are there for a pop that acknowledges nothing.
    let other = pop(&json!({"wait": "20s", "ttr": "10m"})).json();
    assert_eq!(other["jobs"][0]["id"], living.as_str(), "{other}");

    cluster.nodes[0].thaw().unwrap();
    cluster.whole().await.unwrap();
    let told = wait_until("the results of the same call", async || {
        Some(pop(&call)).filter(|answer| answer.status == 200)
    })
    .await
    .json();
    let verdict = told["results"][0]["verdict"].as_str().unwrap();
    assert!(["finished", "fired"].contains(&verdict), "{told}");
    assert_eq!(told["results"][1]["verdict"], "fired", "{told}");
    assert_eq!(told["jobs"], json!([]));
}
