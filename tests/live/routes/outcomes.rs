//! The outcomes of a job on each broker: retried and dead, finished by its consumer, cancelled.

use dwell_connectors::Message;
use dwell_testkit::servers::BrokerKind;
use futures_util::future::join_all;

use super::environment::{Environment, Reading, request, text, texts};

/// The verdict in a reply.
fn verdict(message: &Message) -> String {
    let json: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
    json["verdict"].as_str().unwrap().to_owned()
}

/// The verdicts that arrived, once there are so many.
pub(super) async fn verdicts(replies: &Reading, count: usize) -> Vec<String> {
    replies.until(count).await.iter().map(|(_, message)| verdict(message)).collect()
}

pub(super) async fn retries_are_numbered_and_end_among_the_dead(env: &Environment) {
    join_all(BrokerKind::ALL.map(|kind| async move {
        let dead = env.read(kind, "delay.dead").await;
        let (dying, late) = (format!("dying-{}", kind.as_str()), format!("late-{}", kind.as_str()));
        // Nothing takes messages there.
        let headers = [
            ("delay-for", "10ms"),
            ("delay-target", "out.none"),
            ("delay-id", dying.as_str()),
            ("delay-retry", "100ms,200ms"),
            ("tag", "kept"),
        ];
        env.send(kind, [request("body", &headers)]).await;
        let letter = dead.job(&dying).await;
        let name = kind.as_str();
        assert_eq!(letter.body, "body", "{name}");
        let texts = texts(&letter);
        assert_eq!(texts["delayed-attempt"], "3", "{name}: one attempt, and one for each wait");
        assert_eq!(texts["delayed-dead-reason"], "retries_exhausted", "{name}");
        assert!(!texts["delayed-last-error"].is_empty(), "{name}");
        let due_ms: i64 = texts["delayed-due"].parse().unwrap();
        assert!(
            dead.first_ms(&dying).unwrap() >= due_ms + 300,
            "{name}: both waits were waited for"
        );
        assert_eq!(texts["tag"], "kept", "{name}");

        // A destination that is made meanwhile is found by the next attempt.
        let target = format!("out.{late}");
        let headers = [
            ("delay-for", "10ms"),
            ("delay-target", target.as_str()),
            ("delay-id", late.as_str()),
            ("delay-retry", "1s,1s,1s,1s,1s,1s,1s,1s"),
        ];
        env.send(kind, [request("body", &headers)]).await;
        env.attempted(&late, 1).await;
        env.declare(kind, &target).await;
        let arrived = env.read(kind, &target).await.job(&late).await;
        let attempt: u32 = text(&arrived, "delayed-attempt").unwrap().parse().unwrap();
        assert!((2..=9).contains(&attempt), "{name}: attempt {attempt}");
    }))
    .await;
}

pub(super) async fn a_consumer_ends_its_job(env: &Environment) {
    join_all(BrokerKind::ALL.map(|kind| async move {
        let (target, replies) =
            (format!("out.confirm-{}", kind.as_str()), format!("out.words-{}", kind.as_str()));
        env.declare(kind, &target).await;
        env.declare(kind, &replies).await;
        let (arrivals, answers) = (env.read(kind, &target).await, env.read(kind, &replies).await);
        let id = format!("notify-{}", kind.as_str());
        let asked = [
            ("delay-for", "10ms"),
            ("delay-target", target.as_str()),
            ("delay-id", id.as_str()),
            ("delay-confirm", "consumer"),
            ("delay-ttr", "500ms"),
            ("delay-retry", "100ms,100ms,1h"),
        ];
        env.send(kind, [request("ring", &asked)]).await;
        // Nobody finishes: the broker does not swallow the repeats.
        let repeats = arrivals.until(3).await;
        let attempts: Vec<String> =
            repeats.iter().map(|(_, message)| text(message, "delayed-attempt").unwrap()).collect();
        assert_eq!(attempts, ["1", "2", "3"], "{}", kind.as_str());
        let due = text(&repeats[0].1, "delayed-due").unwrap();
        let word = |action: &str, due: &str| {
            let headers = [
                ("delay-action", action),
                ("delay-id", id.as_str()),
                ("delayed-due", due),
                ("delay-reply-to", replies.as_str()),
            ];
            request("", &headers)
        };
        // Of another schedule, then of this one, then once more.
        env.send(kind, [word("finish", "1"), word("finish", &due), word("finish", &due)]).await;
        assert_eq!(
            verdicts(&answers, 3).await,
            ["stale", "finished", "fired"],
            "{}",
            kind.as_str()
        );
        assert_eq!(arrivals.count(&id), 3, "{}", kind.as_str());
    }))
    .await;
}

pub(super) async fn a_cancel_has_a_verdict(env: &Environment) {
    join_all(BrokerKind::ALL.map(|kind| async move {
        let replies = format!("out.verdicts-{}", kind.as_str());
        env.declare(kind, &replies).await;
        let answers = env.read(kind, &replies).await;
        let id = format!("order-{}", kind.as_str());
        let with_reply = |headers: &[(&str, &str)]| {
            let both = [("delay-id", id.as_str()), ("delay-reply-to", replies.as_str())];
            request("body", &[headers, &both].concat())
        };
        let schedule = with_reply(&[("delay-for", "1h"), ("delay-target", "out.none")]);
        let move_it = with_reply(&[("delay-action", "reschedule"), ("delay-for", "2h")]);
        let cancel = with_reply(&[("delay-action", "cancel")]);
        env.send(kind, [schedule, move_it, cancel.clone(), cancel]).await;
        assert_eq!(
            verdicts(&answers, 4).await,
            ["added", "rescheduled", "cancelled", "not_found"],
            "{}",
            kind.as_str()
        );
    }))
    .await;
}
