//! A call of a script: its KEYS and ARGV, as the store builds them (`store/jobs`).

use dwell_core::Destination;
use dwell_store::job::{Confirm, Conflict, DeadReason, Due, Job, JobId};
use dwell_store::request::{NewJob, Origin};
use dwell_store::store::due_set::DueSet;
use dwell_store::store::keys::Keys;
use dwell_store::store::record::{self, StateRecord};
use dwell_store::store::scripts::Name;

/// A call, ready for Redis.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) name: Name,
    /// The sets in KEYS.
    pub(crate) sets: Sets,
    pub(crate) arguments: Vec<Vec<u8>>,
}

/// The names of the jobs.
pub(crate) const IDS: [&str; 2] = ["x", "y"];
pub(crate) const MAIN: &str = "main";

/// The owner of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Set {
    /// The broker.
    Main,
    Queue,
    OtherQueue,
}

/// The sets that a call may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sets {
    Of(Set),
    All,
}

impl Set {
    pub(crate) const ALL: [Set; 3] = [Set::Main, Set::Queue, Set::OtherQueue];

    /// The name of the set, as in the names of keys.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Set::Main => MAIN,
            Set::Queue => "=q",
            Set::OtherQueue => "=r",
        }
    }

    pub(crate) fn is_queue(self) -> bool {
        self != Set::Main
    }

    fn keys(self, keys: &Keys) -> Vec<String> {
        let dead = self.is_queue().then(|| keys.dead_of(0, self.name()));
        std::iter::once(keys.due(0, self.name())).chain(dead).collect()
    }
}

impl Sets {
    pub(crate) const EACH: [Sets; 4] =
        [Sets::Of(Set::Main), Sets::Of(Set::Queue), Sets::Of(Set::OtherQueue), Sets::All];

    fn keys(self, keys: &Keys) -> Vec<String> {
        match self {
            Sets::Of(set) => set.keys(keys),
            Sets::All => Set::ALL.iter().flat_map(|set| set.keys(keys)).collect(),
        }
    }
}
/// The second broker, of `move` alone.
pub(crate) const OTHER: &str = "other";
/// More than all records have.
const BYTES: &str = "1000000";

/// Identifies a schedule or an inbound message: a small number.
pub(crate) fn eight(number: u8) -> [u8; 8] {
    [0, 0, 0, 0, 0, 0, 0, number]
}

/// Never zero, which is no pop.
fn nonce_of_pop(number: u8) -> [u8; 8] {
    [1, 0, 0, 0, 0, 0, 0, number]
}

pub(crate) fn keys() -> Keys {
    Keys::new("model", 1)
}

/// KEYS of a script.
pub(crate) fn keys_of(name: Name, sets: Sets) -> Vec<Vec<u8>> {
    let keys = keys();
    let main = keys.due(0, MAIN);
    let own = sets.keys(&keys);
    let more = match name {
        Name::Claim
        | Name::Reclaim
        | Name::Release
        | Name::Retry
        | Name::FsckHold
        | Name::Acknowledge
        | Name::Purge => own,
        Name::End | Name::Forget | Name::FsckCounts | Name::TimeOut => own,
        Name::Schedule
        | Name::Cancel
        | Name::Reschedule
        | Name::Fire
        | Name::Finish
        | Name::Fail
        | Name::Requeue
        | Name::ChangeSchedule
        | Name::FsckLeases => own,
        Name::Bury | Name::Sweep if sets != Sets::Of(Set::Main) => own,
        Name::Rescue
        | Name::Complete
        | Name::Hold
        | Name::Bury
        | Name::Sweep
        | Name::FsckMemories => Vec::new(),
        Name::Pop | Name::Unpop => own.into_iter().chain(keys.pops(0)).collect(),
        Name::FsckJobs | Name::FsckAdopt => own.into_iter().chain([keys.quarantine(0)]).collect(),
        Name::Move => vec![main, keys.due(0, OTHER)],
        Name::FsckKey => return vec![main.clone().into_bytes(), keys.aside(&main, 0).into_bytes()],
    };
    let schedules = keys.schedule_keys_of(name, 0).iter().cloned();
    keys.fixed(0).iter().cloned().chain(more).chain(schedules).map(String::into_bytes).collect()
}

impl Call {
    fn new(name: Name, words: &[&[u8]]) -> Call {
        Call::of(name, words.iter().map(|word| word.to_vec()).collect())
    }

    /// The same call with these sets in KEYS.
    pub(crate) fn on(mut self, sets: Sets) -> Call {
        self.sets = sets;
        self
    }

    fn and(mut self, word: impl AsRef<[u8]>) -> Call {
        self.arguments.push(word.as_ref().to_vec());
        self
    }

    /// `ahead_ms`: jobs due within it are claimed too.
    pub(crate) fn claim(nonce: u8, lease_ms: i64, most: u8, ahead_ms: i64) -> Call {
        let words = [
            lease_ms.to_string(),
            most.to_string(),
            BYTES.to_owned(),
            ahead_ms.to_string(),
            "0".to_owned(),
        ];
        let call = words.into_iter().fold(Call::new(Name::Claim, &[&eight(nonce)]), Call::and);
        call.and("").and("")
    }

    pub(crate) fn rescue(nonce: u8, lease_ms: i64, most: u8) -> Call {
        Call::new(Name::Rescue, &[&eight(nonce)])
            .and(lease_ms.to_string())
            .and(most.to_string())
            .and(BYTES)
    }

    /// The default retry array has one wait.
    pub(crate) fn time_out(sets: Sets, most: u8) -> Call {
        Call::new(Name::TimeOut, &[])
            .and(most.to_string())
            .and(BYTES)
            .and("1")
            .and("late")
            .and("")
            .on(sets)
    }

    pub(crate) fn reclaim(nonce: u8) -> Call {
        Call::new(Name::Reclaim, &[&eight(nonce)])
    }

    /// A message schedules this id, due at this time, epoch ms.
    pub(crate) fn schedule(id: u8, number: u8, generation: u8, due_ms: i64, job: Job) -> Call {
        let record = record::encode(&request(id, number, due_ms, job), eight(generation));
        let time = format!("={due_ms}");
        Call::new(Name::Schedule, &[IDS[usize::from(id)].as_bytes(), &record])
            .and(time)
            .and("replace")
            .and("1")
    }

    /// The same, debounced: due at most this many ms after the first request.
    pub(crate) fn debounce(
        id: u8,
        number: u8,
        generation: u8,
        due_ms: i64,
        (max_wait_ms, job): (u64, Job),
    ) -> Call {
        let mut asked = request(id, number, due_ms, job);
        asked.conflict = Conflict::Debounce { max_wait_ms };
        let record = record::encode(&asked, eight(generation));
        Call::new(Name::Schedule, &[IDS[usize::from(id)].as_bytes(), &record])
            .and(format!("={due_ms}"))
            .and(format!("debounce {max_wait_ms}"))
            .and("1")
    }

    /// A message acts on this id. The caller adds the arguments of the action.
    pub(crate) fn act(name: Name, id: u8, number: u8) -> Call {
        Call::new(name, &[IDS[usize::from(id)].as_bytes(), &eight(number), b"3"])
    }

    pub(crate) fn cancel(id: u8, number: u8) -> Call {
        Call::act(Name::Cancel, id, number)
    }

    /// Per job: id, generation of its record.
    pub(crate) fn end(set: Set, jobs: &[(u8, u8)]) -> Call {
        let call = Call::new(Name::End, &[]).on(Sets::Of(set));
        jobs.iter().fold(call, |call, (id, generation)| {
            call.and(IDS[usize::from(*id)]).and(set.name()).and(eight(*generation)).and("*").and("")
        })
    }

    pub(crate) fn reschedule(id: u8, number: u8, generation: u8, due_ms: i64) -> Call {
        Call::act(Name::Reschedule, id, number).and(format!("={due_ms}")).and(eight(generation))
    }

    pub(crate) fn requeue(id: u8, number: u8, generation: u8) -> Call {
        Call::act(Name::Requeue, id, number).and(eight(generation))
    }

    pub(crate) fn finish(id: u8, number: u8) -> Call {
        Call::act(Name::Finish, id, number).and("")
    }

    /// `seen`: due and attempt as the consumer saw them; `read`: generation and step as the caller
    /// read them; `wait_ms`: of that step.
    pub(crate) fn fail(
        id: u8,
        number: u8,
        seen: (i64, u32),
        read: ([u8; 8], u16),
        wait_ms: Option<i64>,
    ) -> Call {
        let wait = wait_ms.map(|ms| format!("+{ms}")).unwrap_or_default();
        let call =
            Call::act(Name::Fail, id, number).and(seen.0.to_string()).and(seen.1.to_string());
        let call = call.and(read.0).and(read.1.to_string()).and(wait);
        call.and("failed").and(record::code_of_reason(Some(DeadReason::Failed)).to_string())
    }

    /// Per job: id, position, whether it has a state, its state.
    pub(crate) fn complete(
        lease: ([u8; 8], [u8; 8]),
        jobs: &[(u8, u8, bool, StateRecord)],
    ) -> Call {
        let places: Vec<u8> = jobs
            .iter()
            .flat_map(|(_, position, has_state, _)| [*position, u8::from(*has_state)])
            .collect();
        let call = Call::new(Name::Complete, &[&lease.0, &lease.1])
            .and(jobs.len().to_string())
            .and(places);
        jobs.iter().fold(call, |call, (id, _, _, state)| {
            call.and(IDS[usize::from(*id)]).and([&b"f"[..], &state.completed_entry()].concat())
        })
    }

    /// `hold`, `release`, `retry` or `bury`. Per job: id, position, time, new state.
    pub(crate) fn settle(
        name: Name,
        lease: ([u8; 8], [u8; 8]),
        jobs: &[(u8, u8, String, Option<StateRecord>)],
    ) -> Call {
        let call = Call::new(name, &[&lease.0, &lease.1]).and(jobs.len().to_string());
        jobs.iter().fold(call, |call, (id, position, time, state)| {
            let state = state.as_ref().map(StateRecord::encode).unwrap_or_default();
            call.and(IDS[usize::from(*id)]).and([*position]).and(time).and(state)
        })
    }

    pub(crate) fn sweep() -> Call {
        Call::new(Name::Sweep, &[b"1000000", b"1000000", b"1000000", b"128"])
    }

    pub(crate) fn fsck_leases(repair: bool, lease_ms: i64) -> Call {
        Call::new(Name::FsckLeases, &[if repair { b"1" } else { b"0" }]).and(lease_ms.to_string())
    }

    pub(crate) fn fsck_jobs(repair: bool, lease_ms: i64) -> Call {
        let call = Call::new(Name::FsckJobs, &[if repair { b"1" } else { b"0" }])
            .and(lease_ms.to_string())
            .and("1000000")
            .and(BYTES);
        IDS.iter().fold(call, |call, id| call.and(id).and("").and(""))
    }

    /// A call of any script with any arguments.
    pub(crate) fn of(name: Name, arguments: Vec<Vec<u8>>) -> Call {
        Call { name, sets: Sets::Of(Set::Main), arguments }
    }

    /// `deadline_us`: of the call. `ahead_ms`: where no job is due, those of the first due time
    /// within it are popped. `most`: the most jobs of each consumer.
    pub(crate) fn pop(
        nonce: u8,
        set: Set,
        (deadline_us, ahead_ms): (Option<i64>, i64),
        lease_ms: i64,
        most: &[u8],
    ) -> Call {
        let call = Call::new(Name::Pop, &[&nonce_of_pop(nonce)])
            .and(deadline_us.map(|us| us.to_string()).unwrap_or_default())
            .and(BYTES)
            .and(ahead_ms.to_string())
            .on(Sets::Of(set));
        most.iter().fold(call, |call, most| {
            call.and(lease_ms.to_string()).and("1000000").and(most.to_string()).and(BYTES).and("")
        })
    }

    /// No ids: all of the pop. `is_early`: the jobs that were popped early reached nobody.
    pub(crate) fn unpop(nonce: u8, is_early: bool, set: Set, ids: &[u8]) -> Call {
        let call = Call::new(Name::Unpop, &[&nonce_of_pop(nonce)])
            .and(if is_early { "1" } else { "" })
            .on(Sets::Of(set));
        ids.iter().fold(call, |call, id| call.and(IDS[usize::from(*id)]))
    }

    /// Per job: lease action, id, nonce of the pop, argument of the action.
    pub(crate) fn acknowledge(set: Set, words: &[(&str, u8, u8, String)]) -> Call {
        words.iter().fold(
            Call::new(Name::Acknowledge, &[]).on(Sets::Of(set)),
            |call, (word, id, nonce, more)| {
                call.and(word)
                    .and(IDS[usize::from(*id)])
                    .and(set.name())
                    .and(nonce_of_pop(*nonce))
                    .and(more)
            },
        )
    }

    pub(crate) fn purge(set: Set, state: &str) -> Call {
        Call::new(Name::Purge, &[state.as_bytes(), b"128"]).and(BYTES).on(Sets::Of(set))
    }
}

/// A job whose body differs from the jobs of other schedules.
pub(crate) fn job(number: u8, ttr_ms: u32, set: Set, is_held: bool) -> Job {
    let mut job = match DueSet::named(set.name()).queue() {
        Some(queue) => Job::for_queue(queue, vec![number]),
        None => Job::new(MAIN, Destination::new("q"), vec![number]),
    };
    (job.ttr_ms, job.created_ms) = (ttr_ms, 0);
    job.confirm = if is_held { Confirm::Consumer } else { Confirm::Broker };
    job
}

pub(crate) fn request(id: u8, number: u8, due_ms: i64, job: Job) -> NewJob {
    let id: JobId = IDS[usize::from(id)].parse().expect("a valid id");
    let mut schedule = NewJob::new(job, Due::At(due_ms)).id(id);
    schedule.origin =
        Origin { fingerprint: eight(number), maybe_redelivered: true, is_message: true };
    schedule
}
