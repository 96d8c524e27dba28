//! A later version still reads older histories.

use std::io::Write;

use super::*;

pub(crate) fn head() -> RunHeader {
    RunHeader {
        format: FORMAT,
        seed: 7,
        commit: "abc".to_owned(),
        version: "0.1.0".to_owned(),
        broker: "nats".to_owned(),
        instances: 2,
        durability: "memory".to_owned(),
        redis: "single".to_owned(),
        lease_ms: 8000,
        late_ms: 30_000,
        limited_per_s: None,
        repeat: "run --seed 7".to_owned(),
    }
}

#[test]
fn a_history_is_read_as_it_was_written() {
    let job = Job {
        due_ms: 5,
        target: "t".to_owned(),
        digest: "d".to_owned(),
        retry_ms: Some(vec![1]),
        absent: true,
        consumer: Some(Consumer { ttr_ms: 9, words: vec![Word::FinishTwice] }),
        recurring: Some(Recurring { every_ms: 9, count: Some(1) }),
        ..Job::default()
    };
    let schedule =
        Schedule { id: "a".to_owned(), job: Some(job), res: String::new(), number: Some(1) };
    let ask = ControlRequest {
        id: "a".to_owned(),
        due_ms: Some(9),
        res: "in_flight".to_owned(),
        number: None,
    };
    let dead = DeadJob {
        id: "a".to_owned(),
        reason: Some("retries_exhausted".to_owned()),
        attempt: Some(3),
    };
    let end = End { dead: vec![dead], exits: vec!["dwell-0".to_owned()], ..End::default() };
    let ops = [
        (Phase::Invoke, Op::Schedule(schedule)),
        (Phase::Info, Op::Reschedule(ask)),
        (Phase::Ok, Op::End(end)),
    ];
    let events: Vec<Event> =
        ops.map(|(phase, op)| Event { t_us: 1, proc: "p".to_owned(), phase, op }).into();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{}", serde_json::to_string(&head()).unwrap()).unwrap();
    for event in &events {
        writeln!(file, "{}", serde_json::to_string(event).unwrap()).unwrap();
    }
    assert_eq!(
        History::read(file.path()).unwrap(),
        History { head: head(), events: events.clone() }
    );
    assert!(
        serde_json::to_string(&events[1])
            .unwrap()
            .contains(r#""phase":"info","op":"reschedule","id":"a","due_ms":9"#)
    );

    writeln!(file, "{{\"t_us\":1}}").unwrap();
    let why = History::read(file.path()).unwrap_err().to_string();
    assert!(why.contains("line 5") && why.contains("proc"), "{why}");
}

#[test]
fn what_was_recorded_before_is_read_too() {
    let end: End =
        serde_json::from_str(r#"{"scheduled":0,"reserved":0,"dead":["a"],"damage":[]}"#).unwrap();
    assert_eq!(
        end,
        End { dead: vec![DeadJob { id: "a".to_owned(), ..DeadJob::default() }], ..End::default() }
    );
    let fault: Fault =
        serde_json::from_str(r#"{"kind":"redis-clock-jump","began_us":1,"healed_us":2}"#).unwrap();
    assert_eq!((fault.clock_step_us, fault.leases, fault.rolls_back("a")), (None, None, false));
}

#[test]
fn a_consumer_does_the_same_at_all_later_attempts() {
    let consumer = Consumer { ttr_ms: 1, words: vec![Word::Fail, Word::Finish] };
    assert_eq!(
        [0, 1, 2, 9].map(|attempt| consumer.word(attempt)),
        [Word::Fail, Word::Fail, Word::Finish, Word::Finish]
    );
}

#[test]
fn a_master_forgets_only_jobs_of_its_buckets() {
    let mut fault: Fault =
        serde_json::from_str(r#"{"kind":"redis-master-killed","began_us":1,"healed_us":2}"#)
            .unwrap();
    assert!(!fault.rolls_back("a"));
    let bucket = dwell::store::keys::bucket_of("a", 16);
    for (buckets, forgets) in
        [(vec![bucket], true), ((0..16).filter(|other| *other != bucket).collect(), false)]
    {
        fault.forgotten = Some(Forgotten { buckets, of: 16 });
        assert_eq!(fault.rolls_back("a"), forgets);
    }
    fault.kind = "redis-failover".parse().unwrap();
    assert!(fault.rolls_back("a"), "a single Redis has one master");
}

#[test]
fn a_digest_is_of_the_body_and_the_headers_in_any_order() {
    let of = |body: &[u8], headers: &[(&str, &str)]| digest(body, headers.iter().copied());
    assert_eq!(of(b"x", &[("a", "1"), ("b", "2")]), of(b"x", &[("b", "2"), ("a", "1")]));
    for other in
        [of(b"x", &[]), of(b"", &[("a", "1"), ("b", "2")]), of(b"x", &[("a", "1"), ("b", "3")])]
    {
        assert_ne!(other, of(b"x", &[("a", "1"), ("b", "2")]));
    }
    assert_eq!(of(b"", &[]).len(), 16);
}
