//! Consumers that wait at the listeners of `[compat]`: their cost, and their answers.

use dwell::config::Redis;
use dwell::job::{Due, Job};
use dwell::request::NewJob;
use dwell::store::jobs::claim::MAX_CLAIM_AHEAD;
use dwell::store::jobs::pop::PopLimits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::listeners::{Listeners, call};
use crate::store::fixture::{self, open};
use crate::support::{DEADLINE, wait_until};

const QUEUE: &str = "client-ns.waits";
const SETTINGS: &str = "[queues.\"client-ns.waits\"]\n";
/// The call of each protocol that waits for a job of the queue, and its body.
const DELAY_QUEUE: (&str, &str) = ("POST /pop", r#"{"topic":"client-ns.waits"}"#);
const CLASSIC: (&str, &str) = ("POST /", r#"{"command":"pop","topic":"client-ns.waits"}"#);
const LMSTFY: (&str, &str) = ("GET /api/client-ns/waits?ttr=60&timeout=60", "");

/// A connection with a call that is not answered yet.
async fn ask(server: &str, (line, body): (&str, &str)) -> TcpStream {
    let address = server.strip_prefix("http://").unwrap();
    let mut link = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: {address}\r\nx-request-id: mine\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    link.write_all(head.as_bytes()).await.unwrap();
    link
}

/// The status and the JSON of the answer on this connection, which stays.
async fn answer(link: &mut TcpStream) -> (u16, Value) {
    let mut text = String::new();
    let read = async {
        loop {
            let mut bytes = [0; 4096];
            let count = link.read(&mut bytes).await.unwrap();
            assert!(count > 0, "no whole answer: {text}");
            text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
            let whole = text
                .split_once("\r\n\r\n")
                .and_then(|(head, body)| Some((head, serde_json::from_str(body).ok()?)));
            if let Some((head, body)) = whole {
                assert!(head.to_lowercase().contains("\r\nx-request-id: mine"), "{head}");
                return (head.split(' ').nth(1).unwrap().parse().unwrap(), body);
            }
        }
    };
    tokio::time::timeout(DEADLINE, read).await.unwrap()
}

async fn push(dwell: &Listeners, id: &str) {
    let job = json!({"topic": QUEUE, "id": id, "delay": 1, "ttr": 3600, "body": "x"}).to_string();
    assert_eq!(call(&dwell.delay_queue, "POST /push", "", job.as_bytes()).await.json()["code"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_that_wait_cost_little_memory() {
    const WAITING_POPS: usize = 400;
    const MAX_BYTES_PER_POP: u64 = 10 << 10;
    let dwell = Listeners::start(SETTINGS).await;
    for (server, asked) in [(&dwell.delay_queue, DELAY_QUEUE), (&dwell.lmstfy, LMSTFY)] {
        let mut links = Vec::new();
        // The first calls cost memory once.
        for _ in 0..10 {
            links.push(ask(server, asked).await);
        }
        dwell.until_waiting(QUEUE, links.len()).await;
        let before = dwell.resident();
        for _ in 0..WAITING_POPS {
            links.push(ask(server, asked).await);
        }
        dwell.until_waiting(QUEUE, links.len()).await;
        // The memory that the calls used before they waited goes back to the system later.
        wait_until("little memory", async || {
            (dwell.resident() < before + WAITING_POPS as u64 * MAX_BYTES_PER_POP).then_some(())
        })
        .await;
        drop(links);
        dwell.until_waiting(QUEUE, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_gets_a_job_or_hangs_up_or_is_told_of_the_end() {
    let dwell = Listeners::start(SETTINGS).await;
    let ends = [
        (&dwell.delay_queue, DELAY_QUEUE, json!({"code": 0, "message": "ok", "data": null})),
        (&dwell.delay_queue, CLASSIC, json!({"success": true, "error": "", "id": "", "value": ""})),
        (&dwell.lmstfy, LMSTFY, json!({"msg": "no job available"})),
    ];
    let mut links = Vec::new();
    for (number, (server, asked, _)) in ends.iter().enumerate() {
        let gone = ask(server, *asked).await;
        dwell.until_waiting(QUEUE, 1).await;
        drop(gone);
        dwell.until_waiting(QUEUE, 0).await;
        let mut link = ask(server, *asked).await;
        dwell.until_waiting(QUEUE, 1).await;
        let id = format!("job-{number}");
        push(&dwell, &id).await;
        let (status, got) = answer(&mut link).await;
        assert!(status == 200 && got.to_string().contains(&id), "{got}");
        links.push(link);
    }
    let [finish, delete] =
        [("/finish", json!({"id": "job-0"})), ("/", json!({"command": "delete", "id": "job-1"}))];
    for (path, body) in [finish, delete] {
        assert_eq!(
            call(&dwell.delay_queue, &format!("POST {path}"), "", body.to_string().as_bytes())
                .await
                .status,
            200
        );
    }
    assert_eq!(
        call(&dwell.lmstfy, "DELETE /api/client-ns/waits/job/job-2", "", b"").await.status,
        204
    );
    // The line of a later call: those before are in the log too.
    let last =
        json!({"topic": "another", "id": "last", "delay": 60, "ttr": 1, "body": "x"}).to_string();
    assert_eq!(
        call(&dwell.delay_queue, "POST /push", "x-request-id: the-last\r\n", last.as_bytes())
            .await
            .status,
        200
    );
    let log = wait_until("the last line", async || {
        Some(dwell.log()).filter(|log| log.contains("the-last"))
    })
    .await;
    let calls: Vec<&str> = log.lines().filter(|line| line.contains("\"request\"")).collect();
    assert!(
        calls.iter().all(|line| line.contains("\"/push\"")),
        "consumers call all the time: {calls:#?}"
    );
    // The connections stay, for a call that waits until the instance stops.
    for (number, (link, (server, (line, body), _))) in links.iter_mut().zip(&ends).enumerate() {
        let host = server.strip_prefix("http://").unwrap();
        let head = format!(
            "{line} HTTP/1.1\r\nhost: {host}\r\nx-request-id: mine\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        link.write_all(head.as_bytes()).await.unwrap();
        dwell.until_waiting(QUEUE, number + 1).await;
    }
    let wanted = ends.map(|(.., wanted)| wanted);
    dwell.stop().await;
    for (mut link, wanted) in links.into_iter().zip(wanted) {
        assert_eq!(answer(&mut link).await.1, wanted);
    }
}

/// Another instance has taken the job for a consumer that waits, and hands it out at its due time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_is_answered_once_its_job_was_handed_out() {
    let dwell = Listeners::start(SETTINGS).await;
    let other = open(&Redis::new(dwell.redis.url()), &[]).await;
    let limits = [PopLimits {
        ttr_ms: Some(60_000),
        max_ttr_ms: 60_000,
        most: 1,
        most_bytes: 1 << 20,
        room: None,
    }];
    let classic = json!({"command": "delete", "id": "classic"}).to_string();
    for (id, server, line, body) in [
        ("new", &dwell.delay_queue, "POST /finish", json!({"id": "new"}).to_string()),
        ("classic", &dwell.delay_queue, "POST /", classic),
        ("lmstfy", &dwell.lmstfy, "DELETE /api/client-ns/waits/job/lmstfy", String::new()),
    ] {
        let job = NewJob::new(Job::for_queue(QUEUE, "x"), Due::In(50)).id(fixture::id(id));
        other.jobs.schedule(&[job]).await.unwrap();
        let bucket = other.keys().bucket_of(id);
        let job = loop {
            let (queue, nonce) = (&other.jobs, rand::random());
            let answer = queue.pop_for(nonce, bucket, QUEUE, &limits, MAX_CLAIM_AHEAD).await;
            if let Some(job) = answer.unwrap().jobs.pop() {
                break job;
            }
        };
        let status = call(server, line, "", body.as_bytes()).await.status;
        assert!(status == 200 || status == 204, "{id}: {status}");
        assert!(other.read_clock().await.unwrap() >= 1000 * job.due_ms(), "{id}");
        assert!(other.reader.find(&job.id).await.unwrap().is_none(), "{id}");
    }
}
