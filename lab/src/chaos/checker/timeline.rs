//! The known events of each job: requests, answers, arrivals.

use std::collections::{BTreeMap, HashSet};

use crate::chaos::history::{
    Arrival, ControlRequest, Event, Fault, Job, Op, Phase, Place, Schedule, UNREADABLE,
};

/// The events of one job.
#[derive(Debug, Default)]
pub(super) struct Timeline<'a> {
    pub(super) job: Option<&'a Job>,
    /// When it was first sent, epoch µs.
    pub(super) sent_us: i64,
    /// Requested by a message, which the broker may redeliver.
    pub(super) by_message: bool,
    /// The request was confirmed: the job must arrive.
    pub(super) certain: bool,
    /// The request was surely refused: the job must not arrive.
    pub(super) refused: bool,
    /// The requests of a burst, in their order.
    pub(super) burst: Vec<Requested<'a>>,
    /// The control requests of producers.
    pub(super) asks: Vec<Asked<'a>>,
    /// The words of the job's consumer.
    pub(super) words: Vec<Asked<'a>>,
    /// The verdicts in the order of receipt.
    pub(super) replies: Vec<Heard<'a>>,
    pub(super) deliveries: Vec<Came<'a>>,
    pub(super) deaths: Vec<Came<'a>>,
    pub(super) rejections: Vec<Came<'a>>,
    /// The failovers that may have undone the last actions on the job.
    rollbacks: Vec<&'a Fault>,
}

/// A request of a burst.
#[derive(Debug)]
pub(super) struct Requested<'a> {
    number: u64,
    pub(super) job: &'a Job,
    pub(super) at_us: i64,
    /// Confirmed: it counts.
    pub(super) certain: bool,
    /// When it was answered over HTTP, epoch µs: it had been carried out.
    pub(super) answered_us: Option<i64>,
}

/// A control request, or a consumer's word.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) action: &'static str,
    /// The number of a word.
    number: Option<u64>,
    pub(super) at_us: i64,
    /// The new time of a reschedule.
    pub(super) due_ms: Option<i64>,
    pub(super) by_message: bool,
    /// When the broker confirmed it, epoch µs. Requests over HTTP have only the verdict, except a
    /// pause and a resume.
    pub(super) confirmed_us: Option<i64>,
    /// The verdict on a word; only over HTTP.
    pub(super) verdict: Option<&'a str>,
}

/// A verdict.
#[derive(Debug)]
pub(super) struct Heard<'a> {
    pub(super) at_us: i64,
    pub(super) action: &'a str,
    pub(super) res: &'a str,
}

/// A received message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Came<'a> {
    pub(super) at_us: i64,
    pub(super) what: &'a Arrival,
}

impl Came<'_> {
    /// The broker's time of receipt, epoch µs (from ms); without one, the time of the read.
    pub(super) fn taken_us(&self) -> i64 {
        self.what.taken_ms.map_or(self.at_us, |taken_ms| (taken_ms * 1000 + 999).min(self.at_us))
    }
}

/// All jobs by their ids.
pub(super) fn timelines<'a>(
    events: &'a [Event],
    faults: &'a [Fault],
) -> BTreeMap<&'a str, Timeline<'a>> {
    let mut timelines: BTreeMap<&str, Timeline<'_>> = BTreeMap::new();
    let mut seen = Seen { places: HashSet::new(), faults };
    for event in events {
        let Some(id) = event.op.id() else { continue };
        let timeline = timelines.entry(id).or_default();
        match &event.op {
            Op::Schedule(Schedule { job, number: Some(number), .. }) => {
                timeline.add_to_burst(event, *number, job.as_ref());
            }
            Op::Schedule(schedule) => match (event.phase, &schedule.job) {
                // A repeat is the same job.
                (Phase::Invoke, Some(job)) if timeline.job.is_none() => {
                    (timeline.job, timeline.sent_us, timeline.by_message) =
                        (Some(job), event.t_us, !event.is_over_http());
                }
                (Phase::Ok, _) => timeline.certain = true,
                (Phase::Fail, _) => timeline.refused = true,
                _ => {}
            },
            Op::Cancel(ask) => note(&mut timeline.asks, "cancel", event, ask),
            Op::Reschedule(ask) => note(&mut timeline.asks, "reschedule", event, ask),
            Op::Fire(ask) => note(&mut timeline.asks, "fire", event, ask),
            Op::Pause(ask) => note(&mut timeline.asks, "pause", event, ask),
            Op::Resume(ask) => note(&mut timeline.asks, "resume", event, ask),
            Op::Finish(ask) => note(&mut timeline.words, "finish", event, ask),
            Op::Fail(ask) => note(&mut timeline.words, "fail", event, ask),
            // It is in the log, whatever the producer was told.
            Op::Inbound(arrival) => timeline.certain |= arrival.action.is_empty(),
            Op::Reply(reply) => {
                let is_of =
                    |word: &&mut Asked<'_>| word.number.is_some() && word.number == reply.number;
                if let Some(word) = timeline.words.iter_mut().find(is_of) {
                    word.verdict = Some(&reply.res);
                }
                timeline.certain |= reply.action == "schedule" && reply.res != UNREADABLE;
                timeline.hear(event, &reply.action, &reply.res);
            }
            // The job is unchanged: this is the answer.
            Op::Reject(what) if what.reason == UNREADABLE => {
                let action = if what.action.is_empty() { "schedule" } else { &what.action };
                timeline.hear(event, action, &what.reason);
            }
            Op::Deliver(what) => seen.add(&mut timeline.deliveries, event.t_us, what),
            Op::Dead(what) => seen.add(&mut timeline.deaths, event.t_us, what),
            Op::Reject(what) => seen.add(&mut timeline.rejections, event.t_us, what),
            _ => {}
        }
    }
    for (id, timeline) in &mut timelines {
        timeline.rollbacks = faults.iter().filter(|fault| fault.rolls_back(id)).collect();
    }
    timelines
}

/// Notes a request or its outcome.
fn note(list: &mut Vec<Asked<'_>>, action: &'static str, event: &Event, ask: &ControlRequest) {
    let is_it = |one: &Asked<'_>| (one.action, one.number) == (action, ask.number);
    match event.phase {
        Phase::Invoke => list.push(Asked {
            action,
            number: ask.number,
            at_us: event.t_us,
            due_ms: ask.due_ms,
            by_message: !event.is_over_http(),
            confirmed_us: None,
            verdict: None,
        }),
        // It was not sent.
        Phase::Fail => list.retain(|one| !is_it(one)),
        Phase::Ok => {
            let confirmed = list.iter_mut().filter(|one| is_it(one));
            confirmed.for_each(|one| one.confirmed_us = Some(event.t_us));
        }
        Phase::Info => {}
    }
}

/// Detects messages that were read before.
struct Seen<'a> {
    places: HashSet<(&'a Place, &'a str, Option<u32>)>,
    faults: &'a [Fault],
}

impl<'a> Seen<'a> {
    fn add(&mut self, list: &mut Vec<Came<'a>>, at_us: i64, what: &'a Arrival) {
        let is_new = match &what.place {
            // A log that was deleted and created again restarts its positions, so the message is
            // part of the key.
            Some(place) => self.places.insert((place, &what.id, what.attempt)),
            None => !self.is_repeated(list, at_us, what),
        };
        if is_new {
            list.push(Came { at_us, what });
        }
    }

    /// AMQP has no positions. A copy from Dwell has another attempt. An equal message is the same
    /// message if the broker may have delivered it twice: it is marked as redelivered, or the
    /// broker was down. No other fault is between the broker and the reader.
    fn is_repeated(&self, before: &[Came<'_>], at_us: i64, what: &Arrival) -> bool {
        let is_same = |came: &&Came<'_>| {
            let other = came.what;
            (&other.topic, other.due_ms, other.attempt, &other.digest)
                == (&what.topic, what.due_ms, what.attempt, &what.digest)
        };
        let Some(first) = before.iter().find(is_same) else { return false };
        let cut_off = |fault: &Fault| {
            fault.kind.effects().stops_broker
                && fault.began_us <= at_us
                && fault.healed_us >= first.at_us
        };
        what.redelivered || self.faults.iter().any(cut_off)
    }
}

impl<'a> Timeline<'a> {
    /// Notes a request of a burst or its outcome. The job is that of the first.
    fn add_to_burst(&mut self, event: &'a Event, number: u64, job: Option<&'a Job>) {
        let at = self.burst.iter().position(|one| one.number == number);
        match (event.phase, job, at) {
            (Phase::Invoke, Some(job), None) => {
                if self.job.is_none() {
                    (self.job, self.sent_us, self.by_message) =
                        (Some(job), event.t_us, !event.is_over_http());
                }
                let (at_us, certain, answered_us) = (event.t_us, false, None);
                self.burst.push(Requested { number, job, at_us, certain, answered_us });
            }
            (Phase::Ok, _, Some(at)) => {
                self.burst[at].certain = true;
                self.burst[at].answered_us = event.is_over_http().then_some(event.t_us);
                self.certain = true;
            }
            _ => {}
        }
    }

    fn hear(&mut self, event: &Event, action: &'a str, res: &'a str) {
        self.replies.push(Heard { at_us: event.t_us, action, res });
    }

    /// Deliveries and dead letters.
    pub(super) fn out(&self) -> impl Iterator<Item = &Came<'a>> {
        self.deliveries.iter().chain(&self.deaths)
    }

    /// The words of this action.
    pub(super) fn words(&self, action: &str) -> impl Iterator<Item = &Asked<'a>> {
        self.words.iter().filter(move |word| word.action == action)
    }

    /// The verdicts on this action.
    pub(super) fn heard(&self, action: &str) -> impl Iterator<Item = &Heard<'a>> {
        self.replies.iter().filter(move |heard| heard.action == action)
    }

    /// The time of the first verdict on this action, epoch µs.
    pub(super) fn heard_us(&self, action: &str) -> Option<i64> {
        self.heard(action).next().map(|heard| heard.at_us)
    }

    /// The first verdict on this action; `None` if none arrived.
    pub(super) fn answer(&self, action: &str) -> Option<&'a str> {
        self.heard(action).next().map(|heard| heard.res)
    }

    /// Whether this was requested.
    pub(super) fn has_asked(&self, action: &str) -> bool {
        self.asks.iter().any(|ask| ask.action == action)
    }

    /// Whether this request moved the job, or may have: the verdict is missing, or comes from a
    /// promoted master that did not know of the move, and the job was published meanwhile.
    fn moved(&self, ask: &Asked<'_>, verdict: &str) -> bool {
        let heard_us = self.heard_us(ask.action).unwrap_or(i64::MAX);
        let undoes = |fault: &&Fault| fault.began_us <= heard_us && fault.healed_us >= ask.at_us;
        self.may(ask.action, &[verdict])
            || self.answer(ask.action) == Some("fired") && self.rollbacks.iter().any(undoes)
    }

    /// Whether the action was done, or may have been: its verdict is missing.
    pub(super) fn may(&self, action: &str, verdicts: &[&str]) -> bool {
        self.has_asked(action)
            && self.answer(action).is_none_or(|verdict| verdicts.contains(&verdict))
    }

    /// The earliest allowed arrival, epoch µs.
    pub(super) fn earliest_us(&self, job: &Job) -> i64 {
        let moves = self.asks.iter().filter_map(|ask| match ask.action {
            "fire" if self.moved(ask, "firing") => Some(ask.at_us),
            "reschedule" if self.moved(ask, "rescheduled") => Some(ask.due_ms? * 1000),
            _ => None,
        });
        moves.fold(job.due_ms * 1000, i64::min)
    }

    /// Whether a message may have this due time. `behind_us`: how far Redis's clock may have been
    /// behind the requester's clock at a time.
    pub(super) fn may_be_due(
        &self,
        job: &Job,
        due_ms: i64,
        behind_us: impl Fn(i64) -> i64,
    ) -> bool {
        due_ms == job.due_ms
            || self.asks.iter().any(|ask| match ask.action {
                "fire" => {
                    due_ms >= (ask.at_us - behind_us(ask.at_us)) / 1000 && self.moved(ask, "firing")
                }
                "reschedule" => ask.due_ms == Some(due_ms) && self.moved(ask, "rescheduled"),
                _ => false,
            })
    }
}
