//! `dwell schedule`, `dwell schedules`, and the actions on recurring schedules, without a sidecar.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::fixture::{Said, run_with};
use crate::store::fixture::{FAR, Fixture, request};

/// A namespace, and settings for it. Their broker is never asked.
struct Commands {
    fixture: Fixture,
    folder: TempDir,
}

impl Commands {
    async fn new() -> Commands {
        let (fixture, folder) = (Fixture::new().await, TempDir::new().unwrap());
        let text = format!(
            "[redis]\nurls = [\"{}\"]\nnamespace = \"{}\"\n[limits]\nmax_delay = \"36500d\"\n\
             [queues.\"*\"]\nretry = [\"1h\"]\n[queues.small]\nmax_jobs = 1\n[brokers.main]\ntype = \"nats\"\n\
             url = \"nats://127.0.0.1:1\"\nallow = [\"orders.>\"]\n",
            fixture.settings.urls[0], fixture.settings.namespace
        );
        std::fs::write(folder.path().join("dwell.toml"), text).unwrap();
        Commands { fixture, folder }
    }

    fn run_with(&self, arguments: &[&str], stdin: &[u8]) -> Said {
        let config = self.folder.path().join("dwell.toml");
        run_with(&[&["-c", config.to_str().unwrap()], arguments].concat(), stdin)
    }

    fn run(&self, arguments: &[&str]) -> Said {
        self.run_with(arguments, b"")
    }

    /// The one object that a command prints.
    #[track_caller]
    fn object(&self, arguments: &[&str]) -> Value {
        let said = self.run(&[arguments, &["-o", "json"]].concat());
        assert_eq!(said.code, 0, "{arguments:?}: {}", said.err);
        said.object()
    }

    /// The ids that `dwell schedules` lists.
    fn ids(&self, flags: &[&str]) -> Vec<String> {
        let said = self.run(&[&["schedules", "-o", "json"], flags].concat());
        assert_eq!(said.code, 0, "{flags:?}: {}", said.err);
        said.lines().iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn a_schedule_is_stored_by_the_rules_of_the_settings_and_shown() {
    let commands = Commands::new().await;
    let cron = ["--cron", "0 9 * * *", "--zone", "Europe/Berlin", "--start", "2090-03-01T00:00:00"];
    let job = ["--target", "orders.report", "--header", "tag=t", "--retry", "1s,2s", "--ttr", "9s"];
    let late = ["--spread", "5m", "--late", "drop", "--max-late", "1h", "--expire", "2h"];
    let more = ["--count", "30", "--catch-up", "all", "--overlap", "skip", "-", "-o", "json"];
    let said = commands.run_with(
        &[&["schedule", "report"], &cron[..], &job, &late, &more].concat(),
        b"from stdin",
    );
    assert_eq!(said.code, 0, "{}", said.err);
    let stored = said.object();
    let shown = [
        ("id", json!("report")),
        ("schedule", json!("0 9 * * *")),
        ("time_zone", json!("Europe/Berlin")),
        ("start", json!("2090-02-28T23:00:00.000Z")),
        ("end", Value::Null),
        ("count", json!(30)),
        ("catch_up", json!("all")),
        ("overlap", json!("skip")),
        ("broker", json!("main")),
        ("target", json!("orders.report")),
        ("headers", json!({"tag": "t"})),
        ("retry", json!(["1s", "2s"])),
        ("ttr_ms", json!(9_000)),
        ("spread_ms", json!(300_000)),
        ("late", json!("drop")),
        ("max_late_ms", json!(3_600_000)),
        ("expire_ms", json!(7_200_000)),
        ("size", json!(10)),
    ];
    for (name, value) in shown {
        assert_eq!(stored[name], value, "{name}: {stored}");
    }
    // 09:00 in Berlin on the day on which the clocks change.
    let from = ["--next", "1", "--from", "2090-03-25T08:00:00Z"];
    let next = commands.object(&[&["schedule", "report"], &from[..]].concat())["next"].clone();
    assert_eq!(next, json!([3_794_194_800_000_i64]));

    let text = commands.run(&["schedule", "report", "--next", "0"]).out;
    for line in ["id          report\n", "state       active\n", "header      tag: t"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let again = commands.run(&["schedule", "s", "--every", "90m", "--queue", "emails", "--paused"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(again.out.starts_with("s: added\nid          s\n"), "{}", again.out);
    let again = commands.run(&["schedule", "s", "--every", "90m", "--queue", "emails"]);
    assert!(again.out.starts_with("s: duplicate\n"), "{}", again.out);
    let shown = commands.object(&["schedule", "s"]);
    assert_eq!((&shown["schedule"], &shown["paused"]), (&json!("@every 90m"), &json!(true)));
}

#[tokio::test]
async fn a_schedule_is_paused_resumed_fired_and_ended() {
    let commands = Commands::new().await;
    commands.object(&["schedule", "s", "--cron", "@yearly", "--queue", "emails", "text"]);
    let paused = commands.object(&["schedule", "s", "--pause", "--reason", "holiday"]);
    assert_eq!((&paused["paused"], &paused["reason"]), (&json!(true), &json!("holiday")));
    let text = commands.run(&["schedule", "s"]).out;
    assert!(text.contains("\nstate       paused: holiday\n"), "{text}");
    assert_eq!(commands.object(&["schedule", "s", "--resume"])["paused"], false);

    let fired = commands.object(&["fire", "s"]);
    assert_eq!((&fired["verdict"], &fired["id"]), (&json!("firing"), &json!("s")));
    let id = format!("s@{:013}", fired["due_ms"].as_i64().unwrap());
    let job = commands.object(&["show", &id, "--body"]);
    assert_eq!((&job["queue"], &job["size"]), (&json!("emails"), &json!(4)), "{job}");
    let shown = commands.run(&["show", "s"]);
    assert_eq!(shown.code, 2, "{shown:?}");
    assert!(shown.err.contains("dwell schedule"), "{shown:?}");
    let waiting = commands.run(&["reschedule", "s", "--for", "1h"]);
    assert_eq!(waiting.code, 2, "{waiting:?}");
    assert!(waiting.out.contains("waiting") && waiting.out.contains("recurring"), "{waiting:?}");
    let ended = commands.run(&["cancel", "s"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(ended.out, "s: cancelled: the schedule is ended; occurrences that retry go on\n");
    assert_eq!(commands.run(&["show", &id]).code, 2, "the newest occurrence went with it");
    for arguments in [
        &["schedule", "s"][..],
        &["schedule", "s", "--pause"],
        &["schedule", "s", "--resume"],
        &["cancel", "s"],
        &["fire", "s"],
    ] {
        assert_eq!(commands.run(arguments).code, 2, "{arguments:?}");
    }
}

#[tokio::test]
async fn an_action_tells_why_a_schedule_cannot_be_looked_up() {
    let commands = Commands::new().await;
    commands.object(&["schedule", "s", "--cron", "@yearly", "--queue", "emails"]);
    let key = commands.fixture.key("schedules");
    commands.fixture.redis(&["HSET", &key, "s", "\x02 of a later version"]).await;
    let fired = commands.run(&["fire", "s"]);
    assert_eq!((fired.code, fired.out.as_str()), (1, ""), "{}", fired.err);
    let why = "recurring schedule `s`: unreadable record: version 2 ";
    assert!(
        fired.err.starts_with("error: unreadable_job: ") && fired.err.contains(why),
        "{fired:?}"
    );
    let moved = commands.run(&["reschedule", "s", "--for", "1h"]);
    let begin = "whether s is a recurring schedule is not known: ";
    assert!(moved.err.starts_with(begin) && moved.err.contains(why), "{moved:?}");
}

#[tokio::test]
async fn a_full_queue_takes_no_occurrence() {
    let commands = Commands::new().await;
    commands.object(&["schedule", "s", "--cron", "@yearly", "--queue", "small"]);
    commands.object(&["fire", "s"]);
    let refused = commands.run(&["fire", "s"]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{}", refused.err);
    assert!(refused.err.contains("queue_full"), "{}", refused.err);
    assert_eq!(commands.object(&["schedule", "s"])["occurrence"], 1);
}

#[tokio::test]
async fn schedules_are_listed_by_id() {
    let commands = Commands::new().await;
    assert_eq!(commands.run(&["schedules"]).out, "no recurring schedules\n");
    for id in ["report-b", "sweep", "report-a"] {
        commands.object(&["schedule", id, "--cron", "@yearly", "--queue", "emails"]);
    }
    commands.object(&["schedule", "sweep", "--pause"]);
    assert_eq!(commands.ids(&[]), ["report-a", "report-b", "sweep"]);
    assert_eq!(commands.ids(&["--q", "report"]), ["report-a", "report-b"]);
    assert_eq!(commands.ids(&["--paused"]), ["sweep"]);
    assert_eq!(commands.ids(&["--limit", "2"]), ["report-a", "report-b"]);
    let text = commands.run(&["schedules", "--limit", "2"]).out;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("ID") && lines[1].starts_with("report-a"), "{text}");
    assert_eq!(lines.last(), Some(&"the first 2; more with --limit"), "{text}");
    let listed = commands.run(&["schedules", "--paused", "-o", "json"]).object();
    assert_eq!(listed, commands.object(&["schedule", "sweep"]), "one shape");
}

#[tokio::test]
async fn a_preview_needs_neither_settings_nor_servers() {
    let flags = ["schedule", "--cron", "0 9 * * *", "--zone", "Europe/Berlin", "--next", "2"];
    let from = ["--from", "2090-03-25T00:00:00Z", "-o", "json"];
    let said = run_with(&[&flags[..], &from].concat(), b"");
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(said.object(), json!({"next": [3_794_112_000_000_i64, 3_794_194_800_000_i64]}));
    let local = ["--from", "2090-03-25T01:00:00", "-o", "json"];
    assert_eq!(run_with(&[&flags[..], &local].concat(), b"").object(), said.object());
    let text = run_with(&["schedule", "--every", "1h", "--next", "3"], b"").out;
    assert_eq!(text.lines().count(), 3, "{text}");
    for (arguments, says) in [
        (&["schedule", "--cron", "nonsense"][..], "bad_schedule"),
        (&["schedule", "--every", "1ms"], "bad_schedule"),
        (&["schedule", "--every", "1h", "--zone", "UTC"], "bad_schedule"),
        (&["schedule", "--cron", "@daily", "--end", "2020-01-01T00:00:00Z"], "bad_schedule"),
        (&["schedule", "--cron", "@daily", "--next", "1001"], "1001"),
        (&["schedule", "--cron", "@daily", "--from", "2090-03-25T01:00:00"], "offset"),
        (&["schedule"], "ID"),
    ] {
        let said = run_with(arguments, b"");
        assert_eq!((said.code, said.out.as_str()), (64, ""), "{arguments:?}: {}", said.err);
        assert!(said.err.contains(says), "{arguments:?}: {}", said.err);
    }
}

#[tokio::test]
async fn what_cannot_be_stored_exits_before_anything_changes() {
    let commands = Commands::new().await;
    commands.fixture.put(request("j", 1, FAR)).await;
    commands.object(&["schedule", "s", "--cron", "@yearly", "--queue", "emails"]);
    let before = commands.fixture.dump().await;
    for (arguments, code, says) in [
        (&["schedule", "x", "--cron", "nonsense", "--queue", "q"][..], 64, "bad_schedule"),
        (&["schedule", "x", "--cron", "@daily"], 64, "missing_target"),
        (&["schedule", "x", "--cron", "@daily", "--target", "secret.x"], 64, "target_not_allowed"),
        (&["schedule", "x@1234567890123", "--cron", "@daily", "--queue", "q"], 64, "bad_id"),
        (&["schedule", "x", "--cron", "@daily", "--queue", "q", "--count", "0"], 64, "count"),
        (&["schedule", "x", "--queue", "q"], 64, "--cron"),
    ] {
        let said = commands.run(arguments);
        assert_eq!((said.code, said.out.as_str()), (code, ""), "{arguments:?}: {}", said.err);
        assert!(said.err.contains(says), "{arguments:?}: {}", said.err);
    }
    assert_eq!(commands.fixture.dump().await, before);
    // A conflict changes nothing but what is remembered of the requests.
    for arguments in [
        &["schedule", "j", "--cron", "@daily", "--queue", "q"][..],
        &["schedule", "s", "--cron", "@daily", "--queue", "q", "--on-conflict", "reject"],
    ] {
        let said = commands.run(arguments);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{arguments:?}: {}", said.err);
        assert!(said.err.contains("conflict"), "{arguments:?}: {}", said.err);
    }
}

#[tokio::test]
async fn a_job_gets_a_local_time() {
    let commands = Commands::new().await;
    commands.fixture.put(request("j", 1, FAR)).await;
    let until = ["--until", "2090-03-26T09:00:00"];
    let zone = ["--zone", "Europe/Berlin"];
    let verdict = commands.object(&[&["reschedule", "j"], &until[..], &zone].concat());
    assert_eq!(verdict["due_ms"], 3_794_194_800_000_i64);
    for (flags, says) in [
        (until.to_vec(), "offset"),
        ([&until[..], &["--zone", "Mars/Olympus"]].concat(), "bad_delay"),
        ([&["--for", "1h"][..], &zone].concat(), "delay-until"),
    ] {
        let said = commands.run(&[&["reschedule", "j"], &flags[..]].concat());
        assert_eq!((said.code, said.out.as_str()), (64, ""), "{flags:?}: {}", said.err);
        assert!(said.err.contains(says), "{flags:?}: {}", said.err);
    }
}
