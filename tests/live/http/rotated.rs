//! Secrets that change while a sidecar runs: it reads their files again.

use std::path::PathBuf;

use dwell_testkit::servers::{AppendFsync, RedisCluster, RedisOptions, RedisSentinel, RedisServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::sidecar::Sidecar;
use crate::support::wait_until;

const OLD: &str = "first-7d1f";
const NEW: &str = "second-9c42";

/// A sidecar with a queue, and the files of its secrets.
struct Story {
    folder: TempDir,
    sidecar: Sidecar,
}

impl Story {
    /// `redis`: lines of `[redis]`, where `FOLDER` stands for the folder of the files.
    async fn start(files: &[(&str, String)], redis: &str) -> Story {
        let folder = TempDir::new().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let redis = redis.replace("FOLDER", folder.path().to_str().unwrap());
        let sidecar = Sidecar::run(
            &format!(
                "[redis]\nurls_file = \"{}/urls\"\n{redis}\n[queues.q]\n",
                folder.path().display()
            ),
            "",
            &[],
        )
        .await;
        let story = Story { folder, sidecar };
        assert_eq!(story.schedule(), 201);
        story
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Stores a job, behind the durability gate, and returns the status. A refusal is one by Redis.
    fn schedule(&self) -> u16 {
        let answer =
            self.sidecar.post("/v1/jobs", &json!({"queue": "q", "for": "1h", "body": "x"}));
        if answer.status != 201 {
            assert_eq!(answer.problem(503)["code"], "redis", "{answer:?}");
            assert!(answer.head.contains("\r\nretry-after: "), "{answer:?}");
        }
        answer.status
    }

    /// Returns the report of `/readyz` on Redis. The sidecar stays ready.
    fn detail(&self) -> Value {
        let answer = self.sidecar.probe("/readyz");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<Value>(body).unwrap()["detail"]["redis"].clone()
    }

    async fn until_refused(&self) {
        wait_until("redis refuses", async || {
            (self.schedule() == 503 && self.detail().is_string()).then_some(())
        })
        .await;
        let listed = self.sidecar.get("/v1/jobs");
        assert_eq!(
            (listed.status, &listed.problem(503)["code"]),
            (503, &json!("redis")),
            "{listed:?}"
        );
    }

    async fn until_accepted(&self) {
        wait_until("redis accepts", async || {
            (self.schedule() == 201 && self.detail().is_null()).then_some(())
        })
        .await;
        let warnings =
            || self.sidecar.log_lines().into_iter().filter(|line| line["level"] == "WARN");
        let told = warnings()
            .filter(|line| line["message"] == "redis refuses the login, trying again")
            .inspect(|line| assert_ne!(line["hint"], "", "{line}"))
            .count();
        let all: Vec<Value> =
            warnings().filter(|line| line.to_string().contains("uthentication")).collect();
        assert_eq!((told, all.len()), (1, 1), "{all:?}");
        assert!(![OLD, NEW].iter().any(|secret| self.sidecar.log().contains(secret)));
    }
}

fn renewed(urls: &[String]) -> String {
    urls.iter().map(|url| format!("{}\n", url.replace(OLD, NEW))).collect()
}

fn guarded() -> RedisOptions {
    RedisOptions { password: Some(OLD.to_owned()), ..RedisOptions::default() }
}

async fn listens(server: &RedisServer) {
    let subscribed = async || {
        let clients = server.order(&["CLIENT", "LIST", "TYPE", "pubsub"]).await.ok()?;
        clients.iter().any(|client| client.contains("sub=1")).then_some(())
    };
    wait_until("a subscription", subscribed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_password_needs_no_restart() {
    let mut server =
        RedisServer::start(RedisOptions { appendonly: Some(AppendFsync::Always), ..guarded() })
            .await
            .unwrap();
    let story = Story::start(&[("urls", server.url())], "durability = \"fsync\"").await;
    listens(&server).await;
    server.rotate(NEW).await.unwrap();
    story.until_refused().await;
    std::fs::write(story.file("urls"), server.url()).unwrap();
    story.until_accepted().await;
    listens(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_its_file_has_in_time_is_never_refused() {
    let mut server = RedisServer::start(guarded()).await.unwrap();
    let story = Story::start(&[("urls", server.url())], "").await;
    std::fs::write(story.file("urls"), server.url().replace(OLD, NEW)).unwrap();
    server.rotate(NEW).await.unwrap();
    for _ in 0..20 {
        assert_eq!(story.schedule(), 201);
    }
    assert!(!story.sidecar.log().contains("refuses the login"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rotated_password_of_a_cluster_needs_no_restart() {
    let mut cluster = RedisCluster::start(guarded()).await.unwrap();
    let urls = cluster.urls();
    let story =
        Story::start(&[("urls", urls.join("\n"))], "mode = \"cluster\"\ndurability = \"replica\"")
            .await;
    for node in &mut cluster.nodes {
        node.rotate(NEW).await.unwrap();
    }
    story.until_refused().await;
    std::fs::write(story.file("urls"), renewed(&urls)).unwrap();
    story.until_accepted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotated_passwords_of_sentinels_and_their_master_need_no_restart() {
    let (old, new) = ("sentinels-1", "sentinels-2");
    let mut sentinel = RedisSentinel::guarded(guarded(), old).await.unwrap();
    let urls = sentinel.urls();
    let lines = "mode = \"sentinel\"\nsentinel_password_file = \"FOLDER/sentinel\"";
    let story =
        Story::start(&[("urls", urls.join("\n")), ("sentinel", old.to_owned())], lines).await;
    sentinel.rotate(NEW, new).await.unwrap();
    story.until_refused().await;
    std::fs::write(story.file("sentinel"), new).unwrap();
    story.until_refused().await;
    std::fs::write(story.file("urls"), renewed(&urls)).unwrap();
    story.until_accepted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_follow_their_files() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name);
    for name in ["master", "shop"] {
        std::fs::write(file(name), format!("old-{name}")).unwrap();
    }
    let http = format!(
        "token_file = {:?}\n[http.tokens.shop]\ntoken_file = {:?}\nmay = [\"read\"]\n",
        file("master"),
        file("shop")
    );
    let sidecar =
        Sidecar::run(&format!("[redis]\nurls = [\"{}\"]\n[queues.q]\n", server.url()), &http, &[])
            .await;
    let status = |token: &str| {
        sidecar.send("GET /v1/stats", &format!("authorization: Bearer {token}\r\n"), b"").status
    };
    for name in ["master", "shop"] {
        assert_eq!((status(&format!("old-{name}")), status(&format!("new-{name}"))), (200, 401));
        std::fs::write(file(name), format!("new-{name}\n")).unwrap();
        let renewed = async || {
            ((status(&format!("old-{name}")), status(&format!("new-{name}"))) == (401, 200))
                .then_some(())
        };
        wait_until("the new token counts alone", renewed).await;
    }
    // The text of another token, and an empty file, change nothing.
    for text in ["new-master", ""] {
        std::fs::write(file("shop"), text).unwrap();
        let told = || sidecar.log().matches("the secret cannot be read again").count() > 0;
        wait_until("the former token stays", async || {
            (told() && status("new-shop") == 200).then_some(())
        })
        .await;
    }
}
