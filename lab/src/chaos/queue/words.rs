//! The words of a consumer on the jobs that it holds.

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::json;

use super::scene::Scene;
use crate::chaos::history::{LeaseWord, Op, Phase};
use crate::client::Link;
use crate::client::answers::{Answer, Job, Results};
use dwell::clock;

/// The outcome of a job, in the order of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Finish,
    Fail,
    Release,
}

/// A word on one lease.
#[derive(Debug, Clone)]
pub(super) struct Word {
    pub(super) id: String,
    pub(super) lease: String,
    pub(super) deadline_ms: i64,
    pub(super) outcome: Outcome,
}

impl Word {
    /// Most jobs are finished.
    pub(super) fn about(job: &Job<'_>, random: &mut StdRng) -> Word {
        let outcome = match random.random_range(0..100) {
            0 => Outcome::Fail,
            1 => Outcome::Release,
            _ => Outcome::Finish,
        };
        Word {
            id: job.id.clone().into_owned(),
            lease: job.lease.clone().into_owned(),
            deadline_ms: job.deadline_ms,
            outcome,
        }
    }
}

/// Says words once. Writes the answers down; false if there was none.
pub(super) async fn say(scene: &Scene, link: &mut Link, words: &[Word]) -> bool {
    let sent_ms = clock::wall_ms();
    let answers = match words {
        // The call for one job says the same.
        [Word { id, lease, outcome: Outcome::Finish, .. }] => {
            let path = format!("/v1/jobs/{id}/finish");
            let answer = link.post(&path, &json!({ "lease": lease })).await.ok();
            answer.and_then(|(_, answer)| Some(vec![serde_json::from_slice(&answer).ok()?]))
        }
        words => {
            let of = |outcome| -> Vec<_> {
                let those = words.iter().filter(|word| word.outcome == outcome);
                those.map(|word| json!({ "id": word.id, "lease": word.lease })).collect()
            };
            let body = json!({ "finish": of(Outcome::Finish), "fail": of(Outcome::Fail), "release": of(Outcome::Release) });
            let answer = link.post("/v1/leases", &body).await.ok();
            answer.and_then(|(_, answer)| {
                Some(serde_json::from_slice::<Results>(&answer).ok()?.results)
            })
        }
    };
    let Some(answers) = answers else {
        scene.tally.lock().words_unanswered += 1;
        return false;
    };
    let heard_ms = clock::wall_ms();
    // In the order of the call. A consumer may hold two leases of a job: one is over.
    let mut asked: Vec<&Word> = words.iter().collect();
    asked.sort_by_key(|word| word.outcome);
    for Answer { id, verdict } in answers {
        let Some(at) = asked.iter().position(|word| word.id == id) else { continue };
        let word = asked.remove(at);
        if word.outcome == Outcome::Finish {
            let mut tally = scene.tally.lock();
            match verdict.as_str() {
                "finished" => tally.finished += 1,
                "stale" => tally.finishes_stale += 1,
                "fired" => tally.finishes_repeated += 1,
                _ => {}
            }
        }
        let said = LeaseWord { id, lease: word.lease.clone(), sent_ms, heard_ms, verdict };
        scene.recorder.record("consumer", Phase::Ok, Op::Lease(said));
    }
    true
}

/// The answer to these words was lost. A `finish` ends a lease for good; the others do not.
pub(super) fn unsure(scene: &Scene, words: &[Word]) {
    for word in words.iter().filter(|word| word.outcome != Outcome::Finish) {
        let (id, lease) = (word.id.clone(), word.lease.clone());
        let lost = LeaseWord { id, lease, ..LeaseWord::default() };
        scene.recorder.record("consumer", Phase::Info, Op::Lease(lost));
    }
}
