//! `dwell show`: one job, its body on request, and no control characters for a terminal.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell::job::Target;
use dwell_connectors::Destination;
use serde_json::json;

use super::ls::Listed;
use crate::store::fixture::{FAR, MAIN, request};

#[tokio::test]
async fn an_unknown_id_exits_2_and_a_wrong_one_64() {
    let listed = Listed::new().await;
    for form in ["text", "json"] {
        let said = listed.run(&["show", "nobody", "-o", form]);
        assert_eq!((said.code, said.out.as_str()), (2, ""));
        assert!(said.err.starts_with("error: there is no job `nobody`\n"), "{}", said.err);
    }
    for wrong in [&["show"][..], &["show", ""], &["show", "a\nb"], &["show", &"x".repeat(257)]] {
        let said = listed.run(wrong);
        assert_eq!(
            (said.code, said.out.as_str(), said.err.is_empty()),
            (64, "", false),
            "{wrong:?}"
        );
    }
}

#[tokio::test]
async fn a_job_shows_its_body_only_where_it_is_asked_for() {
    let listed = Listed::new().await;
    let mut schedule = request("x", 1, FAR);
    schedule.job.body = "order 17\nü".into();
    listed.fixture.put(schedule).await;
    let said = listed.run(&["show", "x"]);
    assert_eq!((said.code, said.err.as_str(), said.out.contains("order 17")), (0, "", false));
    for line in [
        "id          x\n",
        "state       scheduled\n",
        "due         2096-10-02 07:06:40+00:00 (in ",
        "target      orders.close\n",
    ] {
        assert!(said.out.contains(line), "{line}: {}", said.out);
    }
    assert!(listed.run(&["show", "x", "--body"]).out.ends_with("\n\norder 17\nü\n"));
    let without = listed.run(&["show", "x", "-o", "json"]).object();
    assert_eq!(without.get("body_base64"), None);
    let mut with = listed.run(&["show", "x", "--body", "-o", "json"]).object();
    assert_eq!(
        with.as_object_mut().unwrap().remove("body_base64"),
        Some(json!(STANDARD.encode("order 17\nü")))
    );
    assert_eq!(with, without);
    assert_eq!(without, listed.run(&["ls", "-o", "json"]).object(), "one shape");
}

/// `run_with` refuses every output that holds a control character but a line end.
#[tokio::test]
async fn what_producers_wrote_does_not_steer_a_terminal() {
    const EVIL: &str = "a\u{1b}[2J\u{9b}31m\u{7f}\r\u{8}b";
    let listed = Listed::new().await;
    let mut schedule = request("x", 1, FAR);
    schedule.job.headers.push(EVIL, EVIL.into());
    schedule.job.key = Some(EVIL.into());
    let to = Destination::new(format!("orders.{EVIL}"));
    schedule.job.target = Target::Broker { broker: MAIN.to_owned(), to };
    schedule.job.body = format!("one{EVIL}\ntwo").into();
    listed.fixture.put(schedule).await;
    let mut binary = request("y", 2, FAR);
    binary.job.body = vec![0, 0x1b, b'[', 0xff].into();
    listed.fixture.put(binary).await;

    let shown = listed.run(&["show", "x", "--body"]).out;
    let plain = "a\\u{1b}[2J\\u{9b}31m\\u{7f}\\r\\u{8}b";
    for line in [
        format!("key         {plain}\n"),
        format!("header      {plain}: {plain}\n"),
        format!("\none{plain}\ntwo\n"),
    ] {
        assert!(shown.contains(&line), "{line}: {shown}");
    }
    assert!(listed.run(&["ls"]).out.contains("orders.a\\u{1b}[2J"));
    assert!(listed.run(&["show", "y", "--body"]).out.ends_with("\n00 1b 5b ff\n"));
    let json = listed.run(&["ls", "-o", "json"]).lines();
    assert_eq!(
        (&json[0]["key"], &json[0]["headers"][EVIL]),
        (&json!(EVIL), &json!(EVIL)),
        "as JSON it reads as it was"
    );
    assert_eq!(
        listed.run(&["show", "y", "--body", "-o", "json"]).object()["body_base64"],
        STANDARD.encode([0, 0x1b, b'[', 0xff])
    );
}
