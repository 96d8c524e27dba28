//! Tests of the stored formats: golden bytes, round trips, and no panic on any bytes.

use dwell_core::{Destination, Header, Headers, Properties, Value};
use proptest::prelude::*;

use super::*;
use crate::job::{Conflict, Due, Expire, JobId, Late, OnTimeout};
use crate::request::Origin;

fn schedule(job: Job, generated: bool) -> NewJob {
    NewJob {
        id: JobId::new("order-1").unwrap(),
        generated,
        call_id: None,
        is_new_message: false,
        queue_full: false,
        own_queues: None,
        due: Due::At(1_763_722_800_000),
        conflict: Conflict::Replace,
        job,
        origin: Origin { fingerprint: *b"fingerpr", maybe_redelivered: true, is_message: true },
        reply_to: None,
    }
}

fn to_main(to: Destination) -> Target {
    Target::Broker { broker: "main".to_owned(), to }
}

fn plain_job() -> Job {
    Job {
        target: to_main(Destination::new("orders.close")),
        key: None,
        headers: Headers::default(),
        properties: None,
        ttr_ms: 30_000,
        confirm: Confirm::Broker,
        retry: None,
        late: None,
        max_late_ms: None,
        expire: None,
        on_timeout: OnTimeout::Ready,
        tries: None,
        remove_at_ms: None,
        created_ms: 1_763_722_000_000,
        origin: "nats".to_owned(),
        trace: None,
        round: 0,
        debounced_ms: None,
        has_body: true,
        body: Bytes::from_static(b"{\"order\":1}"),
    }
}

fn full_job() -> Job {
    Job {
        target: to_main(Destination { exchange: "orders".to_owned(), address: "close".to_owned() }),
        key: Some(Bytes::from_static(b"\x00key")),
        headers: [
            Header { name: "a".to_owned(), value: Value::Text("b".to_owned()) },
            Header { name: "n".to_owned(), value: Value::I32(-7) },
        ]
        .into_iter()
        .collect(),
        properties: Some(Box::new(Properties {
            message_id: Some("m-1".to_owned()),
            priority: Some(4),
            ..Properties::default()
        })),
        confirm: Confirm::Consumer,
        retry: Some(vec![120_000, 600_000]),
        late: Some(Late::Dead),
        max_late_ms: Some(5000),
        has_body: false,
        body: Bytes::new(),
        ..plain_job()
    }
}

/// The job of a queue, with the fields that jobs of a broker lack.
fn queue_job() -> Job {
    Job {
        target: Target::Queue { queue: "emails".to_owned() },
        on_timeout: OnTimeout::Retry,
        tries: Some(5),
        remove_at_ms: Some(1_763_000_000_000),
        trace: Some("00-1-2-01".to_owned()),
        round: 3,
        ..plain_job()
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// Records that version 1 wrote. A change of these bytes is a new version: stored jobs must stay
/// readable.
const PLAIN_V1: &str = "01020000753067656e657261746566696e67657270723d706456786d2a7f046d61696e0000003a83a2746f81a761646472657373ac6f72646572732e636c6f7365aa637265617465645f6d73cf0000019aa605f680a66f726967696ea46e6174737b226f72646572223a317d";
const FULL_V1: &str = "01010000753067656e657261746566696e6765727072cdf9763db778424f046d61696e0000015c8aa2746f82a865786368616e6765a66f7264657273a761646472657373a5636c6f7365a36b6579c404006b6579a7686561646572739282a46e616d65a161a576616c756581a474657874a16282a46e616d65a16ea576616c756581a3693332f9aa70726f706572746965738dac636f6e74656e745f74797065c0b0636f6e74656e745f656e636f64696e67c0ad64656c69766572795f6d6f6465c0a87072696f7269747904ae636f7272656c6174696f6e5f6964c0a87265706c795f746fc0aa65787069726174696f6ec0aa6d6573736167655f6964a36d2d31a974696d657374616d70c0a46b696e64c0a7757365725f6964c0a66170705f6964c0aa636c75737465725f6964c0a5726574727992ce0001d4c0ce000927c0a46c617465a464656164ab6d61785f6c6174655f6d73cd1388aa637265617465645f6d73cf0000019aa605f680a66f726967696ea46e617473a86861735f626f6479c2";
/// A record of the job of a queue, as version 2 writes it.
const QUEUE_V2: &str = "02000000753067656e657261746566696e676572707227f93afd624f0c0406656d61696c730000006e88a2746f81a761646472657373a0aa6f6e5f74696d656f7574a57265747279a5747269657305a7656e64735f6d73cf0000019a7afd1e00aa637265617465645f6d73cf0000019aa605f680a66f726967696ea46e617473a57472616365a930302d312d322d3031a5726f756e64037b226f72646572223a317d";
/// A state that version 1 of the scripts wrote.
const STATE_V1: &str = concat!(
    "01",
    "01",
    "02",
    "00000003",
    "0004",
    "0000019aa5d2e480",
    "6665636566656e63",
    "67656e6572617465",
    "66696e6765727072",
    "03",
    "04",
    "6e6f20"
);

#[test]
fn records_of_version_1_are_written_as_ever() {
    assert_eq!(hex(&encode(&schedule(plain_job(), true), *b"generate")), PLAIN_V1);
    assert_eq!(hex(&encode(&schedule(full_job(), false), *b"generate")), FULL_V1);
    assert_eq!(hex(&encode(&schedule(queue_job(), false), *b"generate")), QUEUE_V2);
}

#[test]
fn records_of_version_1_are_read_as_ever() {
    let record = |job, generated| Record {
        job,
        generated,
        generation: *b"generate",
        fingerprint: *b"fingerpr",
    };
    assert_eq!(decode(unhex(PLAIN_V1).into()).unwrap(), record(plain_job(), true));
    assert_eq!(decode(unhex(FULL_V1).into()).unwrap(), record(full_job(), false));
    assert_eq!(decode(unhex(QUEUE_V2).into()).unwrap(), record(queue_job(), false));
}

#[test]
fn states_of_version_1_are_read_as_ever() {
    let state = StateRecord {
        held: true,
        counted: false,
        crashes: 2,
        attempt: 3,
        step: 4,
        due_ms: 1_763_718_653_056,
        generation: *b"generate",
        fingerprint: *b"fingerpr",
        marks: 3,
        anew_ms: None,
        reason: Some(DeadReason::Failed),
        turn: Turn::NONE,
        last_error: "no ".to_owned(),
    };
    assert_eq!(StateRecord::decode(&unhex(STATE_V1)).unwrap(), state);
    // The nonce of the last pop is not decoded, and so not written again.
    let mut written = unhex(STATE_V1);
    written[17..25].fill(0);
    assert_eq!(state.encode(), written);
    // A state whose expiry an action began anew is eight bytes longer.
    let anew = StateRecord { anew_ms: Some(7), ..state };
    assert_eq!(anew.encode().len(), written.len() + 8);
    assert_eq!(StateRecord::decode(&anew.encode()).unwrap(), anew);
    let mut later = unhex(STATE_V1);
    later[0] = 2;
    assert!(StateRecord::decode(&later).is_err());
}

#[test]
fn only_a_job_that_debounces_or_expires_has_more_in_its_record() {
    let plain = encode(&schedule(plain_job(), false), *b"generate");
    let mut debounces = schedule(plain_job(), false);
    debounces.conflict = Conflict::Debounce { max_wait_ms: 7 };
    let written = encode(&debounces, *b"generate");
    // As schedule.lua finds the place of the time: at the end of the metadata.
    let body = debounces.job.body.len();
    let (metadata, first) = written[..written.len() - body].split_last_chunk::<8>().unwrap();
    assert!(metadata.ends_with(b"\xa9debounced\xc4\x08") && *first == [0; 8]);
    assert_eq!(decode(written.clone().into()).unwrap().job.debounced_ms, Some(0));
    let job = Job { debounced_ms: Some(0), ..plain_job() };
    assert_eq!(moved(&written, &job).unwrap(), written);
    assert_eq!(moved(&plain, &plain_job()).unwrap(), plain);
    for expire in [Expire::After(3_600_000), Expire::At(1_763_000_000_000)] {
        let job = Job { expire: Some(expire), ..plain_job() };
        let written = encode(&schedule(job.clone(), false), *b"generate");
        assert!(written.windows(7).any(|part| part == b"expire_"), "as may_expire looks for");
        assert_eq!(decode(written.into()).unwrap().job, job);
    }
}

#[test]
fn another_version_is_refused_by_its_number() {
    let mut bytes = encode(&schedule(plain_job(), false), *b"generate");
    bytes[0] = 9;
    assert_eq!(
        decode(bytes.into()).unwrap_err().to_string(),
        "unreadable record: version 9, this program reads 1 and 2"
    );
}

#[test]
fn every_cut_of_a_record_or_state_is_an_error_and_no_panic() {
    let bytes = encode(&schedule(full_job(), false), *b"generate");
    for length in 0..bytes.len() {
        assert!(decode(bytes[..length].to_vec().into()).is_err(), "{length}");
    }
    let state = unhex(STATE_V1);
    for length in 0..FIXED_STATE_BYTES {
        assert!(StateRecord::decode(&state[..length]).is_err(), "{length}");
    }
}

#[test]
fn deeply_nested_metadata_is_an_error_and_no_overflow() {
    let mut bytes = encode(&schedule(plain_job(), false), *b"generate");
    bytes.truncate(35 + 4);
    bytes.splice(31 + 4.., 2_000_000_u32.to_be_bytes());
    // headers: a list in a list in a list …
    bytes.extend_from_slice(b"\x81\xa7headers\x91\x82\xa4name\xa1a\xa5value");
    for _ in 0..1_000_000 {
        bytes.extend_from_slice(b"\x81\xa4list\x91");
    }
    bytes.resize(39 + 2_000_000 + 100, 0xc0);
    assert!(decode(bytes.into()).is_err());
}

/// AMQP's source gives no more than 32, below one header.
#[test]
fn headers_nested_as_deep_as_they_come_are_kept() {
    let mut job = plain_job();
    for around in
        [|value| Value::List(vec![value]), |value| Value::Table(vec![("k".to_owned(), value)])]
    {
        job.headers.push(
            "deep",
            (0..32).fold(Value::Bytes(Bytes::from_static(b"\xff")), |value, _| around(value)),
        );
    }
    let record = decode(encode(&schedule(job.clone(), false), *b"generate").into()).unwrap();
    assert_eq!(record.job, job);
}

#[test]
fn the_digest_is_of_body_destination_and_key() {
    let base = digest(&full_job());
    let change = |change: &dyn Fn(&mut Job)| {
        let mut job = full_job();
        change(&mut job);
        digest(&job)
    };
    assert_eq!(change(&|job| job.headers.push("other", Value::Null)), base);
    assert_eq!(change(&|job| job.retry = None), base);
    assert_ne!(change(&|job| job.body = Bytes::from_static(b"x")), base);
    assert_ne!(change(&|job| job.has_body = true), base);
    assert_ne!(change(&|job| job.key = None), base);
    let to = Destination { exchange: "orders".to_owned(), address: "close".to_owned() };
    let target = Target::Broker { broker: "other".to_owned(), to };
    assert_ne!(change(&|job| job.target = target.clone()), base);
    let to = Destination { exchange: "ordersc".to_owned(), address: "lose".to_owned() };
    assert_ne!(change(&|job| job.target = to_main(to.clone())), base);
}

#[test]
fn long_errors_are_cut_at_a_character() {
    assert_eq!(short_error("short"), "short");
    let text = "ü".repeat(MAX_ERROR_BYTES);
    assert_eq!(short_error(&text).len(), MAX_ERROR_BYTES);
    assert_eq!(short_error(&format!("a{text}")).len(), MAX_ERROR_BYTES - 1);
}

#[test]
fn every_reason_has_a_code_of_its_own() {
    for reason in DeadReason::ALL {
        assert_eq!(reason_of_code(code_of_reason(Some(reason))), Some(reason));
    }
    assert_eq!(reason_of_code(code_of_reason(None)), None);
}

#[test]
fn a_reason_that_a_later_version_wrote_is_a_death_too() {
    for code in 7..=u8::MAX {
        assert_eq!(reason_of_code(code), Some(DeadReason::Unknown), "{code}");
    }
    let mut bytes = unhex(STATE_V1);
    (bytes[1], bytes[FIXED_STATE_BYTES - 1]) = (0, 7);
    let state = StateRecord::decode(&bytes).unwrap();
    let attempt = state.attempt;
    let state = StateRecord::decode(&state.in_flight().encode()).unwrap();
    assert_eq!((state.reason, state.attempt), (Some(DeadReason::Unknown), attempt));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i8>().prop_map(Value::I8),
        any::<i16>().prop_map(Value::I16),
        any::<i32>().prop_map(Value::I32),
        any::<i64>().prop_map(Value::I64),
        any::<u8>().prop_map(Value::U8),
        any::<u16>().prop_map(Value::U16),
        any::<u32>().prop_map(Value::U32),
        // NaN differs from itself; its bits are looked at in a test of its own.
        any::<f32>().prop_filter("a number", |x| !x.is_nan()).prop_map(Value::F32),
        any::<f64>().prop_filter("a number", |x| !x.is_nan()).prop_map(Value::F64),
        any::<(u8, u32)>().prop_map(|(scale, value)| Value::Decimal(scale, value)),
        any::<String>().prop_map(Value::Text),
        any::<Vec<u8>>().prop_map(|bytes| Value::Bytes(bytes.into())),
        any::<u64>().prop_map(Value::Timestamp),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            proptest::collection::vec((any::<String>(), inner), 0..4).prop_map(Value::Table),
        ]
    })
}

#[test]
fn not_a_number_keeps_its_bits() {
    let bits = 0x7ff8_0000_dead_beef;
    let mut job = plain_job();
    job.headers.push("nan", Value::F64(f64::from_bits(bits)));
    let read = decode(encode(&schedule(job, false), *b"generate").into()).unwrap();
    assert!(matches!(read.job.headers.get("nan"), Some(Value::F64(x)) if x.to_bits() == bits));
}

fn text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of(any::<String>())
}

fn properties() -> impl Strategy<Value = Option<Box<Properties>>> {
    let texts = (text(), text(), text(), text(), text(), text(), text());
    let more =
        (text(), text(), text(), any::<Option<u8>>(), any::<Option<u8>>(), any::<Option<u64>>());
    proptest::option::of((texts, more).prop_map(|(texts, more)| {
        let (
            content_type,
            content_encoding,
            correlation_id,
            reply_to,
            expiration,
            message_id,
            kind,
        ) = texts;
        let (user_id, app_id, cluster_id, delivery_mode, priority, timestamp) = more;
        Box::new(Properties {
            content_type,
            content_encoding,
            delivery_mode,
            priority,
            correlation_id,
            reply_to,
            expiration,
            message_id,
            timestamp,
            kind,
            user_id,
            app_id,
            cluster_id,
        })
    }))
}

fn bytes() -> impl Strategy<Value = Bytes> {
    any::<Vec<u8>>().prop_map(Bytes::from)
}

fn job() -> impl Strategy<Value = Job> {
    let to = ("[a-z-]{1,64}", any::<String>(), any::<String>(), proptest::option::of(bytes()));
    let headers = proptest::collection::vec(
        (any::<String>(), value()).prop_map(|(name, value)| Header { name, value }),
        0..5,
    );
    let rules =
        (any::<u32>(), any::<bool>(), any::<Option<Vec<u64>>>(), 0..4_usize, any::<Option<u64>>());
    let rest = (any::<i64>(), "(nats|kafka|amqp)?", any::<bool>(), bytes(), text(), any::<u32>());
    (to, headers, properties(), rules, rest).prop_map(|(to, headers, properties, rules, rest)| {
        Job {
            target: Target::Broker {
                broker: to.0,
                to: Destination { exchange: to.1, address: to.2 },
            },
            key: to.3,
            headers: headers.into_iter().collect(),
            properties,
            ttr_ms: rules.0,
            confirm: if rules.1 { Confirm::Consumer } else { Confirm::Broker },
            retry: rules.2,
            late: [None, Some(Late::Fire), Some(Late::Drop), Some(Late::Dead)][rules.3],
            max_late_ms: rules.4,
            expire: None,
            on_timeout: OnTimeout::Ready,
            tries: None,
            remove_at_ms: None,
            created_ms: rest.0,
            origin: rest.1,
            trace: rest.4,
            round: rest.5,
            debounced_ms: None,
            has_body: rest.2,
            body: rest.3,
        }
    })
}

proptest! {
    #[test]
    fn a_record_says_what_was_written(job in job(), generated: bool, generation: [u8; 8]) {
        let read = decode(encode(&schedule(job.clone(), generated), generation).into()).unwrap();
        prop_assert_eq!(read, Record { job, generated, generation, fingerprint: *b"fingerpr" });
    }

    #[test]
    fn no_bytes_make_the_readers_panic(bytes: Vec<u8>) {
        let _ = decode(bytes.clone().into());
        let _ = StateRecord::decode(&bytes);
        let _ = replaced(&bytes);
    }

    #[test]
    fn no_damage_to_a_record_makes_the_reader_panic(job in job(), at: prop::sample::Index, byte: u8) {
        let mut bytes = encode(&schedule(job, false), *b"generate");
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decode(bytes.into());
    }
}

#[test]
fn the_job_of_a_queue_has_a_version_that_other_programs_leave_in_place() {
    let job = Job {
        target: Target::Queue { queue: "a.B-1_".to_owned() },
        tries: Some(3),
        remove_at_ms: Some(7),
        ..plain_job()
    };
    let bytes = encode(&schedule(job.clone(), false), [7; 8]);
    assert_eq!((bytes[0], &bytes[31..37]), (VERSION_QUEUE, &b"a.B-1_"[..]));
    assert_eq!(decode(bytes.into()).unwrap().job, job);
}

#[test]
fn the_default_retry_array_of_a_queue_is_a_flag() {
    let queue = |retry| Job {
        target: Target::Queue { queue: "q".to_owned() },
        retry: Some(retry),
        ..plain_job()
    };
    let usual = queue(retry::DEFAULT_MS.to_vec());
    let own = queue(retry::DEFAULT_MS[1..].to_vec());
    let broker = Job { retry: usual.retry.clone(), ..plain_job() };
    for (job, flag, named) in [(&usual, 16, 0), (&own, 0, 1), (&broker, 0, 1)] {
        let bytes = encode(&schedule(job.clone(), false), *b"generate");
        let names = bytes.windows(5).filter(|word| *word == b"retry").count();
        assert_eq!((bytes[1] & 16, names), (flag, named), "{job:?}");
        assert_eq!(&decode(bytes.clone().into()).unwrap().job, job);
        let none = Job { retry: None, ..job.clone() };
        let again = moved(&bytes, &none).unwrap();
        assert_eq!((again[1] & 16, decode(again.into()).unwrap().job), (0, none));
    }
    assert_eq!(
        retry::DEFAULT_MS,
        [120_000, 600_000, 600_000, 3_600_000, 7_200_000, 21_600_000, 54_000_000],
        "stored jobs have this array as a flag"
    );
}

#[test]
fn a_record_promises_no_more_steps_after_a_time_out_than_its_job_has() {
    let queue = || Job { target: Target::Queue { queue: "q".to_owned() }, ..plain_job() };
    let code = |job: Job| encode(&schedule(job, false), *b"generate")[1] >> 5;
    assert_eq!(code(plain_job()), 0, "a job of a broker");
    assert_eq!(code(queue()), 7);
    assert_eq!(code(Job { on_timeout: OnTimeout::Retry, ..queue() }), 0);
    assert_eq!(code(Job { remove_at_ms: Some(1), ..queue() }), 0);
    assert_eq!(code(Job { tries: Some(0), ..queue() }), 6);
    let tries = |tries| code(Job { tries: Some(tries), retry: Some(vec![1; 40]), ..queue() });
    assert_eq!([1, 2, 3, 4, 5, 9, 16, 17, u16::MAX].map(tries), [0, 1, 2, 2, 3, 4, 4, 5, 5]);
    let waits = |waits| code(Job { retry: Some(vec![1; waits]), ..queue() });
    assert_eq!([0, 1, 3, 8, 100].map(waits), [0, 1, 2, 4, 5]);
    let there = encode(&schedule(Job { tries: Some(0), ..queue() }, false), *b"generate");
    assert_eq!(moved(&there, &plain_job()).unwrap()[1] >> 5, 0, "moved to a broker");
}

#[test]
fn the_scripts_know_the_codes_of_reasons() {
    let code = |reason| code_of_reason(Some(reason));
    for (script, line) in [
        (
            include_str!("../scripts/acknowledge.lua"),
            format!(
                "local REASON_FAILED, REASON_EXPIRED = {}, {}\n",
                code(DeadReason::Failed),
                code(DeadReason::Expired)
            ),
        ),
        (
            include_str!("../scripts/fsck_jobs.lua"),
            format!("local INVALID = {}\n", code(DeadReason::Invalid)),
        ),
    ] {
        assert!(script.contains(&line), "{line}");
    }
}

#[test]
fn a_job_of_a_broker_has_its_turn_in_its_state() {
    let turn = Turn::new(1_763_718_653_056_000, 0, 7);
    let of = |job: Job| encode(&schedule(job, false), *b"generate");
    let (of_broker, of_queue) = (of(plain_job()), of(queue_job()));
    let state = StateRecord { turn, ..StateRecord::of_record(&of_broker, 1000).unwrap() };
    let bytes = state.encode();
    let read = StateRecord::decode(&bytes).unwrap();
    assert_eq!(read.turn, Turn::NONE, "only some read it");
    assert_eq!(read.clone().with_turn(&bytes, &of_broker), state);
    assert_eq!(read.with_turn(&bytes, &of_queue).turn, Turn::NONE, "that is a pop");
    assert!(state.waits_for_turn(turn.at_ms() + 5));
    assert!(!state.waits_for_turn(turn.at_ms() + 5000), "it was given back since");
    let attempted = StateRecord { attempt: 1, ..state };
    assert!(!attempted.waits_for_turn(turn.at_ms()));
}
