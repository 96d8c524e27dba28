//! What each event tells, and what becomes of those without room.

use dwell_connectors::Destination;

use super::*;
use crate::events::Observer;
use crate::job::DeadReason;
use crate::telemetry::Events;

/// What a feed of all kinds hands on for this event.
fn fact(event: &JobEvent<'_>) -> Option<Fact> {
    let (feed, mut facts) = Feed::new(&EventKind::ALL);
    Events::new(Metrics::new(["main"], ["in"])).with_feed(Some(feed)).observe(event);
    facts.try_recv().ok()
}

/// The kind and the reason of what is handed on.
fn kind(event: &JobEvent<'_>) -> Option<(EventKind, Option<&'static str>)> {
    fact(event).map(|fact| (fact.kind, fact.reason))
}

#[test]
fn verdicts_tell_what_they_changed_and_nothing_else() {
    let (id, to) = (&JobId::random(), &Destination::new("orders.a"));
    for action in [Action::Add, Action::Cancel, Action::Finish, Action::Fail, Action::Requeue] {
        for verdict in Verdict::ALL {
            let (set, to, due_ms) = (Some(DueSet::Broker("main")), Some(to), Some(1));
            let told = kind(&JobEvent::Applied { id, set, to, action, verdict, due_ms });
            let word = Some(verdict.as_str());
            let expected = match (action, verdict) {
                (Action::Add, Verdict::Added | Verdict::Replaced) => {
                    Some((EventKind::Scheduled, word))
                }
                (
                    Action::Cancel,
                    Verdict::Cancelled | Verdict::CancelledAfterAttempt | Verdict::InFlight,
                ) => Some((EventKind::Cancelled, word)),
                (Action::Finish, Verdict::Finished) => Some((EventKind::Delivered, None)),
                _ => None,
            };
            assert_eq!(told, expected, "{action:?} {verdict:?}");
        }
    }
}

#[test]
fn the_end_of_a_lease_is_told_once() {
    let (id, queue, error) = (&JobId::random(), "emails", "smtp is away");
    let told = |verdict, is_applied| {
        fact(&JobEvent::Acknowledged { queue, id, verdict, error, is_applied })
    };
    let failed = told(LeaseVerdict::Failed, false).unwrap();
    assert_eq!((failed.kind, failed.queue.as_deref()), (EventKind::Retried, Some(queue)));
    assert_eq!((failed.error.as_deref(), failed.broker), (Some(error), None));
    let finished = told(LeaseVerdict::Finished, false).unwrap();
    assert_eq!(finished.kind, EventKind::Delivered);
    // `Applied` tells the end; `Dead` tells the death.
    assert_eq!(told(LeaseVerdict::Finished, true), None);
    for verdict in [LeaseVerdict::Dead, LeaseVerdict::Released, LeaseVerdict::Touched] {
        assert_eq!(told(verdict, false), None, "{verdict:?}");
    }
}

#[test]
fn a_settled_job_is_told_with_its_facts() {
    let id = &JobId::random();
    let to = &Destination { exchange: "shop".to_owned(), address: "orders.a".to_owned() };
    let schedule = Some("daily");
    let facts =
        Facts { to: Some(to), attempt: Some(2), due_ms: Some(7), schedule, occurrence: Some(3) };
    let set = Some(DueSet::Broker("main"));
    let retried = JobEvent::Settled { set, id, end: Settled::Retried { error: "no" }, facts };
    let fact = fact(&retried).unwrap();
    let at_ms = fact.at_ms;
    assert!((clock::wall_ms() - at_ms).abs() < 60_000, "{at_ms}");
    let expected = Fact {
        kind: EventKind::Retried,
        at_ms,
        id: id.as_str().to_owned(),
        broker: Some("main".to_owned()),
        exchange: Some("shop".to_owned()),
        target: Some("orders.a".to_owned()),
        queue: None,
        due_ms: Some(7),
        attempt: Some(2),
        reason: None,
        error: Some("no".to_owned()),
        schedule: Some("daily".to_owned()),
        occurrence: Some(3),
    };
    assert_eq!(fact, expected);
    for (end, expected) in
        [(Settled::Delivered, EventKind::Delivered), (Settled::Dropped, EventKind::Dropped)]
    {
        let told = kind(&JobEvent::Settled { set, id, end, facts });
        assert_eq!(told, Some((expected, None)));
    }
    // The decision of a dispatcher is not told: the job may be another's by then.
    let set = DueSet::Broker("main");
    assert_eq!(kind(&JobEvent::Dropped { set, id }), None);
    let set = DueSet::Queue("emails");
    assert_eq!(kind(&JobEvent::Dropped { set, id }), Some((EventKind::Dropped, None)));
}

#[test]
fn a_death_has_its_reason_and_no_secret_of_a_url() {
    let id = &JobId::random();
    let to = &Destination::new("https://app.internal/hook?key=hush");
    let facts = Facts { to: Some(to), ..Facts::default() };
    let (set, reason, error) = (Some(DueSet::Broker("web")), DeadReason::Invalid, "410");
    let fact = fact(&JobEvent::Dead { set, id, reason, error, facts }).unwrap();
    assert_eq!((fact.kind, fact.reason), (EventKind::Dead, Some("invalid")));
    assert_eq!(fact.target.as_deref(), Some("https://app.internal/hook?…"));
}

#[test]
fn what_is_not_asked_for_is_not_made_and_what_has_no_room_is_counted() {
    let (feed, mut facts) = Feed::new(&[EventKind::Dropped]);
    let metrics = Metrics::new(["main"], ["in"]);
    let events = Events::new(metrics.clone()).with_feed(Some(feed));
    let (id, queue) = (&JobId::random(), DueSet::Queue("emails"));
    let (verdict, error, is_applied) = (LeaseVerdict::Finished, "", false);
    events.observe(&JobEvent::Acknowledged { queue: "emails", id, verdict, error, is_applied });
    assert!(facts.try_recv().is_err());
    let dropped = |count: u64| {
        let line = format!("dwell_events_dropped_total {count}");
        assert!(metrics.encode().lines().any(|there| there == line), "{count}");
    };
    (0..MAX_WAITING).for_each(|_| events.observe(&JobEvent::Dropped { set: queue, id }));
    dropped(0);
    events.observe(&JobEvent::Dropped { set: queue, id });
    dropped(1);
    drop(facts);
    events.observe(&JobEvent::Dropped { set: queue, id });
    dropped(2);
}

#[test]
fn an_occurrence_is_told_and_of_a_gap_the_latest_hundred() {
    let (feed, mut facts) = Feed::new(&EventKind::ALL);
    let events = Events::new(Metrics::new(["main"], ["in"])).with_feed(Some(feed));
    let (schedule, set) = (&JobId::new("daily").unwrap(), DueSet::Queue("emails"));
    let (id, due_ms) = (&JobId::new("daily@1798762500000").unwrap(), 1_798_762_500_000);
    let (to, number, is_caught_up) = (None, 3, true);
    events.observe(&JobEvent::OccurrenceMade {
        schedule,
        id,
        set,
        to,
        due_ms,
        number,
        is_caught_up,
    });
    let made = facts.try_recv().unwrap();
    assert_eq!((made.kind, made.reason), (EventKind::Scheduled, Some("caught_up")));
    assert_eq!((made.schedule.as_deref(), made.due_ms), (Some("daily"), Some(due_ms)));
    assert_eq!((made.occurrence, made.id.as_str()), (Some(3), id.as_str()));

    let times: Vec<i64> = (0..130).map(|number| due_ms + number * 60_000).collect();
    let (count, reason, to_log) = (130, "late", Some(130));
    events.observe(&JobEvent::OccurrencesMissed {
        schedule,
        set,
        count,
        times: &times,
        reason,
        to_log,
    });
    let mut missed = Vec::new();
    while let Ok(fact) = facts.try_recv() {
        assert_eq!((fact.kind, fact.reason), (EventKind::Missed, Some("late")));
        missed.push(fact.id);
    }
    assert_eq!(missed.len(), MAX_MISSED);
    assert_eq!(missed.last(), Some(&occurrence_id("daily", times[129])));
}
