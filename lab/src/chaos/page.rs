//! `docs/reference/measured/reliability.md`: the faults, the reaction of Dwell, what an operator
//! sees, and the measurements.

use std::fmt::Write as _;

use crate::chaos::fault::{Description, FaultKind};
use crate::chaos::report::{FaultSummary, Memory, Report, Run, median_and_most};
use crate::markers::Markers;

/// The generated part of the page.
const REPORT_MARKERS: Markers = Markers {
    begin: "<!-- dwell-lab: from here on written by `dwell-lab chaos page` -->",
    end: "<!-- dwell-lab: to here -->",
};

/// Replaces the generated part of the page. An empty page gets a title.
#[must_use]
pub fn page(old: &str, report: &Report) -> String {
    let old = if old.is_empty() { "# Reliability\n" } else { old };
    REPORT_MARKERS.splice(old, &written(report))
}

fn written(report: &Report) -> String {
    let mut text = String::from(
        "\n## Faults\n\nRecovery is the time from the end of a fault until the first job arrives that was due and stored; the median \
         and the maximum of all such times. The backlog of a fault is every job that fell due during it. A backlog \
         drains late where the broker keeps requests for a reader that is gone (JetStream's `ack_wait`, Kafka's \
         session), and where the lease of a dead instance has to expire. The next fault starts after the backlog has \
         drained. Copies are second arrivals. Each has a higher `delayed-attempt`, except after a failover and where \
         Kafka's client retries around a fault of the broker. Jobs that RabbitMQ's redelivery of a request started anew \
         are not counted as copies.\n",
    );
    // Writing to a string cannot fail.
    if let Some((count, middle, most)) = report.recovery_ms() {
        let _ = write!(
            text,
            "\nOf all {count} faults together: recovery {middle} ms, at most {most} ms.\n"
        );
    }
    for kind in FaultKind::all() {
        let Description { injected, effect, visible } = kind.description();
        let [injected, effect, visible] = [injected, effect, visible].map(|words| sentence(&words));
        let _ = write!(
            text,
            "\n### {kind}\n\n{injected}.\n\n- What happens: {effect}.\n- What you see: {visible}.\n"
        );
        if let Some(summary) = report.faults.get(&kind.to_string()) {
            let _ = writeln!(text, "- Measured: {}.", measured(summary));
        }
    }
    text.push_str(
        "\n## Campaigns\n\n| broker | Redis | seed | commit | durability | instances | faults | jobs | seconds of faults | verdict |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for run in &report.runs {
        let Run { broker, redis, seed, commit, durability, instances, .. } = run;
        let Run { faults, jobs, struck_seconds, .. } = run;
        let verdict = if run.sound { "sound" } else { "not sound" };
        let again = if run.checked_again { ", checked again" } else { "" };
        let _ = writeln!(
            text,
            "| {broker} | {redis} | {seed} | {commit} | {durability} | {instances} | {faults} | {jobs} | {struck_seconds} | {verdict}{again} |"
        );
    }
    if report.runs.iter().any(|run| run.checked_again) {
        text.push_str("\nChecked again: a later checker judged the history of the run.\n");
    }
    let _ = write!(text, "\nAll together: {}.\n\nOf leases: {}.\n", report.counts, report.leases);
    if let Some(Run { commit, repeat, .. }) = report.runs.last() {
        let _ = write!(
            text,
            "\nOne of them again, at its commit {commit}: `cargo build -p dwell -p dwell-lab --bins && target/debug/dwell-lab chaos {repeat}`.\n"
        );
    }
    let longest = |run: &Run| run.memory.iter().max_by_key(|memory| memory.seconds).cloned();
    let memories: Vec<(&Run, Memory)> =
        report.runs.iter().filter_map(|run| Some((run, longest(run)?))).collect();
    if !memories.is_empty() {
        text.push_str("\n## Memory\n\nResident memory of the instance that lived longest in each, over its whole life:\n");
    }
    for (run, memory) in memories {
        let _ = write!(text, "\n{}, seed {}: {memory}\n", run.broker, run.seed);
        if !memory.curve.is_empty() {
            let _ = write!(text, "\n```text\n{}```\n", memory.plot());
        }
    }
    text
}

fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn measured(summary: &FaultSummary) -> String {
    let FaultSummary { count, duplicates, first_ms, last_ms, lateness_ms, beside_ms } = summary;
    let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
    let recovery = median_and_most(first_ms).map_or_else(
        || "no job arrived after it".to_owned(),
        |(middle, most)| format!("recovery {middle} ms, at most {most} ms"),
    );
    let all = median_and_most(last_ms).map_or_else(
        || "no backlog".to_owned(),
        |(middle, most)| format!("backlog drained after {middle} ms, at most {most} ms"),
    );
    let beside = beside_ms.map_or_else(String::new, |ms| format!(", of unaffected jobs {ms} ms"));
    let copies =
        if *duplicates == 1 { "1 copy".to_owned() } else { format!("{duplicates} copies") };
    format!("{times}; {recovery}; {all}; {copies}; highest lateness {lateness_ms} ms{beside}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_run_stands_with_its_own_commit_and_says_whose_verdict_it_is() {
        let history = crate::chaos::history::History {
            head: crate::chaos::history::tests::head(),
            events: Vec::new(),
        };
        let mut report = Report::of(&history, &crate::chaos::checker::verdict::Verdict::default());
        assert!(
            page("", &report)
                .contains("| nats | single | 7 | abc | memory | 2 | 0 | 0 | 0 | sound |")
        );
        report.runs[0].checked_again = true;
        let (hourly, curve) = (None, vec![1 << 20, 2 << 20]);
        report.runs[0].memory.push(Memory {
            instance: 0,
            seconds: 120,
            first: 1 << 20,
            last: 2 << 20,
            most: 2 << 20,
            hourly,
            curve,
        });
        let text = page("", &report);
        assert!(text.contains("| sound, checked again |"), "{text}");
        assert!(
            text.contains("\n```text\n   2.0 | #\n") && text.contains("\n   1.0 |##\n"),
            "{text}"
        );
        assert!(
            text.contains("commit abc: `cargo build -p dwell -p dwell-lab --bins && target/debug/dwell-lab chaos run --seed 7`"),
            "{text}"
        );
    }

    #[test]
    fn only_what_is_between_the_markers_is_written_anew() {
        let summary = FaultSummary {
            count: 2,
            duplicates: 1,
            first_ms: vec![30, 10],
            last_ms: vec![90],
            lateness_ms: 400,
            beside_ms: Some(50),
        };
        let report = Report {
            faults: BTreeMap::from([("redis-kill".to_owned(), summary)]),
            ..Report::default()
        };
        let first = page("# Mine\n\nMy words.\n", &Report::default());
        let second = page(&format!("{first}\nMore of mine.\n"), &report);
        assert!(
            second.starts_with("# Mine\n\nMy words.\n") && second.ends_with("\nMore of mine.\n"),
            "{second}"
        );
        assert!(second.contains("- Measured: 2 times; recovery 30 ms, at most 30 ms; backlog drained after 90 ms, at most 90 ms; 1 copy; highest lateness 400 ms, of unaffected jobs 50 ms.\n"));
        assert_eq!(second.matches(REPORT_MARKERS.begin).count(), 1);
        for kind in FaultKind::all() {
            assert!(second.contains(&format!("\n### {kind}\n")), "{kind}");
        }
        assert!(
            second.contains("Of all 2 faults together: recovery 30 ms, at most 30 ms."),
            "{second}"
        );
        assert_eq!(page(&second, &report), second);
        assert!(page("", &report).starts_with("# Reliability\n"));
    }
}
