//! docs/tutorial-queues.md, followed word by word: each command answers what the page says, but for
//! times and leases.

use std::collections::BTreeMap;
use std::process::Command;

use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::sidecar::Sidecar;
use crate::commands::fixture::program;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The blocks of a page in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|block| block.split("```").next().unwrap()).collect()
}

/// The commands of the page, each with the answer that it shows.
fn commands(page: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in blocks(page, "console").into_iter().flat_map(str::lines) {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push((command.to_owned(), String::new())),
            None => {
                let (_, answer) = commands.last_mut().unwrap();
                answer.push_str(line);
            }
        }
    }
    commands
}

/// The value of a field that is text.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split_once(&format!("\"{name}\":\""))?.1.split('"').next()
}

/// The answer without what differs from run to run.
fn lasting(answer: &str) -> String {
    let mut text = answer.to_owned();
    for name in ["due", "lease"] {
        if let Some(value) = field(&text, name) {
            text = text.replace(value, "");
        }
    }
    // A time in ms has 13 digits.
    text.split(',')
        .map(|part| {
            let end = part.trim_end_matches(['}', ']']);
            let number = end.rsplit(':').next().unwrap_or_default();
            if number.len() == 13 && number.bytes().all(|byte| byte.is_ascii_digit()) {
                part.replace(number, "MS")
            } else {
                part.to_owned()
            }
        })
        .collect::<Vec<_>>()
        .join(",")
}

/// Whether the answer has all parts of the page's, which leaves others out (`…`).
fn is_as_shown(answer: &str, shown: &str) -> bool {
    let (answer, shown) = (lasting(answer), lasting(shown));
    let mut rest = answer.as_str();
    let parts: Vec<&str> = shown.split('…').map(|part| part.trim_matches(',')).collect();
    for part in &parts {
        match rest.split_once(part) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    parts.len() > 1 || answer == shown
}

#[tokio::test]
async fn the_tutorial_of_queues_is_true() {
    let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
    let settings = std::fs::read_to_string(format!("{ROOT}/config/queues.toml"))
        .unwrap()
        .replace("redis://127.0.0.1:6379", &redis.url());
    let sidecar = Sidecar::run(&settings, "", &[]).await;
    let page = std::fs::read_to_string(format!("{ROOT}/docs/tutorial-queues.md")).unwrap();
    let functions = blocks(&page, "sh").into_iter().find(|block| block.contains("post()")).unwrap();
    let path =
        format!("{}:{}", program().parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut leases: BTreeMap<String, String> = BTreeMap::new();
    let mut count = 0;
    for (command, shown) in commands(&page) {
        // Of the first start: what the machine has.
        if command.starts_with("export ") || command == "dwell check" {
            continue;
        }
        let mut line = format!("{functions}\n{command}")
            .replace("localhost:7464", &sidecar.address)
            .replace("\"20s\"", "\"1s\"");
        for (of_page, own) in &leases {
            line = line.replace(of_page, own);
        }
        let output = Command::new("bash")
            .args(["-c", &line])
            .env("PATH", &path)
            .env("DWELL_CONFIG", sidecar.config())
            .output()
            .unwrap();
        let answer = String::from_utf8(output.stdout).unwrap().lines().collect::<String>();
        if command.starts_with("dwell ls") {
            assert!(
                answer.contains("order-19") && answer.contains("the ledger is locked"),
                "{command}: {answer}"
            );
        } else {
            assert!(
                is_as_shown(&answer, &shown),
                "{command}:\n{}\n{}",
                lasting(&answer),
                lasting(&shown)
            );
        }
        if let (Some(of_page), Some(own)) = (field(&shown, "lease"), field(&answer, "lease")) {
            leases.insert(of_page.to_owned(), own.to_owned());
        }
        count += 1;
    }
    assert!(count > 15, "{count} commands were found");
}
