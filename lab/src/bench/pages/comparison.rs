//! Others beside Dwell: figures of peers that were measured in turns with it, on the same machine, and the ratio of each round.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::super::metric::{Run, kind_of};
use super::super::number::number_of;
use super::super::report::{Report, Setup};
use super::blocks::{Block, cell};
use super::text_of;
use dwell_testkit::environment::Failure;

/// A figure of a peer, as `scripts/beside.py` writes it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Peer {
    #[serde(flatten)]
    what: What,
    value: f64,
}

/// Of whom, and what of Dwell it is compared with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct What {
    /// The name of the figure, one of ours.
    figure: String,
    bench: String,
    broker: String,
    /// Jobs that wait and jobs a second, where that matters.
    #[serde(default)]
    pending: u64,
    #[serde(default)]
    rate: Option<String>,
    /// Who, with the version and what matters of its settings.
    peer: String,
}

/// The lines of a file.
pub(super) fn read(path: &Path) -> Result<Vec<Peer>, Failure> {
    let text = text_of(path)?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            serde_json::from_str(line)
                .map_err(|error| Failure::Unexpected(format!("{} line {number} is no figure of a peer: {error}", path.display())))
        })
        .collect()
}

/// A table of them; the first round of a peer is compared with the first of ours, and so on. Nothing where there are none.
pub(super) fn blocks(peers: &[Peer], reports: &[Report]) -> Vec<Block> {
    let mut rounds: BTreeMap<&What, Vec<f64>> = BTreeMap::new();
    for peer in peers {
        rounds.entry(&peer.what).or_default().push(peer.value);
    }
    let mut rows = Vec::new();
    for (what, theirs) in rounds {
        let What { figure, bench, broker, pending, rate, peer } = what;
        let Some(kind) = kind_of(figure) else { continue };
        let is_same = |report: &&Report| {
            let Setup { broker: own, pending: waits, rate: at, .. } = &report.setup;
            report.bench == *bench && own == broker && waits == pending && at == rate
        };
        let Some(ours) = reports.iter().find(is_same).and_then(|report| report.get(kind)) else { continue };
        let mut both = Report::new("", Setup::default(), String::new());
        for (theirs, ours) in theirs.iter().zip(&ours.runs) {
            let mut run = Run::default();
            run.note(kind, *theirs);
            run.note_ratio(*ours, *theirs);
            both.add(&run);
        }
        let mut parts = vec![figure.replace('_', " "), broker.clone()];
        parts.extend((*pending > 0).then(|| format!("{} pending", number_of(*pending))));
        parts.extend(rate.as_ref().map(|rate| format!("{rate}/s")));
        let mut row = vec![parts.join(", "), peer.clone(), cell(ours)];
        row.extend(both.in_order().map(cell));
        rows.push(row);
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let head = ["", "peer", "dwell", "peer's figure", "dwell over peer"].map(str::to_owned).to_vec();
    let says = "Measured in turns with Dwell, round by round on the same machine; the ratio is that of each round. Of rates more is better, of times and costs less.";
    vec![Block::Heading("Beside others".to_owned()), Block::Text(says.to_owned()), Block::Table { head, rows }]
}
