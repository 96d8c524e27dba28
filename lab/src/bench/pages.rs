//! The pages of the measurements: performance.md with its plots, and one self-contained HTML file.
//!
//! - `blocks`: the contents of a page; [`plots`]: the plots; `comparison`: peers; `block`: the
//!   pieces, in both formats.

mod block;
mod blocks;
mod comparison;
pub mod plots;

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::report::Report;
use crate::markers::Markers;
use block::Block;
use comparison::Peer;
use dwell_testkit::environment::{Failure, Result};

/// The measured part of performance.md.
const MEASURED_MARKERS: Markers = Markers {
    begin: "<!-- measured: written by `dwell-lab bench report`, changes are lost -->",
    end: "<!-- measured: end -->",
};
/// The HTML file up to its blocks.
const HTML: &str = include_str!("pages/page.html");
/// The page if there is none yet.
const PAGE: &str = "# Performance\n\n`make bench` measures this on your machine.\n\n";

/// Reads lines of JSON, and those of peers, and writes `docs`/performance.md with `docs`/images,
/// and `html`, as asked.
///
/// # Errors
/// A file cannot be read or written, or a line is not a report.
pub fn write(
    lines: &[PathBuf],
    peers: Option<&Path>,
    docs: Option<&Path>,
    html: Option<&Path>,
) -> Result<()> {
    let mut reports: Vec<Report> = Vec::new();
    for path in lines {
        for report in records::<Report>(path, "report of `dwell-lab bench -o json`")? {
            // Runs of one setup may be on several lines.
            if !reports.iter_mut().any(|other| other.merge(&report)) {
                reports.push(report);
            }
        }
    }
    let peers: Vec<Peer> = match peers {
        Some(path) => records(path, "figure of a peer")?,
        None => Vec::new(),
    };
    let blocks = blocks::blocks(&reports, &peers)?;
    let page = |format: fn(&Block) -> String, end: &str| -> String {
        blocks.iter().map(|block| format(block) + end).collect()
    };
    if let Some(docs) = docs {
        let images = docs.join("images");
        fs::create_dir_all(&images)?;
        for block in &blocks {
            if let Block::Picture { name, svg, .. } = block {
                fs::write(images.join(name), svg)?;
            }
        }
        let path = docs.join("performance.md");
        let present = fs::read_to_string(&path).unwrap_or_else(|_| PAGE.to_owned());
        fs::write(&path, MEASURED_MARKERS.splice(&present, &page(Block::markdown, "\n\n")))?;
    }
    if let Some(html) = html {
        fs::write(html, format!("{HTML}{}</html>\n", page(Block::html, "\n")))?;
    }
    Ok(())
}

/// The records of a file, one a line of JSON; `what` names one.
fn records<T: DeserializeOwned>(path: &Path, what: &str) -> Result<Vec<T>> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let record = |(number, line): (u32, &str)| {
        serde_json::from_str::<T>(line).map_err(|error| {
            let path = path.display();
            Failure::Unexpected(format!("{path} line {number} is no {what}: {error}"))
        })
    };
    lines.map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::super::metric::{self, Run};
    use super::super::report::Setup;
    use super::*;

    fn lateness(pending: u64, p99: f64) -> Report {
        let setup = Setup {
            broker: "nats".to_owned(),
            pending,
            rate: Some("2000".to_owned()),
            secs: Some(20),
            ..Setup::default()
        };
        let mut report = Report::new(
            "lateness",
            setup,
            "dwell-lab bench lateness --pending 1000,1000000".to_owned(),
        );
        for more in [0.0, 0.5] {
            let mut run = Run::default();
            run.note(&metric::LATE_P50, 1.0);
            run.note(&metric::LATE_P99, p99 + more);
            run.note(&metric::RATE, 2000.0);
            report.add(&run);
        }
        report
    }

    #[test]
    fn reports_become_both_pages_and_what_people_wrote_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let lines = [lateness(1000, 3.0), lateness(1_000_000, 4.0)]
            .map(|report| serde_json::to_string(&report).unwrap());
        fs::write(path("lines"), lines.join("\n")).unwrap();
        fs::write(
            path("performance.md"),
            format!(
                "# Mine\n\n{}\nold\n{}\n\nMore of mine.\n",
                MEASURED_MARKERS.begin, MEASURED_MARKERS.end
            ),
        )
        .unwrap();
        let peer = |value: u32| {
            format!(
                "{{\"peer\":\"other 1.0\",\"bench\":\"lateness\",\"broker\":\"nats\",\"pending\":1000,\"rate\":\"2000\",\"figure\":\"late_p99\",\"value\":{value}}}\n"
            )
        };
        fs::write(path("peers"), [peer(6), peer(14)].concat()).unwrap();
        for _ in 0..2 {
            write(
                &[path("lines")],
                Some(&path("peers")),
                Some(folder.path()),
                Some(&path("page.html")),
            )
            .unwrap();
            let page = fs::read_to_string(path("performance.md")).unwrap();
            assert!(
                page.starts_with("# Mine\n")
                    && page.ends_with("\n\nMore of mine.\n")
                    && !page.contains("old"),
                "{page}"
            );
            assert!(
                page.contains("3.25 ms (3.00 – 3.50)") && page.contains("1 000 000 pending"),
                "{page}"
            );
            assert!(page.contains("other 1.0 | 3.25 ms (3.00 – 3.50) | 10.0 ms (6.00 – 14.0) | 0.38 × (0.25 – 0.50)"), "{page}");
            let picture = "images/performance-lateness-pending-nats-2000.svg";
            assert!(page.contains(&format!("]({picture})")) && path(picture).is_file(), "{page}");
        }
        let html = fs::read_to_string(path("page.html")).unwrap();
        assert!(
            html.contains("<svg")
                && html.contains("prefers-color-scheme")
                && !html.contains("src=\"http"),
            "{html}"
        );
    }

    #[test]
    fn what_two_commands_measured_is_one_point_of_the_most_runs() {
        let (few, other) = (
            Report { runs: 1, command: "another".to_owned(), ..lateness(1000, 9.0) },
            lateness(1_000_000, 4.0),
        );
        for reports in [[&few, &lateness(1000, 3.0), &other], [&other, &lateness(1000, 3.0), &few]]
        {
            let (_, plot) = plots::of("lateness", &reports).remove(0);
            assert_eq!(plot.lines[1].points, [(1000.0, 3.25), (1_000_000.0, 4.25)]);
        }
    }

    #[test]
    fn a_line_that_is_no_report_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        fs::write(&path, "\n{\"bench\":1}\n").unwrap();
        let error = write(&[path], None, None, None).unwrap_err().to_string();
        assert!(error.contains("lines line 2 is no report"), "{error}");
    }
}
