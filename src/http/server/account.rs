//! The share of one call in the memory that the calls of all connections share: the body of its
//! request, the values made of the body, and the answer until the client has taken it.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;

use super::transfers::{HangUp, Transfer, Transfers};
use crate::budget::{Budget, Share, UsedUp};
use crate::config::Limits;
use crate::view::{Fetched, FetchedJob};

/// The memory of all calls until they are answered, bytes, unless a body of `limits.max_body` needs
/// more.
const CALL_MEMORY_BYTES: usize = 64 << 20;
/// That of the large answers of the probes.
const PROBE_MEMORY_BYTES: usize = 8 << 20;
/// The memory that a call may need for each byte of the largest body.
const MEMORY_PER_BODY_BYTE: u64 = 24;
/// An answer of so many bytes takes no more than its connection has.
pub(super) const UNRESERVED_ANSWER_BYTES: usize = 16 << 10;
/// So many bytes are taken without a closer count.
const MAX_ESTIMATED_BYTES: usize = 1 << 20;
/// More than the size of a fetched job as JSON without its body and its headers.
const JOB_JSON_OVERHEAD_BYTES: usize = 1 << 10;
/// The most bytes that one byte becomes in JSON.
const MAX_JSON_BYTES_PER_BYTE: usize = 6;
/// The most memory that an element of a JSON text takes besides its text.
const ELEMENT_OVERHEAD_BYTES: usize = 256;
/// The peer of a call without a listener.
const NO_PEER: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The memory of all calls of some listeners. Clones share it.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Pools>);

#[derive(Debug)]
struct Pools {
    calls: Budget,
    /// Of what calls keep while they wait, a part of `calls`: the rest is for calls that do not
    /// wait.
    waits: Budget,
    /// Of the bodies of requests that come in parts, a part of `calls`: clients that do not send
    /// leave room to calls without such a body.
    bodies: Transfers,
    /// Of the large answers until their clients have taken them. Apart, so that clients that do not
    /// read stop no other call.
    answers: Transfers,
}

impl Memory {
    /// The memory of the calls of an instance.
    #[must_use]
    pub fn of(limits: &Limits) -> Memory {
        let largest = usize::try_from(limits.max_body.bytes().saturating_mul(MEMORY_PER_BODY_BYTE))
            .unwrap_or(usize::MAX);
        let calls = CALL_MEMORY_BYTES.max(largest);
        Memory::new(calls, calls / 8 * 3)
    }

    /// That of the probes, which answer whatever other calls take.
    #[must_use]
    pub fn of_probes() -> Memory {
        Memory::new(PROBE_MEMORY_BYTES, PROBE_MEMORY_BYTES)
    }

    /// Without a bound.
    pub(super) fn endless() -> Memory {
        Memory::new(usize::MAX, usize::MAX)
    }

    fn new(calls: usize, answers: usize) -> Memory {
        Memory(Arc::new(Pools {
            calls: Budget::new(calls),
            waits: Budget::new(calls / 2),
            bodies: Transfers::new(calls / 4 * 3),
            answers: Transfers::new(answers),
        }))
    }

    /// The part of the calls, and of the jobs that they fetch.
    #[must_use]
    pub fn calls(&self) -> &Budget {
        &self.0.calls
    }
}

/// The room of what a call keeps while it waits. Dropped, it is given back.
#[derive(Debug)]
pub(crate) struct WaitRoom {
    calls: Share,
    /// Of the room of all calls that wait.
    waits: Share,
}

/// The share of one call. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Account(Arc<Held>);

#[derive(Debug)]
struct Held {
    memory: Memory,
    share: Mutex<Share>,
    /// Of a body that comes in parts.
    body: Mutex<Vec<Transfer>>,
    /// Of a large answer that is written.
    answer: Mutex<Option<Transfer>>,
    /// The client.
    peer: IpAddr,
    /// Ends the connection of the call.
    hang_up: HangUp,
}

impl Account {
    /// A call of this peer, on the connection that `hang_up` ends.
    pub(super) fn new(memory: &Memory, peer: IpAddr, hang_up: HangUp) -> Account {
        let share = Mutex::new(memory.calls().share());
        Account(Arc::new(Held {
            memory: memory.clone(),
            share,
            body: Mutex::default(),
            answer: Mutex::default(),
            peer,
            hang_up,
        }))
    }

    /// Takes room for so many bytes of a body that comes in parts. `revoked` is told where others
    /// need the room, and the client does not send.
    pub(super) async fn take_body(&self, bytes: usize, revoked: &HangUp) -> Result<(), UsedUp> {
        let room = self.0.memory.0.bodies.take(bytes, self.0.peer, revoked).await?;
        self.0.body.lock().push(room);
        self.body_goes_on();
        Ok(())
    }

    /// Whether half of the room of such bodies is free.
    pub(super) fn has_ample_room(&self) -> bool {
        self.0.memory.0.bodies.is_half_free()
    }

    /// A part of the body came.
    pub(super) fn body_goes_on(&self) {
        self.0.body.lock().iter_mut().for_each(Transfer::goes_on);
    }

    /// The client sends no more of the body.
    pub(super) fn body_is_over(&self) {
        self.0.body.lock().iter_mut().for_each(Transfer::rests);
    }

    /// Room for a large answer of this call.
    async fn answer(&self, bytes: usize) -> Result<Transfer, UsedUp> {
        self.0.memory.0.answers.take(bytes, self.0.peer, &self.0.hang_up).await
    }

    /// Takes so many bytes more. Waits a moment for other calls to give some back.
    pub(crate) async fn take(&self, bytes: usize) -> Result<(), UsedUp> {
        let more = self.0.memory.calls().take(bytes).await?;
        self.0.share.lock().add(more);
        Ok(())
    }

    /// Takes so many bytes more, if they are there.
    pub(crate) fn grow(&self, bytes: usize) -> Result<(), UsedUp> {
        if self.0.share.lock().grow(bytes) { Ok(()) } else { Err(UsedUp) }
    }

    /// Whether there is room for so many bytes, now or in a moment.
    pub(crate) async fn has_room(&self, bytes: usize) -> Result<(), UsedUp> {
        self.0.memory.calls().take(bytes).await.map(drop)
    }

    /// The room of so many bytes that the call keeps while it waits. All such calls leave half of
    /// the memory to those that do not wait.
    pub(crate) fn for_wait(&self, bytes: usize) -> Result<WaitRoom, UsedUp> {
        let Pools { calls, waits, .. } = &*self.0.memory.0;
        let mut room = WaitRoom { calls: calls.share(), waits: waits.share() };
        if room.waits.grow(bytes) && room.calls.grow(bytes) { Ok(room) } else { Err(UsedUp) }
    }

    /// The call waits no longer, and what it kept counts as its own until its answer is counted.
    pub(crate) fn end_wait(&self, room: WaitRoom) {
        self.0.share.lock().add(room.calls);
    }

    /// Gives back all but so many bytes.
    pub(crate) fn keep(&self, bytes: usize) {
        self.0.body.lock().clear();
        self.0.share.lock().shrink_to(bytes);
    }

    /// Counts the answer, which is made, as all that the call holds.
    ///
    /// # Errors
    /// The memory has no room for the answer.
    pub(super) fn count_answer(&self, bytes: usize) -> Result<(), UsedUp> {
        self.keep(bytes);
        if bytes <= UNRESERVED_ANSWER_BYTES || self.0.answer.lock().is_some() {
            self.keep(0);
            return Ok(());
        }
        let held = self.0.share.lock().bytes();
        // An answer that is larger than all of the memory takes all.
        self.grow(bytes.min(self.0.memory.calls().bytes()).saturating_sub(held))
    }

    /// Takes what this JSON text needs when it is read. Whether it may ever be there.
    pub(crate) async fn read(&self, json: &[u8]) -> Result<bool, UsedUp> {
        // Every value but the first of a list or an object follows a comma.
        let most = memchr::memchr_iter(b',', json).count() * ELEMENT_OVERHEAD_BYTES;
        let bytes = if most <= MAX_ESTIMATED_BYTES {
            most
        } else {
            elements(json) * ELEMENT_OVERHEAD_BYTES
        };
        if bytes > self.0.memory.calls().bytes() {
            return Ok(false);
        }
        self.take(bytes).await.map(|()| true)
    }

    /// The room that an answer of so many bytes holds until it is written; a small one holds none.
    /// Until then the answer counts as its call; afterwards the call holds nothing.
    pub(super) async fn for_answer(&self, bytes: usize) -> Result<Option<Transfer>, UsedUp> {
        self.count_answer(bytes)?;
        let share = self.0.answer.lock().take();
        if bytes <= UNRESERVED_ANSWER_BYTES {
            return Ok(None);
        }
        let share = match share {
            Some(mut share) => {
                share.shrink_to(bytes);
                Ok(Some(share))
            }
            None => self.answer(bytes).await.map(Some),
        };
        self.keep(0);
        share
    }

    /// Fetched jobs as JSON: up to the one with which the text reaches `most` bytes. A text that is
    /// large is counted before it is written. `results`: of the acknowledgements of the call.
    /// `bytes`: of bodies and headers.
    pub(in crate::http) async fn json<'a, J: Iterator<Item = FetchedJob<'a>>>(
        &self,
        jobs: impl Fn() -> J,
        results: Option<&'a RawValue>,
        bytes: usize,
        most: usize,
    ) -> Result<Vec<u8>, UsedUp> {
        let of_results = results.map_or(0, |results| results.get().len());
        if bytes.saturating_add(of_results) <= UNRESERVED_ANSWER_BYTES {
            let fetched = Fetched::of(jobs().collect(), results);
            return Ok(serde_json::to_vec(&fetched).unwrap_or_default());
        }
        // A text that is not large is written once, within more room than it needs.
        let count = jobs().size_hint().1.unwrap_or(usize::MAX);
        let bound = count
            .saturating_mul(JOB_JSON_OVERHEAD_BYTES)
            .saturating_add(bytes.saturating_mul(MAX_JSON_BYTES_PER_BYTE))
            .saturating_add(of_results);
        if bound <= MAX_ESTIMATED_BYTES && bytes < most {
            let mut share = self.answer(bound).await?;
            let fetched = Fetched::of(jobs().collect(), results);
            let json = serde_json::to_vec(&fetched).unwrap_or_default();
            share.shrink_to(json.len());
            *self.0.answer.lock() = Some(share);
            return Ok(json);
        }
        let (mut size, mut count) = (0, 0);
        for job in jobs() {
            size += written(&job) + 1;
            count += 1;
            if size >= most {
                break;
            }
        }
        let begin = br#"{"jobs":["#;
        let end = match results {
            Some(results) => [r#"],"results":"#, results.get(), "}"],
            None => ["]}", "", ""],
        };
        let size = begin.len() + size + end.iter().map(|part| part.len()).sum::<usize>();
        let share = self.answer(size).await?;
        *self.0.answer.lock() = Some(share);
        let mut json = Vec::with_capacity(size);
        json.extend_from_slice(begin);
        for (at, job) in jobs().take(count).enumerate() {
            if at > 0 {
                json.push(b',');
            }
            // Memory takes what is written to it, and a job can be written as JSON.
            let _ = serde_json::to_writer(&mut json, &job);
        }
        end.iter().for_each(|part| json.extend_from_slice(part.as_bytes()));
        Ok(json)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Account {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // Without a listener there are no other calls.
        Ok(parts
            .extensions
            .get()
            .cloned()
            .unwrap_or_else(|| Account::new(&Memory::endless(), NO_PEER, HangUp::default())))
    }
}

/// Returns the size of this value as JSON, bytes.
fn written(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Returns the number of values in a JSON text besides the first one of each list and object.
fn elements(json: &[u8]) -> usize {
    let (mut count, mut in_text, mut is_escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b',' if !in_text => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;
    use crate::job::Job;

    #[test]
    fn the_elements_of_a_text_are_those_outside_of_strings() {
        for (json, count) in [
            ("", 0),
            ("[1,2,[3,4]]", 3),
            (r#"{"a":"1,2,3","b":","}"#, 1),
            (r#"["\",\\",",1]"#, 1),
            (r#"["\\",2,3"#, 2),
        ] {
            assert_eq!(elements(json.as_bytes()), count, "{json}");
        }
    }

    fn account(bytes: usize) -> Account {
        Account::new(&Memory::new(bytes, bytes), NO_PEER, HangUp::default())
    }

    fn held(share: Result<Option<Transfer>, UsedUp>) -> Option<usize> {
        share.unwrap().map(|share| share.bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_larger_than_the_memory_goes_out_alone() {
        let account = account(4 * UNRESERVED_ANSWER_BYTES);
        let job = Job::for_queue("emails", vec![1; UNRESERVED_ANSWER_BYTES]);
        let json = account
            .json(
                || std::iter::once(FetchedJob::peeked("a", &job, 0, 0)),
                None,
                UNRESERVED_ANSWER_BYTES + 1,
                usize::MAX,
            )
            .await
            .unwrap();
        assert!(json.len() > 4 * UNRESERVED_ANSWER_BYTES);
        let share = account.for_answer(json.len()).await.unwrap().unwrap();
        assert_eq!(
            (share.bytes(), account.for_answer(UNRESERVED_ANSWER_BYTES + 1).await.err()),
            (4 * UNRESERVED_ANSWER_BYTES, Some(UsedUp))
        );
        assert!(account.grow(4 * UNRESERVED_ANSWER_BYTES).is_ok(), "other calls have their own");
        // An answer that waits for its room counts as its call.
        assert_eq!(account.for_answer(UNRESERVED_ANSWER_BYTES + 1).await.err(), Some(UsedUp));
        let other = Account::new(&account.0.memory, NO_PEER, HangUp::default());
        let begun = crate::clock::now();
        assert_eq!(
            (
                account.grow(4 * UNRESERVED_ANSWER_BYTES),
                other.for_answer(UNRESERVED_ANSWER_BYTES + 1).await.err()
            ),
            (Ok(()), Some(UsedUp))
        );
        assert_eq!(crate::clock::now(), begun, "nothing waits that is not counted");
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_are_counted_before_they_are_written() {
        let job = Job::for_queue("emails", vec![1; UNRESERVED_ANSWER_BYTES]);
        let jobs = || (0..10).map(|_| FetchedJob::peeked("a", &job, 0, 0));
        let account = account(1 << 20);
        let whole = serde_json::to_vec(&Fetched::of(jobs().collect(), None)).unwrap();
        // Each byte is six in JSON.
        assert!(whole.len() > 60 * UNRESERVED_ANSWER_BYTES);
        assert!(
            account.json(jobs, None, 10 * UNRESERVED_ANSWER_BYTES, usize::MAX).await.unwrap()
                == whole
        );
        assert_eq!(
            account.json(jobs, None, 10 * UNRESERVED_ANSWER_BYTES, usize::MAX).await,
            Err(UsedUp)
        );
        assert_eq!(held(account.for_answer(whole.len()).await), Some(whole.len()));
        let cut = account
            .json(jobs, None, 10 * UNRESERVED_ANSWER_BYTES, 8 * UNRESERVED_ANSWER_BYTES)
            .await
            .unwrap();
        assert_eq!(cut, serde_json::to_vec(&Fetched::of(jobs().take(2).collect(), None)).unwrap());
        assert_eq!(held(account.for_answer(cut.len()).await), Some(cut.len()));
        assert_eq!(held(account.for_answer(UNRESERVED_ANSWER_BYTES).await), None);
    }

    #[tokio::test(start_paused = true)]
    async fn results_follow_the_jobs_however_large_both_are() {
        let job = Job::for_queue("emails", "x");
        let of = |count: usize| to_raw_value(&vec!["done"; count]).unwrap();
        for (bytes, results) in
            [(2, of(1)), (2, of(UNRESERVED_ANSWER_BYTES)), (MAX_ESTIMATED_BYTES, of(1))]
        {
            let account = account(1 << 20);
            let jobs = || (0..2).map(|_| FetchedJob::peeked("a", &job, 0, 0));
            let json = account.json(jobs, Some(&results), bytes, usize::MAX).await.unwrap();
            let whole = Fetched::of(jobs().collect(), Some(&results));
            assert!(json == serde_json::to_vec(&whole).unwrap(), "{bytes}");
        }
    }

    #[test]
    fn calls_that_wait_leave_half_of_the_memory_to_others() {
        let account = account(100);
        let room = account.for_wait(30).unwrap();
        assert_eq!(account.for_wait(30).err(), Some(UsedUp), "others wait");
        assert_eq!((account.grow(70), account.for_wait(1).err()), (Ok(()), Some(UsedUp)));
        drop(room);
        assert_eq!((account.grow(30), account.grow(1)), (Ok(()), Err(UsedUp)));
        // What other calls use takes nothing of the half of those that wait.
        account.keep(60);
        assert!(account.for_wait(40).is_ok());
    }

    #[test]
    fn what_a_call_kept_in_its_wait_counts_afterwards() {
        let account = account(100);
        let room = account.for_wait(30).unwrap();
        account.end_wait(room);
        assert_eq!(account.0.memory.calls().free(), 70);
        assert!(account.for_wait(50).is_ok(), "it waits no longer");
        account.keep(0);
        assert_eq!(account.0.memory.calls().free(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_text_that_can_never_be_read_is_told_apart() {
        let account = account(ELEMENT_OVERHEAD_BYTES * 3);
        assert_eq!(
            (
                account.read(b"[1,2,3,4]").await,
                account.read(b"[1,2]").await,
                account.read(b"[1,2,3,4,5]").await
            ),
            (Ok(true), Err(UsedUp), Ok(false))
        );
    }
}
