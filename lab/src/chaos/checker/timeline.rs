//! The known events of each job: requests, answers, arrivals.

use std::collections::{BTreeMap, HashSet};

use crate::chaos::history::{
    Arrival, ControlRequest, Event, Fault, Job, Op, Phase, Place, UNREADABLE,
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
    pub(super) asks: Vec<Asked>,
    /// The words of the job's consumer.
    pub(super) words: Vec<Said<'a>>,
    /// Time, action and verdict, in the order of receipt.
    pub(super) replies: Vec<(i64, &'a str, &'a str)>,
    pub(super) deliveries: Vec<Came<'a>>,
    pub(super) deaths: Vec<Came<'a>>,
    pub(super) rejections: Vec<Came<'a>>,
}

/// A control request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) action: &'static str,
    pub(super) at_us: i64,
    /// The new time of a reschedule.
    pub(super) due_ms: Option<i64>,
    /// Confirmed by the broker. Requests over HTTP have only the verdict.
    pub(super) confirmed: bool,
    /// A failover may have undone the action before the verdict arrived.
    pub(super) undone: bool,
}

/// A consumer's word.
#[derive(Debug)]
pub(super) struct Said<'a> {
    pub(super) action: &'static str,
    pub(super) number: u64,
    pub(super) at_us: i64,
    /// Confirmed by the broker.
    pub(super) confirmed: bool,
    pub(super) by_message: bool,
    /// The time of the verdict, epoch µs, and the verdict; only over HTTP.
    pub(super) verdict: Option<(i64, &'a str)>,
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
    faults: &[Fault],
) -> BTreeMap<&'a str, Timeline<'a>> {
    let mut timelines: BTreeMap<&str, Timeline<'_>> = BTreeMap::new();
    let mut seen = Seen { places: HashSet::new(), faults };
    for event in events {
        match &event.op {
            Op::Schedule(schedule) => {
                let timeline = timelines.entry(&schedule.id).or_default();
                match (event.phase, &schedule.job) {
                    // A repeat is the same job.
                    (Phase::Invoke, Some(job)) if timeline.job.is_none() => {
                        (timeline.job, timeline.sent_us, timeline.by_message) =
                            (Some(job), event.t_us, !event.proc.starts_with("http-"));
                    }
                    (Phase::Ok, _) => timeline.certain = true,
                    (Phase::Fail, _) => timeline.refused = true,
                    _ => {}
                }
            }
            Op::Cancel(ask) => timelines.entry(&ask.id).or_default().asked("cancel", event, ask),
            Op::Reschedule(ask) => {
                timelines.entry(&ask.id).or_default().asked("reschedule", event, ask)
            }
            Op::Fire(ask) => timelines.entry(&ask.id).or_default().asked("fire", event, ask),
            Op::Finish(ask) => timelines.entry(&ask.id).or_default().said("finish", event, ask),
            Op::Fail(ask) => timelines.entry(&ask.id).or_default().said("fail", event, ask),
            // It is in the log, whatever the producer was told.
            Op::Inbound(arrival) if arrival.action.is_empty() => {
                timelines.entry(&arrival.id).or_default().certain = true
            }
            Op::Reply(reply) => {
                let timeline = timelines.entry(&reply.id).or_default();
                let said = timeline.words.iter_mut().find(|said| reply.number == Some(said.number));
                if let Some(said) = said {
                    said.verdict = Some((event.t_us, &reply.res));
                }
                timeline.certain |= reply.action == "schedule" && reply.res != UNREADABLE;
                timeline.replies.push((event.t_us, &reply.action, &reply.res));
            }
            // The job is unchanged: this is the answer.
            Op::Reject(what) if what.reason == UNREADABLE => {
                let action = if what.action.is_empty() { "schedule" } else { &what.action };
                timelines.entry(&what.id).or_default().replies.push((
                    event.t_us,
                    action,
                    &what.reason,
                ));
            }
            Op::Deliver(what) | Op::Dead(what) | Op::Reject(what) => {
                let timeline = timelines.entry(&what.id).or_default();
                let came = Came { at_us: event.t_us, what };
                let list = match &event.op {
                    Op::Deliver(_) => &mut timeline.deliveries,
                    Op::Dead(_) => &mut timeline.deaths,
                    _ => &mut timeline.rejections,
                };
                if seen.is_new(list, came) {
                    list.push(came);
                }
            }
            _ => {}
        }
    }
    timelines.iter_mut().for_each(|(id, timeline)| timeline.undo(id, faults));
    timelines
}

/// Detects messages that were read before.
struct Seen<'a> {
    places: HashSet<(&'a Place, &'a str, Option<u32>)>,
    faults: &'a [Fault],
}

impl<'a> Seen<'a> {
    fn is_new(&mut self, before: &[Came<'a>], came: Came<'a>) -> bool {
        if let Some(place) = &came.what.place {
            // A log that was deleted and created again restarts its positions, so the message is
            // part of the key.
            return self.places.insert((place, &came.what.id, came.what.attempt));
        }
        // AMQP has no positions. A copy from Dwell has another attempt. An equal message is the
        // same message if the broker may have delivered it twice: it is marked as redelivered, or
        // the broker was down. No other fault is between the broker and the reader.
        let same = |other: &&Came<'_>| {
            let (one, other) = (came.what, other.what);
            (&one.topic, one.due_ms, one.attempt, &one.digest)
                == (&other.topic, other.due_ms, other.attempt, &other.digest)
        };
        let Some(first) = before.iter().find(same) else { return true };
        let cut_off = self.faults.iter().any(|fault| {
            fault.kind.effects().stops_broker
                && fault.began_us <= came.at_us
                && fault.healed_us >= first.at_us
        });
        !(came.what.redelivered || cut_off)
    }
}

impl<'a> Timeline<'a> {
    fn asked(&mut self, action: &'static str, event: &Event, ask: &ControlRequest) {
        match event.phase {
            Phase::Invoke => self.asks.push(Asked {
                action,
                at_us: event.t_us,
                due_ms: ask.due_ms,
                confirmed: false,
                undone: false,
            }),
            // The request was not sent.
            Phase::Fail => self.asks.retain(|asked| asked.action != action),
            Phase::Ok => self
                .asks
                .iter_mut()
                .filter(|asked| asked.action == action)
                .for_each(|asked| asked.confirmed = true),
            Phase::Info => {}
        }
    }

    fn said(&mut self, action: &'static str, event: &'a Event, ask: &ControlRequest) {
        let number = ask.number.unwrap_or(0);
        match event.phase {
            Phase::Invoke => {
                let by_message = !event.proc.starts_with("http-");
                self.words.push(Said {
                    action,
                    number,
                    at_us: event.t_us,
                    confirmed: false,
                    by_message,
                    verdict: None,
                });
            }
            // It was not sent.
            Phase::Fail => self.words.retain(|said| said.number != number),
            Phase::Ok => self
                .words
                .iter_mut()
                .filter(|said| said.number == number)
                .for_each(|said| said.confirmed = true),
            Phase::Info => {}
        }
    }

    /// Whether this was requested.
    pub(super) fn has_asked(&self, action: &str) -> bool {
        self.asks.iter().any(|ask| ask.action == action)
    }

    /// The time of the first verdict on this action, epoch µs.
    pub(super) fn heard_us(&self, action: &str) -> Option<i64> {
        self.replies.iter().find(|(_, of, _)| *of == action).map(|(t_us, ..)| *t_us)
    }

    /// The first verdict on this action; `None` if none arrived.
    pub(super) fn answer(&self, action: &str) -> Option<&str> {
        self.replies.iter().find(|(_, of, _)| *of == action).map(|(_, _, res)| *res)
    }

    /// Marks the requests that a failover may have undone before their verdict arrived.
    fn undo(&mut self, id: &str, faults: &[Fault]) {
        for at in 0..self.asks.len() {
            let Asked { action, at_us, .. } = self.asks[at];
            let heard_us = self.heard_us(action).unwrap_or(i64::MAX);
            let gone = |fault: &Fault| {
                fault.rolls_back(id) && fault.began_us <= heard_us && fault.healed_us >= at_us
            };
            self.asks[at].undone = faults.iter().any(gone);
        }
    }

    /// Whether this request moved the job, or may have: the verdict is missing, or comes from a
    /// promoted master that did not know of the move, and the job was published meanwhile.
    fn moved(&self, ask: &Asked, verdict: &str) -> bool {
        self.may(ask.action, &[verdict]) || ask.undone && self.answer(ask.action) == Some("fired")
    }

    /// Whether the action was done, or may have been: its verdict is missing.
    pub(super) fn may(&self, action: &str, verdicts: &[&str]) -> bool {
        self.has_asked(action)
            && self.answer(action).is_none_or(|verdict| verdicts.contains(&verdict))
    }

    /// The earliest allowed arrival, epoch µs.
    pub(super) fn earliest_us(&self, job: &Job) -> i64 {
        let mut earliest = job.due_ms * 1000;
        for ask in &self.asks {
            let time = match ask.action {
                "fire" if self.moved(ask, "firing") => ask.at_us,
                "reschedule" if self.moved(ask, "rescheduled") => {
                    ask.due_ms.map_or(earliest, |due_ms| due_ms * 1000)
                }
                _ => continue,
            };
            earliest = earliest.min(time);
        }
        earliest
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
