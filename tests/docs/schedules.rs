//! The pages on recurring schedules: the times of their tables, and their files of settings.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::pages::{printed, root, text_of};

/// A row of a table of times: an expression, its zone, and the times later than another, epoch ms.
struct Row {
    expression: String,
    zone: String,
    later_than_ms: i64,
    fires_ms: Vec<i64>,
}

impl Row {
    /// Reads `| expression | zone | later than | fires, UTC |`, with any columns behind.
    fn read(line: &str) -> Option<Row> {
        let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
        let [expression, zone, later_than, fires, ..] = cells[..] else { return None };
        let code = |cell: &str| Some(cell.strip_prefix('`')?.strip_suffix('`')?.to_owned());
        Some(Row {
            expression: code(expression)?,
            zone: code(zone)?,
            later_than_ms: ms(later_than)?,
            fires_ms: fires.trim_end_matches(" |").split(", ").map(ms).collect::<Option<_>>()?,
        })
    }
}

/// The epoch ms of `2027-01-31T12:00Z`.
fn ms(text: &str) -> Option<i64> {
    let time: Timestamp = format!("{}:00Z", text.strip_suffix('Z')?).parse().ok()?;
    Some(time.as_millisecond())
}

#[test]
fn the_tables_of_times_are_true() {
    let page = text_of("docs/reference/schedules.md");
    let rows: Vec<Row> = page.lines().filter_map(Row::read).collect();
    assert!(rows.len() >= 20, "{} rows were found", rows.len());
    for row in rows {
        let (from, next) = (row.later_than_ms.to_string(), row.fires_ms.len().to_string());
        let said = printed(&[
            "schedule",
            "--cron",
            &row.expression,
            "--zone",
            &row.zone,
            "--from",
            &from,
            "--next",
            &next,
            "-o",
            "json",
        ]);
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let expected = serde_json::json!(row.fires_ms);
        assert_eq!(said["next"], expected, "{} in {}", row.expression, row.zone);
    }
}

/// The pages of the docs with files of settings that have schedules.
fn pages_with_settings() -> Vec<PathBuf> {
    let mut pages = vec![root().join("docs/tutorial-schedules.md")];
    let guides = ["celery-beat", "sidekiq-cron", "bullmq-repeatables", "kubernetes-cronjob"];
    pages.extend(
        guides.map(|name| root().join("docs/how-to").join(format!("migrate-from-{name}.md"))),
    );
    pages
}

/// The TOML of a page, as one file.
fn settings_in(page: &Path) -> String {
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("\n```toml\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_settings_of_the_pages_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    // What the pages name as the file of the secret.
    let secret = folder.path().join("webhook.secret");
    fs::write(&secret, "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3\n").unwrap();
    for page in pages_with_settings() {
        let settings = settings_in(&page);
        assert!(settings.contains("[schedules."), "{} has no schedules", page.display());
        let file = folder.path().join("dwell.toml");
        fs::write(&file, settings.replace("webhook.secret", &secret.display().to_string()))
            .unwrap();
        let said = printed(&["check", "--offline", "-c", &file.display().to_string()]);
        assert!(said.contains("schedules: "), "{}: {said}", page.display());
    }
}
