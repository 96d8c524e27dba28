//! The verdicts and the arrivals of each job, and the contradictions between them.

use std::collections::BTreeMap;

/// One job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Timeline {
    /// The answers to its cancel, each word once: a request that is delivered again is answered
    /// again.
    verdicts: Vec<String>,
    /// An answer was lost on its way, so that the next one may speak of its own effect.
    unsure: bool,
    /// The answer was given up on its way: it says so in a log, and nobody was told anything.
    unheard: bool,
    arrivals: usize,
}

/// All jobs of a run.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    jobs: BTreeMap<String, Timeline>,
}

/// Numbers of jobs told and arrived, by verdict; and the copies past the first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) verdicts: BTreeMap<String, (usize, usize)>,
    pub(crate) copies: usize,
}

impl Verdicts {
    pub(crate) fn scheduled(&mut self, id: String) {
        self.jobs.entry(id).or_default();
    }

    pub(crate) fn told(&mut self, id: &str, verdict: &str) {
        let verdicts = &mut self.jobs.entry(id.to_owned()).or_default().verdicts;
        if !verdicts.iter().any(|known| known == verdict) {
            verdicts.push(verdict.to_owned());
        }
    }

    /// An answer was lost: it was asked again.
    pub(crate) fn unsure(&mut self, id: &str) {
        self.jobs.entry(id.to_owned()).or_default().unsure = true;
    }

    /// The answer was given up on its way.
    pub(crate) fn unheard(&mut self, id: &str) {
        if let Some(timeline) = self.jobs.get_mut(id) {
            timeline.unheard = true;
        }
    }

    pub(crate) fn arrived(&mut self, id: &str) {
        self.jobs.entry(id.to_owned()).or_default().arrivals += 1;
    }

    /// The jobs that have no answer yet.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        self.jobs
            .iter()
            .filter(|(_, timeline)| timeline.verdicts.is_empty() && !timeline.unheard)
            .map(|(id, _)| id.clone())
            .collect()
    }

    pub(crate) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for timeline in self.jobs.values() {
            let (told, arrived) = tally.verdicts.entry(timeline.verdicts.join("+")).or_default();
            *told += 1;
            *arrived += usize::from(timeline.arrivals > 0);
            tally.copies += timeline.arrivals.saturating_sub(1);
        }
        tally
    }

    /// Each job of which something was said that is not so.
    pub(crate) fn contradictions(&self) -> Vec<String> {
        let wrong = |timeline: &Timeline| match &timeline.verdicts[..] {
            [] if timeline.unheard => None,
            [] => Some("has no answer"),
            [_, _, ..] => Some("has answers that differ"),
            [verdict] => match (verdict.as_str(), timeline.arrivals) {
                ("cancelled", 1..) => Some("is cancelled, and arrived"),
                ("fired", 0) => Some("is fired, and did not arrive"),
                // It was here when it was asked for: so it was confirmed, and forgotten since.
                ("not_found", 0) if !timeline.unsure => Some("is neither here nor did it arrive"),
                (
                    "cancelled" | "fired" | "in_flight" | "cancelled_after_attempt" | "not_found",
                    _,
                ) => None,
                _ => Some("has a verdict that no cancel has"),
            },
        };
        self.jobs
            .iter()
            .filter_map(|(id, timeline)| Some(format!("{id} {}: {timeline:?}", wrong(timeline)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(answers: &[&str], arrivals: usize) -> Verdicts {
        let mut verdicts = Verdicts::default();
        verdicts.scheduled("x".to_owned());
        answers.iter().for_each(|answer| verdicts.told("x", answer));
        (0..arrivals).for_each(|_| verdicts.arrived("x"));
        verdicts
    }

    #[test]
    fn what_may_be_is_no_contradiction() {
        for (verdict, arrivals) in [
            ("cancelled", 0),
            ("fired", 1),
            ("in_flight", 0),
            ("in_flight", 1),
            ("not_found", 1),
            ("fired", 2),
        ] {
            assert_eq!(
                one(&[verdict, verdict], arrivals).contradictions(),
                [""; 0],
                "{verdict} {arrivals}"
            );
        }
        let mut unheard = one(&[], 1);
        unheard.unheard("x");
        assert_eq!((unheard.contradictions(), unheard.unanswered()), (vec![], vec![]));
        let mut lost = one(&["not_found"], 0);
        lost.unsure("x");
        assert_eq!(lost.contradictions(), [""; 0]);
        assert_eq!(
            one(&["fired"], 3).tally(),
            Tally { verdicts: BTreeMap::from([("fired".to_owned(), (1, 1))]), copies: 2 }
        );
    }

    #[test]
    fn each_planted_lie_is_found() {
        let lies: [(&[&str], usize); 6] = [
            (&["cancelled"], 1),
            (&["fired"], 0),
            (&["not_found"], 0),
            (&[], 1),
            (&["cancelled", "fired"], 0),
            (&["kept"], 1),
        ];
        for (verdicts, arrivals) in lies {
            assert_eq!(
                one(verdicts, arrivals).contradictions().len(),
                1,
                "{verdicts:?} {arrivals}"
            );
        }
    }
}
