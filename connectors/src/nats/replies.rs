//! Answers to publications: what waits for one, what comes, and what becomes of the rest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Subject, Subscriber};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, ReadyChunks, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::answer::{Answer, denied_subject, read};
use super::link::{Link, denied};
use super::stream;
use crate::{ConnectorError, Outcome, Token};

/// How long the answer to "which stream has this subject" is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// The most answers that are taken over at once.
const CHUNK: usize = 512;

type Outcomes = Vec<(Token, Outcome)>;

/// The publications of one sink that have no outcome yet, by number. Numbers rise with time, so the first is the oldest.
pub(super) struct Window {
    state: Mutex<State>,
    closed: Notify,
}

struct State {
    /// `None` once every outcome was given and none can come.
    out: Option<mpsc::UnboundedSender<Outcomes>>,
    open: BTreeMap<u64, Open>,
    next: u64,
    closing: bool,
}

struct Open {
    token: Token,
    subject: Subject,
    since: Instant,
    written: bool,
}

impl Window {
    pub(super) fn new(out: mpsc::UnboundedSender<Outcomes>) -> Self {
        Window { state: Mutex::new(State { out: Some(out), open: BTreeMap::new(), next: 0, closing: false }), closed: Notify::new() }
    }

    /// Takes in publications that are about to be written, and gives the outcomes of those that never will be. The number of the first, the others
    /// follow; `None` when the link is gone.
    pub(super) fn open(&self, publications: impl Iterator<Item = (Token, Subject)>, outcomes: Outcomes) -> Option<u64> {
        let mut state = self.state.lock();
        state.out.as_ref()?;
        let (first, since) = (state.next, Instant::now());
        for (token, subject) in publications {
            let number = state.next;
            state.next += 1;
            state.open.insert(number, Open { token, subject, since, written: false });
        }
        state.give(outcomes);
        Some(first)
    }

    /// This one is written now; false when it has its outcome already.
    pub(super) fn written(&self, number: u64) -> bool {
        self.state.lock().open.get_mut(&number).map(|open| open.written = true).is_some()
    }

    /// This one was not written after all.
    pub(super) fn not_written(&self, number: u64) {
        if let Some(open) = self.state.lock().open.get_mut(&number) {
            open.written = false;
        }
    }

    /// Nothing more will be published.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.closed.notify_one();
    }

    /// Whether all is done: closed, and every outcome given.
    fn is_done(&self) -> bool {
        let state = self.state.lock();
        state.closing && state.open.is_empty()
    }

    /// The publications that have waited too long are unknown.
    fn expire(&self, patience: Duration) {
        let mut state = self.state.lock();
        let mut outcomes = Vec::new();
        while let Some(first) = state.open.first_entry().filter(|first| first.get().since.elapsed() >= patience) {
            let open = first.remove();
            outcomes.push((open.token, Outcome::Unknown(format!("no answer for `{}` within {patience:?}", open.subject))));
        }
        state.give(outcomes);
    }

    /// Everything that waits for this subject has this outcome.
    fn deny(&self, subject: &str, why: &str) {
        let mut state = self.state.lock();
        let mut outcomes = Vec::new();
        state.open.retain(|_, open| {
            let denied = open.written && open.subject.as_str() == subject;
            if denied {
                outcomes.push((open.token, Outcome::Unroutable(why.to_owned())));
            }
            !denied
        });
        state.give(outcomes);
    }

    /// The link is gone: what was written is unknown, what was not is refused. Then outcomes end.
    fn end(&self, why: &str) {
        let mut state = self.state.lock();
        let each = std::mem::take(&mut state.open).into_values().map(|Open { token, written, .. }| {
            (token, if written { Outcome::Unknown(why.to_owned()) } else { Outcome::Refused(why.to_owned()) })
        });
        let outcomes = each.collect();
        state.give(outcomes);
        state.out = None;
    }
}

impl State {
    fn give(&self, outcomes: Outcomes) {
        if let Some(out) = &self.out
            && !outcomes.is_empty()
        {
            // A caller that dropped the receiver wants none.
            let _ = out.send(outcomes);
        }
    }
}

/// The task that reads answers.
pub(super) struct Replies {
    link: Arc<Link>,
    window: Arc<Window>,
    answers: ReadyChunks<Subscriber>,
    patience: Duration,
    /// Publications whose subject is being looked up.
    asking: HashMap<String, Vec<Token>>,
    looks: FuturesUnordered<BoxFuture<'static, (String, Result<bool, ConnectorError>)>>,
    /// Whether a stream has the subject, and when that was said.
    known: HashMap<String, (bool, Instant)>,
}

impl Replies {
    pub(super) fn start(
        link: Arc<Link>,
        window: Arc<Window>,
        answers: Subscriber,
        complaints: mpsc::UnboundedReceiver<String>,
        patience: Duration,
    ) {
        let answers = answers.ready_chunks(CHUNK);
        let looks = FuturesUnordered::new();
        let mut replies = Replies { link, window, answers, patience, asking: HashMap::new(), looks, known: HashMap::new() };
        tokio::spawn(async move {
            replies.run(complaints).await;
            replies.end();
        });
    }

    /// Until the link is lost, or the sink closed and every answer came.
    async fn run(&mut self, mut complaints: mpsc::UnboundedReceiver<String>) {
        let mut tick = interval((self.patience / 20).clamp(Duration::from_millis(5), Duration::from_millis(250)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !(self.window.is_done() && self.asking.is_empty()) {
            tokio::select! {
                biased;
                () = self.link.lost() => return,
                chunk = self.answers.next() => match chunk {
                    Some(chunk) => self.answered(&chunk),
                    None => return self.link.lose("the client has ended"),
                },
                Some((subject, found)) = self.looks.next() => self.looked(subject, found),
                Some(complaint) = complaints.recv() => self.complained(&complaint),
                () = self.window.closed.notified() => {}
                _ = tick.tick() => {
                    self.window.expire(self.patience);
                    self.known.retain(|_, (_, when)| when.elapsed() < BELIEVED);
                    if self.link.is_lost() {
                        return;
                    }
                }
            }
        }
    }

    fn answered(&mut self, chunk: &[async_nats::Message]) {
        let mut outcomes = Vec::with_capacity(chunk.len());
        let mut nobody = Vec::new();
        let mut state = self.window.state.lock();
        for message in chunk {
            let number = message.subject.rsplit_once('.').and_then(|(_, number)| number.parse().ok());
            // One that has its outcome already: it came too late.
            let Some(open) = number.and_then(|number: u64| state.open.remove(&number)) else { continue };
            match read(message) {
                Answer::Is(outcome) => outcomes.push((open.token, outcome)),
                Answer::NoResponders => nobody.push(open),
            }
        }
        state.give(outcomes);
        drop(state);
        for Open { token, subject, .. } in nobody {
            self.nobody_answers(token, subject.into_string());
        }
    }

    /// No stream has the subject, or its stream has no leader now: asks once for a subject, and believes the answer for a moment.
    fn nobody_answers(&mut self, token: Token, subject: String) {
        if let Some((found, when)) = self.known.get(&subject)
            && when.elapsed() < BELIEVED
        {
            let outcome = no_responders(&subject, *found);
            return self.window.state.lock().give(vec![(token, outcome)]);
        }
        let asking = self.asking.entry(subject.clone()).or_default();
        asking.push(token);
        if asking.len() == 1 {
            let link = Arc::clone(&self.link);
            self.looks.push(
                async move {
                    let found = stream::find(&link, &subject).await.map(|stream| stream.is_some());
                    (subject, found)
                }
                .boxed(),
            );
        }
    }

    fn looked(&mut self, subject: String, found: Result<bool, ConnectorError>) {
        let outcome = match found {
            Ok(found) => {
                self.known.insert(subject.clone(), (found, Instant::now()));
                no_responders(&subject, found)
            }
            // Whether there is a stream is open; that nothing was stored is not.
            Err(error) => Outcome::Refused(format!("nobody answers for `{subject}`, and why is not known: {error}")),
        };
        let tokens = self.asking.remove(&subject).unwrap_or_default();
        self.window.state.lock().give(tokens.into_iter().map(|token| (token, outcome.clone())).collect());
    }

    fn complained(&self, complaint: &str) {
        if let Some(subject) = denied_subject(complaint) {
            self.window.deny(subject, &format!("publishing to `{subject}` is not permitted"));
        } else if denied(complaint).is_some() {
            // Without its answers the sink is of no use.
            self.link.lose(complaint);
        }
    }

    /// Gives every outcome that is still out: first what has arrived, then what will not.
    fn end(&mut self) {
        while let Some(Some(chunk)) = self.answers.next().now_or_never() {
            self.answered(&chunk);
        }
        let why = self.link.error().message;
        let asked: Outcomes =
            self.asking.drain().flat_map(|(_, tokens)| tokens).map(|token| (token, Outcome::Refused(why.clone()))).collect();
        self.window.state.lock().give(asked);
        self.window.end(&why);
    }
}

fn no_responders(subject: &str, found: bool) -> Outcome {
    if found {
        Outcome::Refused(format!("the stream of `{subject}` does not answer now"))
    } else {
        Outcome::Unroutable(format!("no stream has the subject `{subject}`"))
    }
}
