//! The files in `deploy/` for Prometheus, Grafana and KEDA, checked by promtool and against a real
//! scrape: every metric, label and value in them exists.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dwell_testkit::servers::{
    DwellServer, NatsOptions, NatsServer, RedisOptions, RedisServer, find,
};
use serde_json::Value;

/// The labels that Prometheus itself adds to every series.
const PROMETHEUS_LABELS: [&str; 2] = ["job", "instance"];

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

/// Runs promtool. Returns whether it is content, and its output.
fn promtool(arguments: &[&str], stdin: &str) -> (bool, String) {
    let mut child = Command::new(find::promtool().unwrap())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A tool that reads no stdin may be gone already.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

/// Metric, then label, then its values, of a scrape.
type Scrape = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn read(scrape: &str) -> Scrape {
    let mut all = Scrape::new();
    for line in scrape.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let of_name = all.entry(name.to_owned()).or_default();
        for (label, value) in
            labels.trim_end_matches('}').split(',').filter_map(|label| label.split_once('='))
        {
            of_name.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
        }
    }
    all
}

/// Returns the mistakes in the metrics and labels of an expression.
fn wrong(expr: &str, scrape: &Scrape) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut labels = BTreeSet::from(PROMETHEUS_LABELS.map(str::to_owned));
    let mut rest = expr;
    while let Some(at) = rest.find("dwell_") {
        let length = rest[at..]
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(rest.len() - at);
        let name = &rest[at..at + length];
        rest = &rest[at + length..];
        let Some(known) = scrape.get(name) else {
            wrong.push(format!("no metric {name}"));
            continue;
        };
        labels.extend(known.keys().cloned());
        let Some(matchers) = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'))
            .map(|(matchers, _)| matchers)
        else {
            continue;
        };
        for matcher in matchers.split(',') {
            // `=`, `!=`, `=~` or `!~`; of a pattern each of its alternatives.
            let (label, value) = matcher.split_at(matcher.find(['=', '!']).unwrap());
            let mut values = value.trim_start_matches(['=', '!', '~']).trim_matches('"').split('|');
            match known.get(label) {
                _ if PROMETHEUS_LABELS.contains(&label) => {}
                None => wrong.push(format!("{name} has no label {label}")),
                Some(known) => wrong.extend(
                    values
                        .find(|value| !known.contains(*value))
                        .map(|value| format!("{name} has no {label} {value}")),
                ),
            }
        }
    }
    for group in expr.split("by (").skip(1) {
        let by = group.split(')').next().unwrap().split(',').map(str::trim);
        wrong.extend(
            by.filter(|label| !labels.contains(*label))
                .map(|label| format!("no label {label} to group by")),
        );
    }
    wrong
}

/// The expressions of the alerts, each on a line of its own.
fn of_alerts() -> Vec<String> {
    let text = std::fs::read_to_string(deploy("prometheus/alerts.yml")).unwrap();
    text.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).map(str::to_owned).collect()
}

/// The expressions of the dashboard.
fn of_dashboard() -> Vec<String> {
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(deploy("grafana/dwell.json")).unwrap())
            .unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

/// The expression by which KEDA scales consumers.
fn of_scaler() -> String {
    let text = std::fs::read_to_string(deploy("keda/scaledobject.yaml")).unwrap();
    text.lines().find_map(|line| line.trim().strip_prefix("query: ")).unwrap().to_owned()
}

/// A scrape in the format that promtool reads, of an instance where nothing has happened yet.
async fn scrape() -> String {
    let (redis, nats) = tokio::try_join!(
        RedisServer::start(RedisOptions::default()),
        NatsServer::start(NatsOptions::default())
    )
    .unwrap();
    let settings = format!(
        "redis.urls = [\"{}\"]\nbrokers.main.type = \"nats\"\nbrokers.main.url = \"{}\"\nbrokers.main.allow = [\"orders.>\"]\n\
         ingest.main.broker = \"main\"\ningest.main.declare = true\nqueues.emails.ttr = \"30s\"\n",
        redis.url(),
        nats.url()
    );
    let dwell = DwellServer::start(env!("CARGO_BIN_EXE_dwell").into(), &settings).await.unwrap();
    dwell.metrics().await.unwrap()
}

#[tokio::test]
async fn alerts_dashboard_and_scaler_name_only_what_a_scrape_has_from_the_start() {
    let text = scrape().await;
    assert_eq!(promtool(&["check", "metrics"], &text), (true, String::new()));
    let scrape = read(&text);
    let (alerts, dashboard) = (of_alerts(), of_dashboard());
    assert!(
        alerts.len() >= 10 && dashboard.len() >= 20,
        "{} and {}",
        alerts.len(),
        dashboard.len()
    );
    for expr in alerts.iter().chain(&dashboard).chain([&of_scaler()]) {
        assert_eq!(wrong(expr, &scrape), Vec::<String>::new(), "{expr}");
    }
    // Nobody finds out on the dashboard about what is not on it.
    let on_it: String = dashboard.concat();
    for name in scrape.keys() {
        let name =
            name.trim_end_matches("_sum").trim_end_matches("_count").trim_end_matches("_bucket");
        assert!(on_it.contains(name), "{name} is on no panel");
    }
    assert_eq!(
        wrong("sum by (reason) (rate(dwell_gone_total[5m]))", &scrape),
        ["no metric dwell_gone_total", "no label reason to group by"]
    );
    assert_eq!(
        wrong("dwell_jobs{state!~\"dead|gone\"}", &scrape),
        ["dwell_jobs has no state gone"]
    );
    assert_eq!(
        wrong("dwell_jobs{state=\"lost\",why!=\"x\"}", &scrape),
        ["dwell_jobs has no state lost", "dwell_jobs has no label why"]
    );
}

#[test]
fn promtool_is_content_with_the_alerts_and_their_tests() {
    let file = deploy("prometheus/alerts.yml");
    let (fine, said) = promtool(&["check", "rules", file.to_str().unwrap()], "");
    assert!(fine && said.contains("19 rules found") && !said.contains("FAILED"), "{said}");
    let tests = deploy("prometheus/alerts_test.yml");
    let (fine, said) = promtool(&["test", "rules", tests.to_str().unwrap()], "");
    assert!(fine && said.contains("SUCCESS") && !said.contains("FAILED"), "{said}");
    // Every alert has a test that it fires on its own cause.
    let (alerts, tests) =
        (std::fs::read_to_string(file).unwrap(), std::fs::read_to_string(tests).unwrap());
    let (_, firing) = tests.split_once("what is wrong raises its alert").unwrap();
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(
            firing.contains(&format!("alertname: {alert},"))
                || firing.contains(&format!("alertname=\"{alert}\"")),
            "{alert}"
        );
    }
}

#[test]
fn every_expression_of_dashboard_and_scaler_is_promql() {
    // As rules, which promtool parses; Grafana's variables stand for a duration and a pattern.
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    for (at, expr) in of_dashboard().iter().chain([&of_scaler()]).enumerate() {
        let expr = expr.replace("$__rate_interval", "1m").replace("$job", ".*");
        assert!(!expr.contains('$'), "{expr}");
        rules.push_str(&format!(
            "  - record: dashboard:{at}\n    expr: {}\n",
            serde_json::to_string(&expr).unwrap()
        ));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dashboard.yml");
    std::fs::write(&file, rules.replace("dashboard:", "dashboard:n")).unwrap();
    let (fine, said) = promtool(&["check", "rules", file.to_str().unwrap()], "");
    assert!(fine, "{said}");
}

#[test]
fn the_panels_of_the_dashboard_stand_side_by_side() {
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(deploy("grafana/dwell.json")).unwrap())
            .unwrap();
    let (mut taken, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(
            at("x") + at("w") <= 24 && ids.insert(panel["id"].as_u64().unwrap()),
            "{}",
            panel["title"]
        );
        for (x, y) in (at("x")..at("x") + at("w"))
            .flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(taken.insert((x, y)), "{} stands on another panel", panel["title"]);
        }
        assert!(
            panel["type"] == "row" || !panel["description"].as_str().unwrap().is_empty(),
            "{}",
            panel["title"]
        );
    }
}
