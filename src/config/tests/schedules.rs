//! Recurring schedules of the settings: what they say, and their mistakes.

use super::*;

/// The settings of a queue, and these lines.
fn with_queue(text: &str) -> Given {
    Given::least(&format!("[queues.q]\n{text}"))
}

#[test]
fn a_schedule_has_the_fields_of_a_request() {
    let text = r#"
[schedules.nightly]
schedule = "0 3 * * *"
time_zone = "Europe/Berlin"
start = "2027-01-01T00:00:00"
end = "2028-01-01T00:00:00Z"
count = 12
catch_up = "all"
overlap = "skip"
spread = "10m"
paused = true
target = "orders.report"
broker = "main"
headers = { kind = "nightly", tries = 3 }
ttr = "90s"
retry = []
confirm = "consumer"
late = "drop"
max_late = "1h"
expire = "1d"
body = "{}"

[schedules."every ten.seconds"]
schedule = "@every 10s"
queue = "q"
retry = ["1s", "1m"]
body_base64 = "AAE="
"#;
    let settings = with_queue(text).settings();
    let names: Vec<&str> = settings.schedules.keys().map(String::as_str).collect();
    assert_eq!(names, ["every ten.seconds", "nightly"]);
    let fields = |name: &str| -> Vec<String> {
        let fields = settings.schedules[name].fields();
        fields.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    };
    assert_eq!(
        fields("nightly"),
        [
            "schedule=0 3 * * *",
            "time-zone=Europe/Berlin",
            "start=2027-01-01T00:00:00",
            "end=2028-01-01T00:00:00Z",
            "count=12",
            "catch-up=all",
            "overlap=skip",
            "spread=10m",
            "target=orders.report",
            "broker=main",
            "ttr=1m30s",
            "retry=none",
            "confirm=consumer",
            "late=drop",
            "max-late=1h",
            "expire=1d",
        ]
    );
    assert_eq!(
        fields("every ten.seconds"),
        ["schedule=@every 10s", "queue=q", "retry=1s,1m"].map(str::to_owned)
    );

    let rules = crate::request::RequestRules::direct(&settings);
    let request = |name: &str| {
        crate::request::declared_schedule(name, &settings.schedules[name], &rules, 0).unwrap()
    };
    let nightly = request("nightly");
    assert!(nightly.is_paused && nightly.from_settings, "{nightly:?}");
    assert_eq!((nightly.id.as_str(), &nightly.job.body[..]), ("nightly", &b"{}"[..]));
    assert_eq!((nightly.job.headers.iter().count(), nightly.job.retry), (2, Some(Vec::new())));
    let often = request("every ten.seconds");
    assert!(!often.is_paused);
    assert_eq!((often.job.queue(), &often.job.body[..]), (Some("q"), &[0, 1][..]));
}

#[test]
fn variables_and_flags_set_schedules_too() {
    let given = with_queue("[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"")
        .env("DWELL_SCHEDULES__A__TIME_ZONE", "Asia/Tokyo")
        .env("DWELL_SCHEDULES__B__SCHEDULE", "@hourly")
        .env("DWELL_SCHEDULES__B__QUEUE", "q")
        .set("schedules.a.count", "3");
    let schedules = given.settings().schedules;
    assert_eq!(
        (schedules["a"].time_zone.as_deref(), schedules["a"].count),
        (Some("Asia/Tokyo"), Some(3))
    );
    assert_eq!(schedules["b"].schedule, "@hourly");
}

#[test]
fn each_mistake_of_a_schedule_is_told() {
    let long = "a".repeat(241);
    for (text, key, part) in [
        ("[schedules.a]\nqueue = \"q\"", "schedules.a.schedule", "missing"),
        ("[schedules.a]\nschedule = \"0 3 * *\"\nqueue = \"q\"", "schedules.a.schedule", ""),
        ("[schedules.a]\nschedule = 3\nqueue = \"q\"", "schedules.a.schedule", "text"),
        (
            "[schedules.a]\nschedule = \"0 0 30 2 *\"\nqueue = \"q\"",
            "schedules.a.schedule",
            "never fires",
        ),
        (
            "[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"\ntime_zone = \"Mars\"",
            "schedules.a.time_zone",
            "`Mars`",
        ),
        (
            "[schedules.a]\nschedule = \"@every 1h\"\nqueue = \"q\"\ntime_zone = \"Asia/Tokyo\"",
            "schedules.a",
            "",
        ),
        (
            "[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"\nstart = \"soon\"",
            "schedules.a.start",
            "soon",
        ),
        (
            "[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"\ncount = 0",
            "schedules.a.count",
            "a number from 1",
        ),
        (
            "[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"\ncatch_up = \"al\"",
            "schedules.a.catch_up",
            "did you mean \"all\"?",
        ),
        (
            "[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"\noverlap = \"kill\"",
            "schedules.a.overlap",
            "skip",
        ),
        ("[schedules.a]\nschedule = \"@daily\"\nqueue = \"none\"", "schedules.a.queue", "none"),
        (
            "[schedules.a]\nschedule = \"@daily\"\ntarget = \"bills.a\"",
            "schedules.a.target",
            "bills.a",
        ),
        (
            "[schedules.a]\nschedule = \"@daily\"\ntarget = \"orders.a\"\nbroker = \"other\"",
            "schedules.a.broker",
            "other",
        ),
        ("[schedules.a]\nschedule = \"@daily\"", "schedules.a", "target"),
        (
            "[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"\nttr = \"13h\"",
            "schedules.a.ttr",
            "limits.max_ttr",
        ),
        (
            "[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"\nbody = \"\"\nbody_base64 = \"\"",
            "schedules.a.body_base64",
            "`body` too",
        ),
        (
            "[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"\nbody_base64 = \"?\"",
            "schedules.a.body_base64",
            "not base64",
        ),
        (
            "[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"\nheaders = { a = [[1]] }",
            "schedules.a.headers",
            "a list stands in a list",
        ),
        (
            "[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"\nkey = 7",
            "schedules.a.key",
            "neither text nor bytes",
        ),
        (
            "[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"\non_conflict = \"keep\"",
            "schedules.a.on_conflict",
            "no such setting",
        ),
        (
            &format!("[schedules.{long}]\nschedule = \"@daily\"\nqueue = \"q\""),
            &format!("schedules.{long}"),
            "240",
        ),
    ] {
        let problem = with_queue(text).problem();
        assert_eq!(problem.key, key, "{text}: {problem}");
        assert!(problem.to_string().contains(part), "{text}: {problem}");
        assert!(
            !problem.hint.is_empty() && problem.source.starts_with("dwell.toml:"),
            "{text}: {problem}"
        );
    }
}

#[test]
fn no_schedule_has_the_id_of_an_occurrence() {
    let text = "[schedules.\"a@1763722800000\"]\nschedule = \"@daily\"\nqueue = \"q\"";
    let problem = with_queue(text).problem();
    // What looks like a login is not shown.
    assert!(problem.key.starts_with("schedules.\""), "{problem}");
    assert!(problem.message.contains("13 digits"), "{problem}");
}

#[test]
fn all_mistakes_of_all_schedules_are_told_at_once() {
    let text = "[schedules.a]\nschedule = \"@dayly\"\ntime_zone = \"Mars\"\nend = \"late\"\nlate = \"no\"\nqueue = \"none\"\n\
                [schedules.b]\nschedule = \"* * *\"\ntarget = \"bills\"\nmax_late = \"x\"\nttr = \"13h\"";
    let problems = with_queue(text).problems();
    let mut keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
    keys.sort_unstable();
    let wanted = [
        "schedules.a.end",
        "schedules.a.late",
        "schedules.a.queue",
        "schedules.a.schedule",
        "schedules.a.time_zone",
        "schedules.b.max_late",
        "schedules.b.schedule",
        "schedules.b.target",
        "schedules.b.ttr",
    ];
    assert_eq!(keys, wanted, "{problems:#?}");
}

#[test]
fn a_mistake_elsewhere_makes_no_other_of_a_schedule() {
    let text = "[schedules.a]\nschedule = \"* *\"\nbroker = \"far\"\ntarget = \"x.y\"\n[brokers.far]\ntype = \"nats\"\nurl = \"nats://h:1\"";
    let problems = Given::least(text).problems();
    let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["brokers.far.allow", "schedules.a.schedule"], "{problems:#?}");
}

#[test]
fn an_end_that_has_passed_is_no_mistake() {
    let text =
        "[schedules.a]\nschedule = \"@daily\"\nqueue = \"q\"\nend = \"2020-01-01T00:00:00Z\"";
    assert_eq!(with_queue(text).settings().schedules.len(), 1);
}

#[test]
fn an_expression_is_no_secret() {
    let text = "[schedules.a]\nschedule = \"@daily\"\nqueue = \"none\"\n[schedules.b]\nschedule = \"0 0 ? * 9\"\nqueue = \"q\"";
    let problems = with_queue(text).problems();
    assert_eq!(problems.len(), 2, "{problems:#?}");
    let mask = secret::Mask::of_settings(["@daily", "0 0 ? * MON", "me@host"]);
    assert_eq!(mask.over("@daily 0 0 ? * MON"), "@daily 0 0 ? * MON");
    assert!(!mask.over("me@host").contains("me@"), "{}", mask.over("me@host"));
}
