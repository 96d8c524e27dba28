//! A consumer: it pops, works and says what became of the jobs, until it is killed or told to stop.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::scene::{QUEUE, Scene};
use super::words::{Outcome, Word, say, unsure};
use crate::chaos::history::{Op, Phase, PoppedJob};
use crate::client::Link;
use crate::client::answers::Fetched;
use dwell::clock;

/// The lease of each pop, ms.
pub(crate) const TTR_MS: i64 = 2000;
/// The most jobs of a pop.
const MAX_POP_JOBS: u64 = 40;
/// The longest life of a consumer that is killed, ms.
const MAX_LIFE_MS: u64 = 4000;
/// The longest wait of a pop, ms.
const POP_WAIT_MS: u64 = 5000;
/// The longest work of most consumers, ms.
const MAX_WORK_MS: i64 = 200;
/// The wait after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The activity of a consumer.
enum Activity {
    /// It asked for so many jobs.
    Popping(u64),
    /// It works on jobs.
    Holding,
    /// It said these words, and waits for the answer.
    Speaking(Vec<Word>),
}

struct Consumer<'a> {
    scene: &'a Arc<Scene>,
    random: StdRng,
    link: Link,
    activity: Activity,
}

/// Consumers at one place until told to stop. A mortal one is killed at a random time, whatever it
/// is doing, and replaced at once.
pub(crate) async fn consume(scene: Arc<Scene>, seed: u64, is_mortal: bool) {
    let mut random = StdRng::seed_from_u64(seed);
    while !scene.stop.is_cancelled() {
        let mut own = StdRng::seed_from_u64(random.random());
        let link = scene.link(&mut own);
        let mut consumer =
            Consumer { scene: &scene, random: own, link, activity: Activity::Holding };
        if !is_mortal {
            return consumer.work().await;
        }
        let life = Duration::from_millis(random.random_range(0..MAX_LIFE_MS));
        if clock::timeout(life, consumer.work()).await.is_none() {
            consumer.killed();
        }
    }
}

impl Consumer<'_> {
    /// Works until told to stop.
    async fn work(&mut self) {
        let stop = self.scene.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            never = self.rounds() => never,
        }
    }

    async fn rounds(&mut self) {
        loop {
            if self.random.random_bool(0.1) {
                // An instance that came back gets consumers again.
                self.link = self.scene.link(&mut self.random);
            }
            if let Some(words) = self.pop().await {
                self.task(&words).await;
                self.speak(words).await;
            }
        }
    }

    /// A pop. The words that the consumer will say of its jobs; `None` if there are no jobs.
    async fn pop(&mut self) -> Option<Vec<Word>> {
        let max = self.random.random_range(1..=MAX_POP_JOBS);
        let (path, wait_ms) =
            (format!("/v1/queues/{QUEUE}/pop"), self.random.random_range(200..=POP_WAIT_MS));
        let ask = json!({ "max": max, "wait": wait_ms, "ttr": TTR_MS });
        self.activity = Activity::Popping(max);
        let popping = self.link.post(&path, &ask);
        let answer = if self.random.random_bool(0.02) {
            // The consumer goes away while it waits, or while the answer is on its way.
            clock::timeout(Duration::from_millis(self.random.random_range(0..20)), popping).await
        } else {
            Some(popping.await)
        };
        let answered = self.answered(answer, max);
        self.activity = Activity::Holding;
        let Some(body) = answered else {
            self.link = self.scene.link(&mut self.random);
            clock::sleep(RETRY_PAUSE).await;
            return None;
        };
        self.taken(&body)
    }

    /// The body of the answer to a pop of at most so many jobs.
    fn answered(&self, answer: Option<io::Result<(u16, Bytes)>>, max: u64) -> Option<Bytes> {
        let mut tally = self.scene.tally.lock();
        let count = match answer {
            Some(Ok((200, body))) => return Some(body),
            Some(Ok(_)) => &mut tally.pops_unavailable,
            Some(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                tally.pops_refused += 1;
                return None;
            }
            Some(Err(_)) => &mut tally.pops_cut_off,
            None => &mut tally.pops_left,
        };
        *count += 1;
        tally.unanswered_jobs += max;
        None
    }

    /// Writes down the hand-outs.
    fn taken(&mut self, body: &[u8]) -> Option<Vec<Word>> {
        let Fetched { jobs } = serde_json::from_slice(body).ok()?;
        if jobs.is_empty() {
            self.scene.tally.lock().pops_empty += 1;
            return None;
        }
        self.scene.tally.lock().pops_with_jobs += 1;
        for job in &jobs {
            let popped = PoppedJob {
                id: job.id.clone().into_owned(),
                lease: job.lease.clone().into_owned(),
                attempt: job.attempt,
                begun_ms: job.deadline_ms - TTR_MS,
                deadline_ms: job.deadline_ms,
                is_damaged: job.body != job.id,
            };
            self.scene.recorder.record("consumer", Phase::Ok, Op::Pop(popped));
        }
        Some(jobs.iter().map(|job| Word::about(job, &mut self.random)).collect())
    }

    /// The work: most of the time much shorter than the lease, at times just as long, so that the
    /// lease runs out while the words are under way, and at times longer.
    async fn task(&mut self, words: &[Word]) {
        let left_ms =
            words.iter().map(|word| word.deadline_ms).min().unwrap_or(0) - clock::wall_ms();
        let ms = match self.random.random_range(0..100) {
            0..4 => left_ms + self.random.random_range(-4..=2),
            4 => left_ms + self.random.random_range(50..300),
            _ => self.random.random_range(0..MAX_WORK_MS),
        };
        clock::sleep(clock::micros(ms * 1000)).await;
    }

    /// Says words until they are answered.
    async fn speak(&mut self, words: Vec<Word>) {
        self.activity = Activity::Speaking(words);
        loop {
            let Activity::Speaking(words) = &self.activity else { return };
            if say(self.scene, &mut self.link, words).await {
                break;
            }
            unsure(self.scene, words);
            self.link = self.scene.link(&mut self.random);
            clock::sleep(RETRY_PAUSE).await;
        }
        self.activity = Activity::Holding;
    }

    /// The consumer was killed: its connection is closed, and nobody says its words.
    fn killed(self) {
        let tally = &self.scene.tally;
        match self.activity {
            Activity::Popping(max) => {
                tally.lock().killed_waiting += 1;
                tally.lock().unanswered_jobs += max;
            }
            Activity::Holding => tally.lock().killed_holding += 1,
            Activity::Speaking(words) => {
                tally.lock().killed_speaking += 1;
                unsure(self.scene, &words);
                let mut finishes = words;
                finishes.retain(|word| word.outcome == Outcome::Finish);
                if !finishes.is_empty() {
                    let inquest = inquest(self.scene.clone(), finishes, self.random);
                    self.scene.inquests.lock().spawn(inquest);
                }
            }
        }
    }
}

/// Finds out what became of the last words of a dead consumer: said again after the end of the
/// leases they change nothing, and the answer is `fired` where they counted.
async fn inquest(scene: Arc<Scene>, words: Vec<Word>, mut random: StdRng) {
    let after_ms = words.iter().map(|word| word.deadline_ms).max().unwrap_or(0) + 20;
    clock::sleep(clock::micros((after_ms - clock::wall_ms()) * 1000)).await;
    while !say(&scene, &mut scene.link(&mut random), &words).await {
        if scene.stop.is_cancelled() {
            return;
        }
        clock::sleep(RETRY_PAUSE).await;
    }
}
