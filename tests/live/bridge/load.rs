//! A producer that keeps the ledger, and jobs of mixed delays.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use dwell::clock;
use dwell_connectors::{
    BrokerConfig, Destination, Message, Outcome, Outcomes, Publication, Sink, Token,
};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::environment::{SharedLedger, TARGET};
use crate::support::wait_until;

/// The longest wait of a producer for the broker's word on its requests.
const CONFIRM: Duration = Duration::from_secs(10);
/// Requests without a word that a producer has at most.
const WINDOW: usize = 1000;
/// The bytes of a body.
const BODY: usize = 200;

/// When a job is due.
#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    /// Epoch ms.
    At(i64),
    /// Ms after the broker took the request.
    In(i64),
}

/// A job to ask for.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) when: When,
}

impl Job {
    /// The request as it is sent.
    pub(crate) fn request(&self) -> Message {
        let message = Message::new(body(&self.id))
            .with_header("delay-id", &*self.id)
            .with_header("delay-target", TARGET);
        match self.when {
            When::At(ms) => message.with_header("delay-until", ms.to_string()),
            When::In(ms) => message.with_header("delay-for", ms.to_string()),
        }
    }

    /// Returns the possible due times of a request that the broker took between these times.
    fn due_ms(&self, from_ms: i64, to_ms: i64) -> RangeInclusive<i64> {
        match self.when {
            When::At(ms) => ms..=ms,
            When::In(ms) => from_ms + ms..=to_ms + ms,
        }
    }
}

/// Bytes of every value, other ones for each id.
pub(crate) fn body(id: &str) -> Vec<u8> {
    let mut bytes = vec![0; BODY];
    blake3::Hasher::new().update(id.as_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Jobs at once, after a while, at a time of their own, and at an instant that many share.
pub(crate) fn mixed(numbers: std::ops::Range<usize>) -> Vec<Job> {
    let now_ms = clock::wall_ms();
    let job = |n: usize| {
        let spread = i64::try_from(n).unwrap();
        let when = match n % 4 {
            0 => When::In(0),
            1 => When::At(now_ms + spread * 37 % 4000),
            2 => When::At((now_ms / 1000 + 2) * 1000),
            _ => When::In(spread * 13 % 3000),
        };
        Job { id: format!("job-{n}"), when }
    };
    numbers.map(job).collect()
}

/// Sends, and enters what the broker took into the ledger. Without the broker's word a job is
/// entered as one that may come.
pub(crate) struct Producer {
    broker: BrokerConfig,
    ledger: SharedLedger,
    link: Option<(Box<dyn Sink>, Outcomes)>,
    next: Token,
}

impl Producer {
    /// Connects when it first sends.
    pub(crate) fn new(broker: BrokerConfig, ledger: SharedLedger) -> Self {
        Producer { broker, ledger, link: None, next: 0 }
    }

    /// Sends these jobs; returns when each is entered.
    pub(crate) async fn send(&mut self, jobs: &[Job]) {
        for jobs in jobs.chunks(WINDOW) {
            self.send_window(jobs).await;
        }
    }

    async fn send_window(&mut self, jobs: &[Job]) {
        let messages = jobs.iter().map(Job::request).collect();
        let from_ms = clock::wall_ms();
        let outcomes = self.publish(messages).await;
        // Parts of a millisecond are rounded up.
        let to_ms = clock::wall_ms() + 1;
        let mut ledger = self.ledger.lock();
        for (job, outcome) in jobs.iter().zip(outcomes) {
            let due_ms = job.due_ms(from_ms, to_ms);
            match outcome {
                Some(Outcome::Confirmed) => ledger.asked(&job.id, due_ms, &body(&job.id)),
                _ => ledger.perhaps(&job.id, due_ms, &body(&job.id)),
            }
        }
    }

    /// Sends these messages to the ingest: per message the broker's word, `None` where there is
    /// none.
    pub(crate) async fn publish(&mut self, messages: Vec<Message>) -> Vec<Option<Outcome>> {
        let count = messages.len();
        let (sink, outcomes) = match &mut self.link {
            Some(link) => link,
            none => none.insert(connect(self.broker.clone()).await),
        };
        let first = self.next;
        self.next += count as Token;
        let to = Destination::new("delay.in");
        let batch = (first..).zip(messages).map(|(token, message)| Publication {
            token,
            to: to.clone(),
            message,
            dedupe_id: String::new(),
            deadline: None,
        });
        sink.publish(batch.collect()).await;
        let mut words = HashMap::new();
        let all = timeout(CONFIRM, async {
            while words.len() < count {
                let Some(batch) = outcomes.recv().await else { return false };
                words.extend(batch.into_iter().filter(|(token, _)| *token >= first));
            }
            true
        });
        if !matches!(all.await, Ok(true)) {
            self.link = None;
        }
        (first..).take(count).map(|token| words.remove(&token)).collect()
    }
}

/// A link, over restarts of the broker.
async fn connect(broker: BrokerConfig) -> (Box<dyn Sink>, Outcomes) {
    // Each try owns its part: the future is sent to another thread.
    let open = move || {
        let broker = broker.clone();
        async move { broker.sink(CONFIRM).await.ok() }
    };
    wait_until("a link for the producer", open).await
}

/// A producer at work.
pub(crate) struct Load {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Load {
    pub(crate) fn start(mut producer: Producer, per_tick: usize) -> Load {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut ticks = interval(Duration::from_millis(100));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut sent = 0;
            while !stopped.is_cancelled() {
                ticks.tick().await;
                producer.send(&mixed(sent..sent + per_tick)).await;
                sent += per_tick;
            }
        });
        Load { stop, task }
    }

    /// Sends nothing more; returns when everything is entered.
    pub(crate) async fn finish(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}
