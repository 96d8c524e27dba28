//! `schedule`: new jobs enter, in batches, behind the durability gate.

use std::collections::HashMap;

use redis::Cmd;

use super::Store;
use super::answer::Items;
use super::error::{Class, StoreError};
use super::link::Moves;
use super::record;
use super::scripts::Name;
use crate::clock;
use crate::job::{Conflict, Due, Verdict};
use crate::request::Schedule;

/// The most jobs in one call of a script: 128 jobs of 200 bytes keep Redis for 0.65 ms (measured on 7.0.15).
pub const CALL_JOBS: usize = 128;
/// The most bytes of records in one call of a script, but for a single larger one.
pub const CALL_BYTES: usize = 1 << 20;
/// How often a batch is sent again because a script met a broker that its keys lacked.
const BROKER_REFRESHES: usize = 3;

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The verdict.
    pub verdict: Verdict,
    /// When the job is due, epoch ms, where that is known.
    pub due_ms: Option<i64>,
}

/// A job that is now the first of its bucket to fall due on its broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The bucket.
    pub bucket: u16,
    /// The broker.
    pub broker: String,
    /// Epoch ms by Redis's clock.
    pub due_ms: i64,
}

/// What `schedule` did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// One a request, in their order.
    pub answers: Vec<Answer>,
    /// The buckets whose readers must wake earlier than they think.
    pub heads: Vec<Head>,
}

struct Group<'a> {
    bucket: u16,
    bytes: usize,
    members: Vec<(usize, &'a Schedule, Vec<u8>)>,
}

impl Store {
    /// Stores jobs. Requests for one id are applied in their order. On an error nothing is known of any of them: send the same requests again
    /// (`origin.check` may be set for the repeat: what was applied then answers the same and changes nothing).
    pub async fn schedule(&self, requests: &[Schedule]) -> Result<Scheduled, StoreError> {
        if requests.is_empty() {
            return Ok(Scheduled::default());
        }
        let waves = self.waves(requests);
        let (mut loaded, mut refreshes, mut moves, mut again) = (false, 0, Moves::default(), false);
        loop {
            let brokers = self.brokers();
            let call = |group: &Group<'_>| self.schedule_call(group, &brokers, again);
            let calls: Vec<Vec<Cmd>> = waves.iter().map(|groups| groups.iter().map(call).collect()).collect();
            let begun = clock::now();
            let link = self.gate.link();
            let answers = self.gate.pass(link, "schedule", &calls).await;
            // Some calls may have been applied though another was refused, and their jobs may be over by the time of the next try.
            again = true;
            if matches!(&answers, Err(error) if error.class == Class::NoScript) && !loaded {
                loaded = true;
                link.load(&Name::Schedule.source(), calls.iter().flatten()).await?;
                continue;
            }
            if let Err(error) = &answers
                && moves.follow(error).await
            {
                // Another master may not know the script.
                loaded = false;
                continue;
            }
            self.observe(Name::Schedule, begun, &answers);
            match answers {
                Ok(values) => {
                    let mut scheduled =
                        Scheduled { answers: vec![Answer { verdict: Verdict::NotFound, due_ms: None }; requests.len()], heads: Vec::new() };
                    for (group, value) in waves.iter().flatten().zip(values) {
                        self.read_scheduled(group, Items::new("schedule", value)?, &mut scheduled)?;
                    }
                    return Ok(scheduled);
                }
                Err(error) if error.message.contains("DWELL_BROKER") && refreshes < BROKER_REFRESHES => {
                    refreshes += 1;
                    self.rejoin().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One group a script call: one bucket, ids that differ, bounded. The second request for an id stands in the second wave, and so on: a wave
    /// is sent once the one before it was applied as a whole, or a later request would stand under an earlier one that is sent again.
    fn waves<'a>(&self, requests: &'a [Schedule]) -> Vec<Vec<Group<'a>>> {
        let mut waves: Vec<Vec<Group<'a>>> = Vec::new();
        let mut seen: HashMap<&str, usize> = HashMap::new();
        // By wave and bucket: the group that is not full yet.
        let mut open: HashMap<(usize, u16), usize> = HashMap::new();
        for (at, request) in requests.iter().enumerate() {
            let record = record::encode(request, rand::random());
            let bucket = self.keys.bucket_of(request.id.as_str());
            let times = seen.entry(request.id.as_str()).or_default();
            let wave = *times;
            *times += 1;
            if waves.len() == wave {
                waves.push(Vec::new());
            }
            let groups = &mut waves[wave];
            let open = open.entry((wave, bucket)).or_insert(usize::MAX);
            let has_room =
                groups.get(*open).is_some_and(|group| group.members.len() < CALL_JOBS && group.bytes + record.len() <= CALL_BYTES);
            if !has_room {
                *open = groups.len();
                groups.push(Group { bucket, bytes: 0, members: Vec::new() });
            }
            let group = &mut groups[*open];
            group.bytes += record.len();
            group.members.push((at, request, record));
        }
        waves
    }

    fn schedule_call(&self, group: &Group<'_>, brokers: &[String], again: bool) -> Cmd {
        let mut call = self.script_call(Name::Schedule, group.bucket, brokers);
        for (_, request, record) in &group.members {
            let policy = match request.conflict {
                Conflict::Replace => "replace",
                Conflict::Keep => "keep",
                Conflict::Reject => "reject",
            };
            call.arg(request.id.as_str())
                .arg(record.as_slice())
                .arg(time_argument(request.due))
                .arg(policy)
                .arg(u8::from(request.origin.check || again));
        }
        call
    }

    fn read_scheduled(&self, group: &Group<'_>, mut items: Items, into: &mut Scheduled) -> Result<(), StoreError> {
        let now_us = items.int()?;
        let count = items.int()?;
        if usize::try_from(count) != Ok(group.members.len()) {
            return Err(StoreError::new(
                Class::Script,
                format!("redis: schedule answered for {count} jobs instead of {}", group.members.len()),
            ));
        }
        self.saw_clock(now_us);
        for (at, _, _) in &group.members {
            into.answers[*at] = read_answer(&mut items)?;
        }
        while items.left() >= 2 {
            let broker = items.text()?;
            if let Some(due_ms) = items.maybe_number()? {
                into.heads.push(Head { bucket: group.bucket, broker, due_ms });
            }
        }
        Ok(())
    }
}

/// A due time as the scripts read it.
pub(super) fn time_argument(due: Due) -> String {
    match due {
        Due::At(ms) => format!("={ms}"),
        Due::In(ms) => format!("+{ms}"),
        Due::Earlier { at_ms, in_ms } => format!("<{at_ms} {in_ms}"),
    }
}

/// Verdict and due time as the scripts write them.
pub(super) fn read_answer(items: &mut Items) -> Result<Answer, StoreError> {
    let word = items.text()?;
    let verdict = Verdict::parse(&word)
        .ok_or_else(|| StoreError::new(Class::Script, format!("redis: a script answered the unknown verdict `{word}`")))?;
    Ok(Answer { verdict, due_ms: items.maybe_number()? })
}
