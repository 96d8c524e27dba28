//! The dashboard on a real sidecar with a real broker.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::browser::{plain_story, story};
use super::sidecar::Sidecar;
use crate::commands::fixture::{Fixture, SECRET};
use crate::support::wait_until;

/// Schedules a job with defaults for the fields that a story leaves out.
fn schedule(sidecar: &Sidecar, mut job: Value) {
    for (name, value) in
        [("for", json!("1h")), ("target", json!("orders.close")), ("body", json!("x"))]
    {
        if job.get(name).is_none() {
            job[name] = value;
        }
    }
    let answer = sidecar.post("/v1/jobs", &job);
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// Waits until this job is in this state.
async fn reaches(sidecar: &Sidecar, id: &str, state: &str) {
    let what = format!("{id} to be {state}");
    wait_until(&what, async || {
        let job = sidecar.get(&format!("/v1/jobs/{id}"));
        (job.status == 200 && job.json()["state"] == state).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_job_is_seen_cancelled_and_gone() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    schedule(
        &sidecar,
        json!({"id": "order-17", "body": "{\"order\": 17}", "headers": {"tenant": "acme"}}),
    );
    schedule(&sidecar, json!({"id": "stays", "for": "2h"}));
    plain_story(&sidecar, "cancel", &["order-17"]).await;
    assert_eq!((sidecar.get("/v1/jobs/order-17").status, fixture.messages("ORDERS")), (404, 0));
}

#[tokio::test]
async fn a_job_is_given_another_time_and_fired() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    schedule(&sidecar, json!({"id": "late", "body": "hello"}));
    plain_story(&sidecar, "reschedule_and_fire", &["late"]).await;
    let (_, body) =
        wait_until("the job at its target", async || fixture.last("ORDERS", "orders.close")).await;
    assert_eq!(body, b"hello");
}

#[tokio::test]
async fn a_consumers_word_is_said_for_it() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    for id in ["done", "failing"] {
        schedule(
            &sidecar,
            json!({"id": id, "for": "0", "confirm": "consumer", "retry": [], "ttr": "1h"}),
        );
        wait_until("its wait for a consumer", async || {
            let job = sidecar.get(&format!("/v1/jobs/{id}"));
            (job.status == 200 && job.json()["awaiting_finish"] == true).then_some(())
        })
        .await;
    }
    plain_story(&sidecar, "finish_and_fail", &["done", "failing"]).await;
    assert_eq!(sidecar.get("/v1/jobs/failing").json()["dead_reason"], "failed");
}

#[tokio::test]
async fn lists_are_paged_and_searched() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    for number in 0..240 {
        let target = if number % 100 == 7 { "orders.rare" } else { "orders.close" };
        schedule(
            &sidecar,
            json!({"id": format!("job-{number:03}"), "for": format!("{}s", 3600 + 60 * number), "target": target}),
        );
    }
    plain_story(&sidecar, "lists", &[]).await;
}

#[tokio::test]
async fn what_producers_write_is_text_and_every_id_has_an_address() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    let ids = [
        "<img src=x onerror=alert(1)>",
        "a/b?c=d#e%2f&f",
        "\u{fc}\u{1f600} \u{202e}x",
        "..%2f..",
        "jobs/x/fire",
    ];
    for id in ids {
        let body = "</pre><script>alert(1)</script>";
        schedule(
            &sidecar,
            json!({"id": id, "body": body, "headers": {"x": "<b onclick=alert(1)>", "y": "<script>alert(1)</script>"}}),
        );
    }
    plain_story(&sidecar, "hostile", &ids).await;
}

#[tokio::test]
async fn dead_letters_tell_why_and_arrive_when_requeued() {
    let fixture = Fixture::new().await;
    let settings = fixture.settings(true).replace("orders.>\"]", "orders.>\", \"lost.>\"]");
    let sidecar = Sidecar::run(&settings, "", &[]).await;
    let ids = ["dead-1", "dead-2", "dead-3", "dead-4"];
    for id in ids {
        schedule(
            &sidecar,
            json!({"id": id, "for": "0", "target": format!("lost.{id}"), "retry": [], "body": id}),
        );
        reaches(&sidecar, id, "dead").await;
    }
    story(&sidecar, "requeue", &ids, async |word: &str| {
        assert_eq!(word, "make the stream");
        fixture.stream("LOST", &["lost.>"]);
    })
    .await;
    for id in ids {
        let (_, body) = wait_until("the job at its target", async || {
            fixture.last("LOST", &format!("lost.{id}"))
        })
        .await;
        assert_eq!(body, id.as_bytes());
    }
}

#[tokio::test]
async fn servers_that_are_away_are_told() {
    let (mut fixture, mut second) = (Fixture::new().await, Fixture::new().await);
    let broker = format!(
        "[brokers.second]\ntype = \"nats\"\nurl = \"{}\"\nallow = [\"orders.>\"]\n",
        second.nats.url()
    );
    let sidecar = Sidecar::run(&format!("{}{broker}", fixture.settings(true)), "", &[]).await;
    story(&sidecar, "servers", &[], async |word: &str| match word {
        "kill the broker" => {
            second.nats.kill().unwrap();
            schedule(&sidecar, json!({"id": "waits", "for": "0", "broker": "second"}));
        }
        "kill redis" => fixture.redis.kill().unwrap(),
        "start both" => {
            // The data of this Redis was in its memory alone.
            tokio::try_join!(fixture.redis.restart(), second.nats.restart()).unwrap();
        }
        other => panic!("{other}"),
    })
    .await;
}

#[tokio::test]
async fn a_limit_that_holds_jobs_back_is_told_with_what_is_coming() {
    let fixture = Fixture::new().await;
    let limit = "[brokers.main.limits.\"orders.slow\"]\nrate = \"1/h\"\nburst = 1\n";
    let sidecar = Sidecar::start(&fixture, limit).await;
    for id in ["first", "second", "third"] {
        schedule(&sidecar, json!({"id": id, "for": "0", "target": "orders.slow"}));
    }
    wait_until("one is delivered, and two wait", async || {
        let horizon = sidecar.get("/v1/horizon").json();
        let stats = sidecar.get("/v1/stats").json();
        let told = &horizon["limited"][0];
        assert!(told.is_null() || told["queue"].is_null(), "{horizon}");
        let words = (told["broker"].as_str(), told["pattern"].as_str(), told["waiting"].as_u64());
        (words == (Some("main"), Some("orders.slow"), Some(2))
            && told["since_ms"].is_i64()
            && horizon["limited"] == stats["limited"]
            && fixture.messages("ORDERS") == 1)
            .then_some(())
    })
    .await;
    plain_story(&sidecar, "limits", &["orders.slow", "main"]).await;
}

#[tokio::test]
async fn a_line_that_is_lost_is_told_and_found_again() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    schedule(&sidecar, json!({"id": "before", "for": "2h"}));
    let pid = Pid::from_raw(i32::try_from(sidecar.pid()).unwrap()).unwrap();
    story(&sidecar, "line", &[], async |word: &str| match word {
        "freeze" => kill_process(pid, Signal::STOP).unwrap(),
        "thaw" => kill_process(pid, Signal::CONT).unwrap(),
        "schedule another" => schedule(&sidecar, json!({"id": "another"})),
        other => panic!("{other}"),
    })
    .await;
}

#[tokio::test]
async fn a_token_is_asked_for_and_kept_in_the_tab_alone() {
    let fixture = Fixture::new().await;
    let token_file = fixture.file("token", &format!("{SECRET}\n"));
    let mut sidecar = Sidecar::start(&fixture, &format!("token_file = \"{token_file}\"\n")).await;
    sidecar.token = Some(SECRET.to_owned());
    schedule(&sidecar, json!({"id": "secret-job"}));
    plain_story(&sidecar, "token", &[SECRET]).await;
    assert!(!sidecar.log().contains(SECRET));
}

#[tokio::test]
async fn everything_can_be_done_with_a_keyboard() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    schedule(&sidecar, json!({"id": "order-17"}));
    plain_story(&sidecar, "keyboard", &["order-17"]).await;
    assert_eq!(sidecar.get("/v1/jobs/order-17").status, 404);
}

#[tokio::test]
async fn every_page_is_accessible_in_either_theme_and_on_a_phone() {
    let fixture = Fixture::new().await;
    let settings = fixture.settings(true).replace("orders.>\"]", "orders.>\", \"lost.>\"]");
    let sidecar = Sidecar::run(&format!("{settings}[queues.\"q*\"]\n"), "", &[]).await;
    let long = "i".repeat(200);
    schedule(
        &sidecar,
        json!({"id": &long, "for": "5m", "target": format!("orders.{}", "t".repeat(180)), "headers": {"h": "v".repeat(500)}}),
    );
    schedule(
        &sidecar,
        json!({"id": "dead", "for": "0", "target": format!("lost.{}", "t".repeat(100)), "retry": []}),
    );
    reaches(&sidecar, "dead", "dead").await;
    let queue = "q".repeat(200);
    for (id, body) in [("one", "w".repeat(500)), ("two", "two words".repeat(50))] {
        schedule(
            &sidecar,
            json!({"id": id, "for": "0", "target": null, "queue": &queue, "body": body}),
        );
    }
    let recurring = "s".repeat(200);
    let answer = sidecar.call(
        &format!("PUT /v1/schedules/{recurring}"),
        Some(&json!({"schedule": "0 9 * * *", "time_zone": "Asia/Tokyo", "queue": &queue, "headers": {"h": "v".repeat(500)}})),
    );
    assert_eq!(answer.status, 201, "{answer:?}");
    let reason = json!({"reason": "r".repeat(500)});
    let answer = sidecar.post(&format!("/v1/schedules/{recurring}/pause"), &reason);
    assert_eq!(answer.status, 200, "{answer:?}");
    plain_story(&sidecar, "everywhere", &[&long, "dead", &queue, &recurring]).await;
}

#[tokio::test]
async fn a_theme_follows_the_system_until_one_is_chosen() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    plain_story(&sidecar, "themes", &[]).await;
}

#[tokio::test]
async fn its_files_are_served_to_whoever_asks_and_bring_their_guards() {
    let fixture = Fixture::new().await;
    let token_file = fixture.file("token", SECRET);
    let sidecar = Sidecar::start(&fixture, &format!("token_file = \"{token_file}\"\n")).await;
    for (path, kind) in [
        ("/", "text/html"),
        ("/assets/main.js", "text/javascript"),
        ("/assets/base.css", "text/css"),
    ] {
        let answer = sidecar.get(path);
        assert_eq!(answer.status, 200, "{answer:?}");
        for line in [
            &*format!("content-type: {kind}; charset=utf-8"),
            "cache-control: no-cache",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cross-origin-opener-policy: same-origin",
        ] {
            assert!(answer.head.contains(&format!("\r\n{line}\r\n")), "{line}: {}", answer.head);
        }
        let policy =
            answer.head.split_once("content-security-policy: ").unwrap().1.lines().next().unwrap();
        let wanted = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";
        // The page's own script and style, by their hashes.
        let (hashes, rest): (Vec<_>, Vec<_>) =
            policy.split(' ').partition(|word| word.starts_with("'sha256-"));
        assert!(rest.join(" ").starts_with(wanted) && !policy.contains("unsafe"), "{policy}");
        assert_eq!(hashes.len(), if path == "/" { 3 } else { 0 }, "{policy}");
        let tag = answer.head.split_once("etag: ").unwrap().1.lines().next().unwrap();
        let again = sidecar.send(&format!("GET {path}"), &format!("if-none-match: {tag}\r\n"), b"");
        assert_eq!((again.status, &*again.text), (304, ""), "{again:?}");
    }
    for path in ["/assets/nothing.js", "/assets/vendor/README.md", "/assets/%2e%2e/api.rs"] {
        sidecar.get(path).problem(404);
    }
    sidecar.get("/v1/stats").problem(401);
}
