//! `dwell-lab bench` with a minimal load: every measurement, its JSON, and the pages made of it.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::{lab, left};

/// The JSON objects of a measurement, and its stdout.
fn measured(arguments: &[&str]) -> (Vec<Value>, String) {
    let folder = TempDir::new().unwrap();
    let output = lab(&folder, &["bench", "-o", "json"]).args(arguments).output().unwrap();
    let (out, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{out}");
    assert_eq!(left(folder.path()), Vec::<String>::new());
    (out.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), out)
}

/// The same of one object, which has these figures above zero, and lost nothing of what was sent:
/// so much at least, with the warm-up and what was measured once more because the machine was busy.
#[track_caller]
fn sound(report: &Value, least: u64, figures: &[&str]) {
    for name in figures {
        let figure = &report["figures"][name];
        let at = |field: &str| {
            figure[field].as_f64().unwrap_or_else(|| panic!("{name}.{field}: {report}"))
        };
        assert!(
            at("least") > 0.0 && at("least") <= at("median") && at("median") <= at("most"),
            "{name}: {figure}"
        );
    }
    let sent = report["result"]["sent"].as_u64().unwrap();
    let right = serde_json::json!({ "sent": sent, "arrived": sent, "lost": 0, "duplicates": 0, "early": 0, "damaged": 0, "stray": 0 });
    assert_eq!(report["result"], right, "{report}");
    assert!(sent >= least && (sent > 0) == (least > 0), "{report}");
    assert!(
        report["machine"]["cores"].as_u64().unwrap() > 0
            && report["machine"]["redis"].as_str().unwrap().contains('.'),
        "{report}"
    );
}

#[test]
fn a_drain_is_measured_beside_its_ceiling() {
    let (reports, _) = measured(&[
        "drain",
        "--jobs",
        "1000",
        "--pending",
        "500",
        "--instances",
        "2",
        "--broker",
        "nats",
    ]);
    let figures = [
        "drain",
        "relay",
        "scripts",
        "ceiling",
        "of_ceiling",
        "of_relay",
        "accept",
        "redis_life",
        "set",
        "life_in_sets",
        "peak_rss",
    ];
    sound(&reports[0], 3000, &figures);
    let median = |name: &str| reports[0]["figures"][name]["median"].as_f64().unwrap();
    assert!(median("ceiling") < median("relay").min(median("scripts")), "{reports:?}");
    assert_eq!(
        (&reports[0]["setup"]["pending"], &reports[0]["setup"]["instances"]),
        (&500.into(), &2.into())
    );
}

#[test]
#[cfg(all(feature = "amqp", feature = "kafka"))]
fn other_brokers_are_measured_too() {
    let (reports, _) = measured(&["drain", "--jobs", "500", "--broker", "amqp"]);
    sound(&reports[0], 1500, &["drain", "relay", "ceiling"]);
    assert!(
        reports[0]["machine"]["broker"].as_str().unwrap().starts_with("rabbitmq-server "),
        "{reports:?}"
    );
    let (reports, _) = measured(&["schedule", "--jobs", "3000", "--broker", "kafka"]);
    sound(&reports[0], 0, &["ingest", "source", "accept"]);
    assert!(reports[0]["machine"]["broker"].as_str().unwrap().starts_with("kafka "), "{reports:?}");
}

#[test]
fn every_other_measurement_answers_and_pages_are_made_of_it() {
    let (relay, mut lines) = measured(&["relay", "--jobs", "500", "--runs", "2"]);
    sound(&relay[0], 1000, &["relay"]);
    assert_eq!(relay[0]["runs"], 2);

    let (late, out) =
        measured(&["lateness", "--rate", "100,200", "--pending", "300,600", "--secs", "1"]);
    lines += &out;
    assert_eq!(late.len(), 4, "{late:?}");
    for (report, sent) in late.iter().zip([2100, 2200, 2100, 2200]) {
        sound(report, sent, &["late_p50", "late_p99", "late_max", "rate"]);
        assert_eq!(report["figures"]["early"]["most"], 0.0);
    }

    let (schedule, out) = measured(&["schedule", "--jobs", "3000", "--pending", "500"]);
    lines += &out;
    sound(
        &schedule[0],
        0,
        &[
            "ingest",
            "source",
            "schedule_script",
            "ingest_ceiling",
            "of_ingest_ceiling",
            "accept",
            "fill",
        ],
    );

    let (memory, out) = measured(&["memory", "--pending", "2000", "--load-jobs", "5"]);
    lines += &out;
    sound(&memory[0], 5, &["overhead", "rss", "loaded_rss", "fill"]);

    let (scale, out) =
        measured(&["scale", "--jobs", "300", "--instances", "1,2", "--buckets", "16,4"]);
    lines += &out;
    let points: Vec<_> = scale
        .iter()
        .map(|report| (report["setup"]["instances"].as_u64(), report["setup"]["buckets"].as_u64()))
        .collect();
    assert_eq!(points, [(Some(1), Some(16)), (Some(2), Some(16)), (Some(1), Some(4))]);
    scale.iter().for_each(|report| sound(report, 600, &["drain", "against_first"]));

    let (start, out) = measured(&["start", "--times", "2", "--pending", "0,500", "--secs", "1"]);
    lines += &out;
    assert_eq!(start.len(), 2, "{start:?}");
    start.iter().for_each(|report| sound(report, 0, &["first_start", "start", "rss"]));

    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("lines"), lines).unwrap();
    let output = lab(
        &folder,
        &["bench", "report", &path("lines"), "--docs", &path("docs"), "--html", &path("page.html")],
    )
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let page = fs::read_to_string(path("docs/performance.md")).unwrap();
    for part in [
        "## Lateness",
        "## Ingest",
        "## Instances and buckets",
        "## Memory",
        "## Start and idleness",
        "## Bare relay",
        "dwell-lab bench -o json scale",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for picture in
        ["lateness-pending-nats-100", "lateness-rate-nats-300", "scale-instances", "scale-buckets"]
    {
        let file = format!("images/performance-{picture}.svg");
        assert!(
            page.contains(&file)
                && fs::read_to_string(path(&format!("docs/{file}"))).unwrap().starts_with("<svg"),
            "{page}"
        );
    }
    assert!(fs::read_to_string(path("page.html")).unwrap().matches("<svg").count() >= 6);
}
