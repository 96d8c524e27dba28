//! Random calls of every script, and random damage, for the comparison with a real Redis.

use dwell_core::Destination;
use dwell_store::job::{Conflict, Target};
use dwell_store::store::record;
use dwell_store::store::scripts::Name;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::apply::settle_call;
use crate::call::{Call, IDS, MAIN, OTHER, Set, Sets, eight, job, keys, request};
use crate::reply::Reply;
use crate::taken::{Taken, taken};
use crate::world::{How, Phase, SPAN, Token, at};

/// Draws calls; knows the answers of earlier claims.
pub(crate) struct Random {
    rng: StdRng,
    /// Redis's clock, epoch µs.
    pub(crate) now_us: i64,
    nonces: u8,
    tokens: Vec<Token>,
    /// The last pop of each id.
    pops: [u8; 2],
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random {
            rng: StdRng::seed_from_u64(seed),
            now_us: at(0) * 1000 + 1,
            nonces: 0,
            tokens: Vec::new(),
            pops: [0, 0],
        }
    }

    pub(crate) fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.rng.random_range(0..list.len())]
    }

    pub(crate) fn is_one_in(&mut self, count: u8) -> bool {
        self.below(count) == 0
    }

    fn below(&mut self, end: u8) -> u8 {
        self.rng.random_range(0..end)
    }

    fn now_ms(&self) -> i64 {
        self.now_us / 1000
    }

    /// A moment near now, ms.
    fn near(&mut self) -> i64 {
        self.now_ms() + self.one_of(&[-SPAN, -1, 0, 1, 3, SPAN])
    }

    /// Redis's clock goes on.
    pub(crate) fn pass(&mut self) {
        self.now_us += self.one_of(&[1, 1, 500, 1000, SPAN * 1000, SPAN * 1001, 700_000_000]);
    }

    fn time(&mut self) -> String {
        match self.below(3) {
            0 => format!("={}", self.near()),
            1 => format!("+{}", self.one_of(&[0, 1, SPAN])),
            _ => format!("<{} {}", self.near(), self.one_of(&[0, SPAN])),
        }
    }

    /// A new nonce, or one that was used.
    fn nonce(&mut self) -> u8 {
        if self.nonces > 0 && self.below(3) == 0 {
            return self.below(self.nonces);
        }
        self.nonces = self.nonces.wrapping_add(1);
        self.nonces
    }

    /// A call of this script.
    pub(crate) fn call(&mut self, name: Name) -> Call {
        let (id, number) = (self.below(2), self.below(20));
        let flag = |is: bool| if is { "1" } else { "0" }.to_owned();
        match name {
            Name::Schedule => {
                let mut words = Vec::new();
                for id in self.one_of(&[&[0_u8, 1][..], &[0], &[1], &[]]) {
                    let (number, generation, set) = (self.below(20), self.below(40), self.set());
                    let mut asked = request(
                        *id,
                        number,
                        0,
                        job(self.below(3), SPAN as u32, set, number % 2 == 0),
                    );
                    asked.generated = self.below(5) == 0;
                    asked.call_id = (self.below(3) == 0).then(|| eight(generation));
                    let policy = self.one_of(&[
                        "replace",
                        "replace",
                        "keep",
                        "reject",
                        "other",
                        "debounce 1000",
                        "debounce 1000",
                    ]);
                    if policy.starts_with("debounce") {
                        asked.conflict = Conflict::Debounce { max_wait_ms: 1000 };
                    }
                    let (record, time) = (record::encode(&asked, eight(generation)), self.time());
                    let flags = self.one_of(&["0", "0", "0", "1", "1", "1", "2", "3", "5", "5@7"]);
                    words.extend([
                        IDS[usize::from(*id)].into(),
                        record,
                        time.into_bytes(),
                        policy.into(),
                        flags.into(),
                    ]);
                }
                words.extend(self.deadline().map(String::into_bytes));
                Call::of(name, words).on(self.sets())
            }
            Name::Pop => {
                let call = Call::pop(
                    self.nonce(),
                    self.queue(),
                    (self.deadline_us(), self.one_of(&[0, 5, SPAN])),
                    self.one_of(&[0, SPAN]),
                    self.one_of(&[&[1][..], &[2], &[100], &[1, 1], &[1, 0, 2]]),
                );
                let mut words = call.arguments;
                if self.below(3) == 0 {
                    words[4] = Vec::new();
                }
                // The longest lease, and the limits of bytes, of the first consumer.
                for at in [5, 7, 8] {
                    if self.below(5) == 0 {
                        words[at] = b"1".to_vec();
                    }
                }
                Call { arguments: words, ..call }
            }
            Name::Unpop => {
                let ids = self.one_of(&[&[][..], &[], &[0_u8], &[1], &[0, 1]]);
                Call::unpop(self.nonce(), self.below(2) == 0, self.queue(), ids)
            }
            Name::Acknowledge => self.acknowledge(),
            Name::End => Call::end(self.queue(), &[(id, self.below(40))]),
            Name::Purge => Call::purge(self.queue(), self.one_of(&["scheduled", "ready", "dead"])),
            Name::Claim => Call::claim(
                self.nonce(),
                self.one_of(&[0, SPAN]),
                self.one_of(&[1, 2, 100]),
                self.one_of(&[0, 5, SPAN]),
            ),
            Name::Rescue => {
                Call::rescue(self.nonce(), self.one_of(&[0, SPAN]), self.one_of(&[1, 2, 100]))
            }
            Name::TimeOut => {
                let sets = self.one_of(&Sets::EACH);
                Call::time_out(sets, self.one_of(&[1, 2, 100]))
            }
            Name::Reclaim => Call::reclaim(self.nonce()),
            Name::Complete => self.settle(How::Complete),
            Name::Hold => self.settle(How::Hold),
            Name::Release => {
                let (pause_ms, unpublished) = (self.one_of(&[0, SPAN]), self.below(2) == 0);
                self.settle(How::Release { pause_ms, unpublished })
            }
            Name::Retry => {
                let how = self.one_of(&[How::Retry, How::Die]);
                self.settle(how)
            }
            Name::Bury => self.settle(How::Bury),
            Name::Sweep => {
                let words = [
                    self.one_of(&[0, SPAN, 1 << 40]),
                    self.one_of(&[0, 1 << 40]),
                    self.one_of(&[0, 1 << 40]),
                    128,
                ];
                Call::of(name, words.map(|word: i64| word.to_string().into_bytes()).to_vec())
                    .on(Sets::Of(self.set()))
            }
            Name::Cancel
            | Name::Fire
            | Name::Finish
            | Name::Reschedule
            | Name::Requeue
            | Name::Fail => self.act(name, id, number),
            Name::ChangeSchedule => self.change_schedule(),
            Name::Move => {
                let mut asked = request(id, number, 0, job(0, 0, Set::Main, false));
                asked.job.target = Target::Broker {
                    broker: self.one_of(&[MAIN, OTHER]).to_owned(),
                    to: Destination::new("q"),
                };
                let record = record::encode(&asked, eight(self.below(40)));
                Call::of(name, vec![IDS[usize::from(id)].into(), record])
            }
            Name::FsckJobs => Call::fsck_jobs(self.below(2) == 0, SPAN).on(self.sets()),
            Name::FsckLeases => Call::fsck_leases(self.below(2) == 0, SPAN).on(self.sets()),
            Name::FsckMemories => {
                let repair = flag(self.below(2) == 0);
                Call::of(name, vec![repair.into_bytes(), b"1000".to_vec(), b"1000".to_vec()])
            }
            Name::FsckKey => Call::of(
                name,
                vec![
                    flag(self.below(2) == 0).into_bytes(),
                    self.one_of(&["zset", "zset", "hash"]).into(),
                ],
            ),
            Name::Forget => Call::of(Name::Forget, Vec::new()).on(Sets::Of(self.queue())),
            Name::FsckCounts => {
                let words = [
                    format!("={}", self.one_of(&["q", "r"])),
                    self.below(3).to_string(),
                    self.one_of(&["", "1"]).to_owned(),
                ];
                Call::of(name, words.map(String::into_bytes).to_vec())
            }
            Name::FsckHold => {
                let state = self.token().map(|token| token.state.to_vec()).unwrap_or_default();
                Call::of(
                    name,
                    vec![IDS[usize::from(id)].into(), state.clone(), b"+5".to_vec(), state],
                )
                .on(Sets::Of(self.set()))
            }
            Name::FsckAdopt => {
                let record = record::encode(
                    &request(id, number, 0, job(0, 0, self.set(), false)),
                    eight(40),
                );
                let place = self.one_of(&["held", "dead", "due:main", "due:=q", "-"]);
                let (score, mark) = (self.near().to_string(), format!("taken_in {number}"));
                Call::of(
                    name,
                    vec![
                        IDS[usize::from(id)].into(),
                        record,
                        Vec::new(),
                        place.into(),
                        score.into(),
                        mark.into(),
                    ],
                )
                .on(self.sets())
            }
        }
    }

    /// A change of the schedule of one id, with or without an occurrence under the other.
    fn change_schedule(&mut self) -> Call {
        let (id, other) = self.one_of(&[(0_usize, 1_usize), (1, 0)]);
        let record = record::encode(
            &request(0, self.below(20), 0, job(self.below(3), SPAN as u32, self.set(), false)),
            eight(self.below(3)),
        );
        // Version, digest, and a timing of one byte.
        let schedule = [&[1_u8][..], &[7; 16], &1_u32.to_be_bytes(), b"t", &record].concat();
        let states = ["", "", "first", "second"];
        let (read, state) = (self.one_of(&states), self.one_of(&["", "=", "first", "second"]));
        let next = if self.below(3) == 0 { String::new() } else { self.near().to_string() };
        let named = |is: bool| if is { IDS[other] } else { "" };
        let (alive, take, made) = (self.below(6) == 0, self.below(3) == 0, self.below(2) == 0);
        let asks = self.below(3) > 0;
        let fingerprint = if asks { eight(self.below(20)).to_vec() } else { Vec::new() };
        let bits = self.one_of(&["0", "1", "2", "3", "1 q", "1 r*"]);
        let verdict = self.one_of(&["added", "replaced", "cancelled", ""]);
        let mut words = vec![
            self.deadline().unwrap_or_default().into_bytes(),
            self.one_of(&["", "1"]).into(),
            IDS[id].into(),
            read.into(),
            state.into(),
            if self.below(2) == 0 || read.is_empty() { schedule } else { Vec::new() },
            next.into_bytes(),
            named(alive).into(),
            named(take).into(),
            eight(self.below(3)).to_vec(),
            fingerprint,
            bits.into(),
            verdict.into(),
            self.one_of(&["", "5"]).into(),
            u8::from(made).to_string().into_bytes(),
        ];
        if made {
            words.extend([IDS[other].into(), record, self.near().to_string().into_bytes()]);
        }
        Call::of(Name::ChangeSchedule, words).on(self.sets())
    }

    /// None, one that has passed, or one that has not.
    fn deadline(&mut self) -> Option<String> {
        self.deadline_us().map(|us| us.to_string())
    }

    fn deadline_us(&mut self) -> Option<i64> {
        let us = self.now_us;
        self.one_of(&[None, None, Some(us - 1), Some(us + 1)])
    }

    fn act(&mut self, name: Name, id: u8, number: u8) -> Call {
        let bits = self.below(4).to_string();
        let bits = self.deadline().map_or(bits.clone(), |us| format!("{bits}:{us}"));
        let mut words =
            vec![IDS[usize::from(id)].into(), eight(number).to_vec(), bits.into_bytes()];
        let seen = if self.below(2) == 0 { String::new() } else { self.near().to_string() };
        let generation = eight(self.below(40)).to_vec();
        match name {
            Name::Reschedule => words.extend([self.time().into_bytes(), generation]),
            Name::Requeue => words.push(generation),
            Name::Cancel => words.push(if self.below(2) == 0 { Vec::new() } else { generation }),
            Name::Finish => words.push(seen.into_bytes()),
            Name::Fail => {
                let token = self.token();
                let generation =
                    token.as_ref().map_or(generation, |token| token.state().generation.to_vec());
                let step = token.map_or(0, |token| token.state().step).to_string();
                let wait = self.one_of(&["", "+0", "+9000"]);
                words.extend([
                    seen.into_bytes(),
                    Vec::new(),
                    generation,
                    step.into(),
                    wait.into(),
                    b"why".to_vec(),
                    b"4".to_vec(),
                ]);
            }
            _ => {}
        }
        Call::of(name, words).on(self.sets())
    }

    /// Mostly all.
    fn sets(&mut self) -> Sets {
        self.one_of(&[Sets::All, Sets::All, Sets::All, Sets::Of(Set::Main), Sets::Of(Set::Queue)])
    }

    fn set(&mut self) -> Set {
        self.one_of(&[Set::Main, Set::Main, Set::Queue, Set::Queue, Set::OtherQueue])
    }

    fn queue(&mut self) -> Set {
        self.one_of(&[Set::Queue, Set::Queue, Set::Queue, Set::OtherQueue])
    }

    /// Acknowledgements of one or two jobs of the same queue.
    fn acknowledge(&mut self) -> Call {
        let set = self.queue();
        let mut words = Vec::new();
        for id in self.one_of(&[&[0_u8][..], &[1], &[0, 1], &[]]) {
            let last = self.pops[usize::from(*id)];
            let nonce = if self.below(4) == 0 { self.nonce() } else { last };
            let word = self
                .one_of(&["finish", "fail", "fail", "release", "touch", "touch", "drop", "bury"]);
            let more = match word {
                "fail" => self.one_of(&["+9000:why", "+0:why", ":why"]),
                "release" | "touch" => self.one_of(&["+0", "+9000"]),
                "bury" => "3:why",
                _ => "",
            };
            words.push((word, *id, nonce, more.to_owned()));
        }
        let call = Call::acknowledge(set, &words);
        if self.below(4) == 0 { call.on(Sets::All) } else { call }
    }

    fn token(&mut self) -> Option<Token> {
        let at = self.rng.random_range(0..self.tokens.len().max(1));
        self.tokens.get(at).cloned()
    }

    fn settle(&mut self, how: How) -> Call {
        let Some(mut token) = self.token() else { return Call::claim(self.nonce(), SPAN, 2, SPAN) };
        if self.below(8) == 0 {
            token.lease.1 = eight(1);
        }
        settle_call(how, &[token])
    }

    /// Remembers the jobs of a claim or a rescue.
    pub(crate) fn saw(&mut self, call: &Call, reply: &Reply) {
        if call.name == Name::Pop {
            for job in reply.items().get(7..).unwrap_or_default().chunks_exact(5) {
                self.pops[usize::from(job[0].bytes() == IDS[1].as_bytes())] = call.arguments[0][7];
            }
        }
        if !matches!(call.name, Name::Claim | Name::Rescue) {
            return;
        }
        let nonce = <[u8; 8]>::try_from(&call.arguments[0][..]).expect("a nonce has 8 bytes");
        for Taken { lease, position, id, set, has_state, state, .. } in
            taken(nonce, reply).unwrap_or_default()
        {
            let (state, phase) = (state.encode().into(), Phase::Claimed);
            self.tokens.push(Token {
                lease,
                position,
                id,
                set,
                has_state,
                state,
                ready: 0,
                deadline: 0,
                number: 0,
                earliest: 0,
                phase,
            });
        }
    }

    /// A command that damages a bucket.
    pub(crate) fn damage(&mut self) -> Vec<Vec<u8>> {
        let keys = keys();
        let (id, number) = (IDS[usize::from(self.below(2))], self.below(self.nonces.max(1)));
        let (score, nonce, due) = (self.near().to_string(), eight(number), keys.due(0, MAIN));
        let (due_q, dead_q, pops) =
            (keys.due(0, Set::Queue.name()), keys.dead_of(0, Set::Queue.name()), keys.pops(0));
        let words: [&[&[u8]]; 16] = [
            &[b"HDEL", keys.claims(0).as_bytes(), &nonce],
            &[b"HDEL", keys.settled(0).as_bytes(), &nonce],
            &[b"ZREM", keys.claim_deadlines(0).as_bytes(), &nonce],
            &[b"ZADD", keys.held(0).as_bytes(), score.as_bytes(), id.as_bytes()],
            &[b"ZADD", keys.dead(0).as_bytes(), score.as_bytes(), id.as_bytes()],
            &[b"ZADD", due.as_bytes(), score.as_bytes(), id.as_bytes()],
            &[b"ZREM", due.as_bytes(), id.as_bytes()],
            &[b"HDEL", keys.jobs(0).as_bytes(), id.as_bytes()],
            &[b"HSET", keys.jobs(0).as_bytes(), id.as_bytes(), b"\x01short"],
            &[b"HSET", keys.state(0).as_bytes(), id.as_bytes(), b"\x02of another version"],
            &[b"HSETNX", keys.state(0).as_bytes(), b"", b"b:0"],
            &[b"ZADD", due_q.as_bytes(), score.as_bytes(), id.as_bytes()],
            &[b"ZADD", dead_q.as_bytes(), score.as_bytes(), id.as_bytes()],
            &[b"UNLINK", pops[0].as_bytes()],
            &[b"HSET", keys.queues(0).as_bytes(), b"!=q", b"1"],
            &[b"HDEL", keys.queues(0).as_bytes(), b"!=q"],
        ];
        let at = usize::from(self.below(16));
        words[at].iter().map(|word| word.to_vec()).collect()
    }
}
