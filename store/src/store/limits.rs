//! The limits of targets. All instances take the turns of a limit from one hash of the namespace, in
//! which each limit has a field; which slot of a cluster has it does not depend on buckets.

use std::sync::Arc;

use redis::Value;

use super::answer::Items;
use super::due_set::DueSet;
use super::error::StoreError;
use super::meta;
use super::namespace::Namespace;
use super::places::Told;
use crate::policy::limit::{Rate, mark_of};

/// An instance that took turns so long ago may have other limits by now, µs.
const RECENT_US: i64 = 60_000_000;
/// A limited queue that nobody popped from for so long after its last turn holds no job back, µs.
const IDLE_QUEUE_US: i64 = 5_000_000;
const SCRIPT: &str = include_str!("scripts/limit.lua");
const BACK_SCRIPT: &str = include_str!("scripts/limit_back.lua");

/// The limit of a pattern of targets.
#[derive(Debug, Clone)]
pub struct Limit {
    name: Arc<str>,
    mark: u16,
    rate: Rate,
}

impl Limit {
    /// The limit of the targets of this broker that the pattern matches.
    #[must_use]
    pub fn of_targets(broker: &str, pattern: &str, rate: Rate) -> Self {
        // The name of a broker has no space.
        Limit::new(format!("{broker} {pattern}"), rate)
    }

    fn new(name: String, rate: Rate) -> Self {
        // With another rate the turns are others.
        Limit { mark: mark_of(&format!("{name} {rate}")), name: name.into(), rate }
    }

    /// The limit of this queue, to which the pattern applies. Each queue has its own.
    #[must_use]
    pub fn of_queue(queue: &str, pattern: &str, rate: Rate) -> Self {
        // No name of a queue or pattern of names has a space.
        Limit::new(format!("{} {pattern}", DueSet::Queue(queue)), rate)
    }

    /// The mark of the limit in the turns of its jobs.
    #[must_use]
    pub fn mark(&self) -> u16 {
        self.mark
    }

    /// The limit for people: its broker, a space, and its pattern.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many turns there are.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }
}

/// The jobs that ask for turns of one limit.
#[derive(Debug, Clone)]
pub struct AskedTurns {
    /// The limit.
    pub limit: Limit,
    /// Of each job: its longest wait for a turn, µs; `None`: any. A job whose turn would come later
    /// takes none, so that the line of the limit is no longer than the jobs that are of use.
    pub waits_us: Vec<Option<i64>>,
}

/// The turns that a call took.
#[derive(Debug)]
pub struct TakenTurns {
    /// The clock of the master of the limits, epoch µs.
    pub now_us: i64,
    /// Of each job, in the order of the call: when its turn comes, epoch µs of that clock; `None`
    /// without one.
    pub at_us: Vec<Option<i64>>,
    /// Of each limit: until when turns were taken before the call, and after it, epoch µs.
    lines_us: Vec<(i64, i64)>,
}

/// A limit that holds jobs back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limited {
    /// The broker of the targets, or `=` and the queue.
    pub set: String,
    /// The pattern of the limit.
    pub pattern: String,
    /// How many turns lie ahead: the jobs that wait for them, and those that were cancelled while
    /// they waited; and the jobs that wait for places. 0 of a queue, of which no turn is taken ahead.
    pub waiting: u64,
    /// Since when jobs wait without a break, epoch ms.
    pub since_ms: i64,
}

impl Namespace {
    /// Takes a turn for each job. A call whose answer is lost may have taken them.
    pub async fn take_turns(&self, asked: &[AskedTurns]) -> Result<TakenTurns, StoreError> {
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(1).arg(self.keys.limits());
        for AskedTurns { limit: Limit { name, rate, .. }, waits_us } in asked {
            let turns = u64::try_from(waits_us.len()).unwrap_or(u64::MAX);
            command.arg(&**name).arg(rate.span_us(turns)).arg(rate.ahead_us());
            command.arg(rate.to_string()).arg(waits_text(waits_us));
        }
        let mut items = Items::new("limit", self.link.command("limit", &command).await?)?;
        let now_us = items.int()?;
        self.saw_clock(now_us);
        let (mut at_us, mut lines_us) = (Vec::new(), Vec::with_capacity(asked.len()));
        for AskedTurns { limit, waits_us } in asked {
            let (from_us, given, mut index) = (items.int()?, items.bytes()?, 0);
            for at in 0..waits_us.len() {
                let has_turn = given.get(at).is_none_or(|given| *given == b'1');
                at_us.push(has_turn.then(|| limit.rate.turn_us(now_us, from_us, index)));
                index += u64::from(has_turn);
            }
            lines_us.push((from_us, from_us.saturating_add(limit.rate.span_us(index))));
        }
        Ok(TakenTurns { now_us, at_us, lines_us })
    }

    /// Gives the turns of a call back, which no job uses, where nobody took turns behind them.
    /// Returns of how many limits.
    pub async fn untake_turns(
        &self,
        asked: &[AskedTurns],
        taken: &TakenTurns,
    ) -> Result<usize, StoreError> {
        let mut command = redis::cmd("EVAL");
        command.arg(BACK_SCRIPT).arg(1).arg(self.keys.limits());
        for (AskedTurns { limit, .. }, (before_us, after_us)) in asked.iter().zip(&taken.lines_us) {
            command.arg(&*limit.name).arg(*after_us).arg(*before_us);
        }
        match self.link.command("limit_back", &command).await? {
            Value::Int(count) => Ok(usize::try_from(count).unwrap_or(0)),
            _ => Ok(0),
        }
    }

    /// The names of those of these limits of which turns were taken by another rule, lately.
    pub async fn other_limits(&self, limits: &[Limit]) -> Result<Vec<String>, StoreError> {
        let fields = meta::fields(&self.link, &self.keys.limits()).await?;
        let from_us = self.read_clock().await?.saturating_sub(RECENT_US);
        let is_other = |limit: &&Limit| {
            let field = fields.iter().find(|(name, _)| name == limit.name());
            field
                .and_then(|(_, value)| read_field(value))
                .is_some_and(|(until_us, _, rate)| until_us >= from_us && rate != limit.rate)
        };
        Ok(limits.iter().filter(is_other).map(|limit| limit.name().to_owned()).collect())
    }

    /// The limits of all instances that hold jobs back now, by name.
    pub async fn limited(&self) -> Result<Vec<Limited>, StoreError> {
        let fields = meta::fields(&self.link, &self.keys.limits()).await?;
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        let now_us = self.read_clock().await?;
        let mut limited: Vec<Limited> =
            fields.iter().filter_map(|(name, value)| limited_of(name, value, now_us)).collect();
        let told = fields.iter().filter_map(|(name, value)| Told::read(name, value, now_us));
        told.for_each(|told| add_places(&mut limited, &told));
        limited.sort_by(|one, other| (&one.set, &one.pattern).cmp(&(&other.set, &other.pattern)));
        Ok(limited)
    }
}

/// Adds the jobs that wait for places of a limit, as one process tells.
fn add_places(limited: &mut Vec<Limited>, told: &Told) {
    let Some((set, pattern)) = told.name.split_once(' ').filter(|_| told.waiting > 0) else {
        return;
    };
    // Of a queue its ready jobs wait.
    let waiting = if DueSet::named(set).is_of_queue() { 0 } else { told.waiting };
    match limited.iter_mut().find(|known| known.set == set && known.pattern == pattern) {
        Some(known) => {
            known.waiting = known.waiting.saturating_add(waiting);
            known.since_ms = known.since_ms.min(told.since_ms);
        }
        None => limited.push(Limited {
            set: set.to_owned(),
            pattern: pattern.to_owned(),
            waiting,
            since_ms: told.since_ms,
        }),
    }
}

/// The longest waits of jobs, as `limit.lua` reads them.
fn waits_text(waits_us: &[Option<i64>]) -> String {
    if waits_us.iter().all(Option::is_none) {
        return String::new();
    }
    let word = |wait: &Option<i64>| wait.map_or_else(|| "-".to_owned(), |us| us.to_string());
    waits_us.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Until when turns are taken, epoch µs; since when jobs wait, epoch ms; and the rule.
fn read_field(value: &str) -> Option<(i64, i64, Rate)> {
    let mut words = value.splitn(3, ' ');
    let mut number = || words.next()?.parse::<i64>().ok();
    let (until_us, since_ms) = (number()?, number()?);
    Some((until_us, since_ms, Rate::read(words.next()?)?))
}

/// A limit by its field; `None` if the limit holds no job back, or if another program wrote the field.
fn limited_of(name: &str, value: &str, now_us: i64) -> Option<Limited> {
    let (set, pattern) = name.split_once(' ')?;
    let (until_us, since_ms, rate) = read_field(value)?;
    let waiting = rate.waiting(now_us, until_us);
    let is_limited = if DueSet::named(set).is_of_queue() {
        // The last pops wanted more than there was.
        since_ms > 0 && until_us.saturating_add(IDLE_QUEUE_US) >= now_us
    } else {
        waiting > 0
    };
    let (set, pattern) = (set.to_owned(), pattern.to_owned());
    is_limited.then_some(Limited { set, pattern, waiting, since_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_told_only_where_a_job_has_one() {
        assert_eq!(waits_text(&[None, None]), "");
        assert_eq!(waits_text(&[Some(5), None, Some(0)]), "5 - 0");
    }

    #[test]
    fn a_field_says_who_waits_and_since_when() {
        let rule = Rate::new(100, 1_000_000, Some(2)).to_string();
        let limited = |name: &str, value: &str| limited_of(name, value, 1_000_000);
        let waiting = Limited {
            set: "main".to_owned(),
            pattern: "a b.*".to_owned(),
            waiting: 3,
            since_ms: 900,
        };
        assert_eq!(limited("main a b.*", &format!("1050000 900 {rule}")), Some(waiting));
        let of_queue = limited("=q *", &format!("990000 900 {rule}")).unwrap();
        assert_eq!((of_queue.set.as_str(), of_queue.waiting, of_queue.since_ms), ("=q", 0, 900));
        for (name, value) in [
            ("main a", format!("1020000 900 {rule}")),
            ("main", format!("1050000 900 {rule}")),
            ("main a", "1050000 900".to_owned()),
            ("main a", "1050000 900 1/0/1".to_owned()),
            ("main a", String::new()),
            ("=q a", format!("1050000 0 {rule}")),
        ] {
            assert_eq!(limited(name, &value), None, "{name}: {value}");
        }
    }
}
