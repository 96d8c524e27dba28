//! Comparison with peers, measured in turns with Dwell on the same machine, with the ratio of each
//! round.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::metric::{OVER_PEER, Run, kind_of, over};
use super::super::number::number_of;
use super::super::report::{Report, Setup};
use super::block::{Block, cell};

/// A value of a peer, as `scripts/beside.py` writes it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Peer {
    #[serde(flatten)]
    what: What,
    value: f64,
}

/// The peer, and the setup of Dwell that it is compared with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct What {
    /// The name of a metric of ours.
    figure: String,
    bench: String,
    broker: String,
    /// Waiting jobs and jobs a second, if they matter.
    #[serde(default)]
    pending: u64,
    #[serde(default)]
    rate: Option<String>,
    /// The peer with its version and relevant settings.
    peer: String,
}

/// A table of the peers; the first round of a peer is compared with our first round, and so on.
/// Empty without peers.
pub(super) fn blocks(peers: &[Peer], reports: &[Report]) -> Vec<Block> {
    let mut rounds: BTreeMap<&What, Vec<f64>> = BTreeMap::new();
    for peer in peers {
        rounds.entry(&peer.what).or_default().push(peer.value);
    }
    let mut rows =
        vec![["", "peer", "dwell", "peer's figure", "dwell over peer"].map(str::to_owned).to_vec()];
    for (what, theirs) in rounds {
        let What { figure, bench, broker, pending, rate, peer } = what;
        let Some(kind) = kind_of(figure) else { continue };
        let is_same = |report: &&Report| {
            let Setup { broker: own, pending: waits, rate: at, .. } = &report.setup;
            report.bench == *bench && own == broker && waits == pending && at == rate
        };
        let Some(ours) = reports.iter().find(is_same).and_then(|report| report.get(kind)) else {
            continue;
        };
        let mut both = Report::new("", Setup::default(), String::new());
        for (theirs, ours) in theirs.iter().zip(&ours.runs) {
            let mut run = Run::default();
            run.note(kind, *theirs);
            run.note(&OVER_PEER, over(*ours, *theirs));
            both.add(&run);
        }
        let mut parts = vec![figure.replace('_', " "), broker.clone()];
        parts.extend((*pending > 0).then(|| format!("{} pending", number_of(*pending))));
        parts.extend(rate.as_ref().map(|rate| format!("{rate}/s")));
        let mut row = vec![parts.join(", "), peer.clone(), cell(ours)];
        row.extend(both.in_order().map(cell));
        rows.push(row);
    }
    if rows.len() == 1 {
        return Vec::new();
    }
    let says = "Measured in turns with Dwell, round by round on the same machine; the ratio is that of each round. Of rates more is better, of times and costs less.";
    vec![
        Block::Heading("Beside others".to_owned()),
        Block::Text(says.to_owned()),
        Block::Table(rows),
    ]
}
