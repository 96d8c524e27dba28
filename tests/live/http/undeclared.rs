//! Jobs of queues that no setting of the instance declares.

use dwell::job::Job;
use dwell::request::NewJob;

use super::sidecar::Sidecar;
use crate::commands::fixture::Fixture as Servers;
use crate::store::fixture::{FAR, Fixture, MAIN, id};
use crate::support::wait_until;

/// A list that fails is not one without queues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_that_could_not_be_listed_at_the_start_are_maintained() {
    let servers = Servers::new().await;
    let fixture = Fixture::on(&servers.redis.url(), 1, &[MAIN]).await;
    // Its end has come, and only the maintenance of queues ends it.
    let remove_at_ms = fixture.store.read_clock().await.unwrap() / 1000;
    fixture.store.jobs.note_end(&id("a"), remove_at_ms).await.unwrap();
    let job = Job { remove_at_ms: Some(remove_at_ms), ..Job::for_queue("q", "body") };
    fixture.put(NewJob::new(job, FAR).id(id("a"))).await;
    let (queues, aside) = (fixture.key("queues"), fixture.key("aside"));
    fixture.redis(&["RENAME", &queues, &aside]).await;
    fixture.redis(&["SET", &queues, "no hash"]).await;

    let redis = format!("[redis]\nnamespace = \"{}\"\nbuckets = 1\n", fixture.settings.namespace);
    let settings = servers.settings(true).replace("[redis]\n", &redis);
    let sidecar = Sidecar::run(&settings, "", &["--no-dispatch"]).await;
    wait_until("the start", async || (sidecar.get("/v1/jobs/a").status == 200).then_some(())).await;
    fixture.redis(&["RENAME", &aside, &queues]).await;
    let job = async || fixture.store.reader.find(&id("a")).await.unwrap();
    wait_until("the end of the job", async || job().await.is_none().then_some(())).await;
}
