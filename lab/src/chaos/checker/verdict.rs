//! The verdict of the checker.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wrong {
    /// Taken, and neither delivered nor dead nor cancelled.
    Lost,
    /// It came before its time.
    Early,
    /// It came, and nobody asked for it there.
    Unexpected,
    /// Its body or its headers are not those that were sent.
    Damaged,
    /// It carries a due time that nobody asked for.
    Misdated,
    /// Two copies with one attempt, or attempts that fall.
    Misnumbered,
    /// A copy that no fault explains.
    Unexplained,
    /// A verdict that what came contradicts.
    FalseVerdict,
    /// Two verdicts on one question that differ.
    Differing,
    /// A request that the broker has, and no verdict, though it could be published.
    Unanswered,
    /// Dead without a reason that the run gives.
    Burned,
    /// A good request came back, or a bad one with another code than it must.
    Refused,
    /// Everything was whole for so long, and it still had not come.
    Late,
    /// Copies that no instance counted as possible duplicates.
    Uncounted,
    /// Something is left in Redis.
    Left,
    /// `fsck` found damage.
    Damage,
    /// The campaign itself could not go on.
    Broken,
}

impl Wrong {
    /// The word, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Wrong::Lost => "lost",
            Wrong::Early => "early",
            Wrong::Unexpected => "unexpected",
            Wrong::Damaged => "damaged",
            Wrong::Misdated => "misdated",
            Wrong::Misnumbered => "misnumbered",
            Wrong::Unexplained => "unexplained",
            Wrong::FalseVerdict => "false-verdict",
            Wrong::Differing => "differing",
            Wrong::Unanswered => "unanswered",
            Wrong::Burned => "burned",
            Wrong::Refused => "refused",
            Wrong::Late => "late",
            Wrong::Uncounted => "uncounted",
            Wrong::Left => "left",
            Wrong::Damage => "damage",
            Wrong::Broken => "broken",
        }
    }
}

/// How much there was of what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Jobs that the other side confirmed.
    pub taken: u64,
    /// Jobs whose confirm was lost: they may come.
    pub uncertain: u64,
    /// Jobs that came at least once.
    pub delivered: u64,
    /// Jobs that came though their confirm was lost.
    pub recovered: u64,
    /// Jobs in the dead letters.
    pub dead: u64,
    /// Bad requests that came back.
    pub rejected: u64,
    /// Cancels, reschedules and fires that were asked for.
    pub asked: u64,
    /// Of those, answered.
    pub answered: u64,
    /// Requests that the broker has, whose answer could not be published.
    #[serde(default)]
    pub untold: u64,
    /// Copies past the first of a job, each explained by a fault.
    pub duplicates: u64,
    /// Jobs carried out once more because their request came again without a mark that tells it: on
    /// RabbitMQ, around a fault.
    #[serde(default)]
    pub redelivered: u64,
    /// Of the duplicates, those under the attempt number of another, which a client sent again by
    /// itself: on Kafka, around a fault of the broker.
    #[serde(default)]
    pub sent_again: u64,
}

impl std::ops::Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            taken: self.taken + other.taken,
            uncertain: self.uncertain + other.uncertain,
            delivered: self.delivered + other.delivered,
            recovered: self.recovered + other.recovered,
            dead: self.dead + other.dead,
            rejected: self.rejected + other.rejected,
            asked: self.asked + other.asked,
            answered: self.answered + other.answered,
            untold: self.untold + other.untold,
            duplicates: self.duplicates + other.duplicates,
            redelivered: self.redelivered + other.redelivered,
            sent_again: self.sent_again + other.sent_again,
        }
    }
}

/// A fault, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultImpact {
    /// Its name.
    pub kind: String,
    /// From when, epoch µs.
    pub began_us: i64,
    /// Until when, epoch µs.
    pub healed_us: i64,
    /// The most jobs that were claimed meanwhile.
    pub in_flight: u64,
    /// Copies that it explains.
    pub duplicates: u64,
    /// Jobs that fell due while it lasted and had not come when it was healed.
    pub overdue: u64,
    /// From the heal, or from when the first job after it was due, until any came, µs; `None` where
    /// none came any more.
    pub first_us: Option<i64>,
    /// From the heal until the last of those that were overdue came, µs; `None` where there were
    /// none.
    pub last_us: Option<i64>,
    /// The most that a job was late which was due while it lasted, µs.
    pub lateness_us: i64,
    /// Of those, the most of one that it did not concern; `None` where it concerned all.
    #[serde(default)]
    pub beside_us: Option<i64>,
    /// What was done to what.
    pub detail: String,
}

/// What there is to say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// How much there was.
    pub counts: Counts,
    /// What is wrong, each with what is known of it.
    pub findings: BTreeMap<Wrong, Vec<String>>,
    /// Each fault in its turn.
    pub impacts: Vec<FaultImpact>,
}

/// Of each kind of finding so many are written out for people.
const SHOWN: usize = 8;

impl Verdict {
    /// No promise broke.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// Notes something wrong.
    pub(super) fn find(&mut self, wrong: Wrong, what: impl Into<String>) {
        self.findings.entry(wrong).or_default().push(what.into());
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { taken, uncertain, delivered, recovered, dead, rejected, asked, answered, untold, duplicates, redelivered, sent_again } =
            self;
        write!(
            f,
            "{taken} jobs taken, {uncertain} uncertain ({recovered} of them came), {delivered} delivered, {dead} dead, {rejected} rejected, \
             {answered} of {asked} answers ({untold} could not be told), {duplicates} duplicates"
        )?;
        if *sent_again > 0 {
            write!(f, " ({sent_again} of them under the same attempt)")?;
        }
        if *redelivered > 0 {
            write!(f, ", {redelivered} carried out again for a request that came again")?;
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_sound() { "sound" } else { "NOT SOUND" };
        write!(f, "{word}: {}", self.counts)?;
        for (wrong, whats) in &self.findings {
            write!(f, "\n  {}: {}", wrong.as_str(), whats.len())?;
            for what in whats.iter().take(SHOWN) {
                write!(f, "\n    {what}")?;
            }
            if whats.len() > SHOWN {
                write!(f, "\n    and {} more", whats.len() - SHOWN)?;
            }
        }
        Ok(())
    }
}
