//! The contents of a page: a section for each measurement with its table, its plots, and the
//! meaning of each metric.

use super::super::metric::{KINDS, Metric, kind_of};
use super::super::number::number_of;
use super::super::report::Report;
use super::block::{Block, cell};
use super::comparison::{self, Peer};
use super::plots;
use dwell_testkit::environment::Result;

/// A measurement on the page.
struct Section {
    bench: &'static str,
    heading: &'static str,
    says: &'static str,
    /// The names of its metrics.
    columns: &'static str,
}

const SECTIONS: [Section; 7] = [
    Section {
        bench: "drain",
        heading: "Drain",
        says: "All jobs are due at one instant. The bare relay and the scripts alone are measured in the same run, on the same servers.",
        columns: "drain relay scripts ceiling of_ceiling accept redis_life life_in_sets dwell_cpu peak_rss",
    },
    Section {
        bench: "lateness",
        heading: "Lateness",
        says: "A steady rate of jobs, sent by an open loop, while others wait. Lateness is receipt at the consumer minus due time.",
        columns: "late_p50 late_p90 late_p99 late_p999 late_max early rate capacity dwell_core redis_core",
    },
    Section {
        bench: "schedule",
        heading: "Ingest",
        says: "Requests from the broker to the store, acknowledged.",
        columns: "ingest source schedule_script ingest_ceiling of_ingest_ceiling accept schedule_cpu",
    },
    Section {
        bench: "scale",
        heading: "Instances and buckets",
        says: "Drains in turns, each compared with the first of its run. All instances share this machine.",
        columns: "drain against_first cpu_against_first accept",
    },
    Section {
        bench: "memory",
        heading: "Memory",
        says: "What a waiting job costs Redis, and Dwell under a load of large bodies.",
        columns: "overhead fill rss loaded_rss slow_calls",
    },
    Section {
        bench: "start",
        heading: "Start and idleness",
        says: "From exec to ready while jobs wait, and what a process uses that has nothing to do.",
        columns: "start first_start rss idle_dwell idle_redis",
    },
    Section {
        bench: "relay",
        heading: "Bare relay",
        says: "The connectors by themselves.",
        columns: "relay relay_cpu",
    },
];

/// The blocks of the page.
pub(super) fn blocks(reports: &[Report], peers: &[Peer]) -> Result<Vec<Block>> {
    let mut blocks = vec![
        Block::Text(
            "Medians; in parentheses the least and the most of all runs. Measured on:".to_owned(),
        ),
        Block::List(distinct(reports.iter().map(|report| report.machine.to_string()))),
    ];
    let mut used: Vec<&'static Metric> = Vec::new();
    for Section { bench, heading, says, columns } in &SECTIONS {
        let own: Vec<&Report> = reports.iter().filter(|report| report.bench == *bench).collect();
        let columns: Vec<&'static Metric> = columns
            .split(' ')
            .filter_map(kind_of)
            .filter(|kind| own.iter().any(|report| report.get(kind).is_some()))
            .collect();
        if columns.is_empty() {
            continue;
        }
        blocks.push(Block::Heading((*heading).to_owned()));
        blocks.push(Block::Text((*says).to_owned()));
        let head: Vec<String> = std::iter::once(String::new())
            .chain(columns.iter().map(|kind| kind.name.replace('_', " ")))
            .collect();
        let row = |report: &&Report| -> Vec<String> {
            let cells = columns.iter().map(|kind| report.get(kind).map_or_else(String::new, cell));
            std::iter::once(report.label()).chain(cells).collect()
        };
        blocks.push(Block::Table(std::iter::once(head).chain(own.iter().map(row)).collect()));
        let wrong: Vec<String> = own
            .iter()
            .filter_map(|report| Some(format!("{}: {}", report.label(), report.wrong()?)))
            .collect();
        let count: u64 = own.iter().map(|report| report.result.sent).sum();
        if !wrong.is_empty() {
            blocks.push(Block::List(wrong));
        } else if count > 0 {
            blocks.push(Block::Text(format!(
                "Of {} jobs none was lost, early, doubled or damaged.",
                number_of(count)
            )));
        }
        for (name, plot) in plots::of(bench, &own) {
            let svg = plot.svg().map_err(|error| format!("cannot draw {name}: {error}"))?;
            let name = format!("performance-{name}.svg");
            blocks.extend(svg.map(|svg| Block::Picture { name, title: plot.title, svg }));
        }
        blocks.push(Block::Code(
            distinct(own.iter().map(|report| report.command.clone())).join("\n"),
        ));
        used.extend(columns);
    }
    blocks.extend(comparison::blocks(peers, reports));
    blocks.push(Block::Heading("What the figures are".to_owned()));
    let head = vec!["figure".to_owned(), "what it is".to_owned()];
    let rows = KINDS
        .iter()
        .filter(|kind| used.contains(kind))
        .map(|kind| vec![kind.name.replace('_', " "), kind.means.to_owned()]);
    blocks.push(Block::Table(std::iter::once(head).chain(rows).collect()));
    Ok(blocks)
}

fn distinct(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for line in lines {
        if !distinct.contains(&line) {
            distinct.push(line);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_a_metric() {
        for column in SECTIONS.iter().flat_map(|section| section.columns.split(' ')) {
            assert!(kind_of(column).is_some(), "{column}");
        }
    }
}
