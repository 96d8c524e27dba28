//! Tests of the stored forms: golden bytes, round trips, and no panic on any bytes.

use dwell_core::Destination;
use dwell_schedule::CatchUp;
use proptest::prelude::*;

use super::*;
use crate::job::Conflict;
use crate::request::Origin;
use crate::store::schedules::plan::tests::new;

/// A record and a state that version 1 wrote. Stored schedules must stay readable.
const RECORD_V1: &str = "01646967657374206f66203136206279740000008a89a474657874af302039202a202a204d4f4e2d465249a47a6f6e65ad4575726f70652f4265726c696ea873746172745f6d73cf0000019aa3b5ec00a6656e645f6d73cf000001a1fb671800a5636f756e74cd012ca863617463685f7570a3616c6ca76f7665726c6170a4736b6970a97370726561645f6d73cdea60ad66726f6d5f73657474696e6773c301000000753067656e657261746566696e67657270723d706456786d2a7f046d61696e0000003a83a2746f81a761646472657373ac6f72646572732e636c6f7365aa637265617465645f6d73cf0000019aa605f680a66f726967696ea46e6174737b226f72646572223a317d";
const STATE_V1: &str = "8ca7677269645f6d73cf0000019aa3b5ec00a76e6578745f6d73cf0000019aa56d6000a97a6f6e655f64617461a53230323665aa6f6363757272656e636507a7636f756e74656405a76c6173745f6d73cf0000019aa0470400ae6c6173745f6d69737365645f6d73cf0000019a9b20a800a66d697373656402a969735f706175736564c3a6726561736f6eab6d61696e74656e616e6365aa67656e65726174696f6ecf67656e6572617465a87265766973696f6e0c";
/// A state without what may be missing.
const NEW_STATE_V1: &str = "88a7677269645f6d7300a97a6f6e655f64617461a0aa6f6363757272656e636500a7636f756e74656400a66d697373656400a969735f706175736564c2aa67656e65726174696f6e00a87265766973696f6e00";

fn full() -> NewSchedule {
    let job = Job {
        ttr_ms: 30_000,
        created_ms: 1_763_722_000_000,
        origin: "nats".to_owned(),
        ..Job::new("main", Destination::new("orders.close"), "{\"order\":1}")
    };
    NewSchedule {
        timing: Timing {
            text: "0 9 * * MON-FRI".to_owned(),
            expression: Expression::parse("0 9 * * MON-FRI").unwrap(),
            zone: Some(Zone::parse("Europe/Berlin").unwrap()),
            start_ms: Some(1_763_683_200_000),
            end_ms: Some(1_795_219_200_000),
            count: Some(300),
            catch_up: CatchUp::All,
            overlap: Overlap::Skip,
            spread_ms: 60_000,
        },
        from_settings: true,
        job,
        origin: Origin { fingerprint: *b"fingerpr", maybe_redelivered: true, is_message: true },
        ..new("daily", "@daily")
    }
}

fn progress() -> Progress {
    Progress {
        grid_ms: 1_763_683_200_000,
        next_ms: Some(1_763_712_000_000),
        zone_data: "2026e".to_owned(),
        occurrence: 7,
        counted: 5,
        last_ms: Some(1_763_625_600_000),
        last_missed_ms: Some(1_763_539_200_000),
        missed: 2,
        is_paused: true,
        reason: Some("maintenance".to_owned()),
        generation: *b"generate",
        revision: 12,
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn a_record_is_written_and_read_as_ever() {
    let (new, digest) = (full(), *b"digest of 16 byt");
    assert_eq!(encode(&new, &digest, *b"generate"), unhex(RECORD_V1));
    let read = decode(unhex(RECORD_V1).into()).unwrap();
    let NewSchedule { timing, from_settings, job, .. } = new;
    assert_eq!(read, Record { digest, timing, from_settings, job });
}

#[test]
fn a_state_is_written_and_read_as_ever() {
    for (progress, bytes) in [(progress(), STATE_V1), (Progress::default(), NEW_STATE_V1)] {
        assert_eq!(encode_state(&progress), unhex(bytes));
        assert_eq!(decode_state(&unhex(bytes)).unwrap(), progress);
    }
}

#[test]
fn a_schedule_without_bounds_is_read_as_it_was_written() {
    let new = new("a", "@every 90s");
    let read = decode(encode(&new, &digest(&new), [1; 8]).into()).unwrap();
    assert_eq!(
        (read.timing, read.job, read.digest),
        (new.timing.clone(), new.job.clone(), digest(&new))
    );
}

#[test]
fn another_version_is_refused_by_its_number() {
    let mut bytes = unhex(RECORD_V1);
    bytes[0] = 9;
    assert_eq!(
        decode(bytes.into()).unwrap_err().to_string(),
        "unreadable record: version 9 of a recurring schedule, this program reads 1"
    );
}

#[test]
fn what_a_later_version_may_say_is_an_error() {
    for (word, other) in [("all", "any"), ("skip", "wait"), ("Berlin", "Nowhre"), ("MON", "XYZ")] {
        let text = String::from_utf8_lossy(&unhex(RECORD_V1)).contains(word);
        assert!(text, "{word}");
        let mut bytes = unhex(RECORD_V1);
        let at = bytes.windows(word.len()).position(|part| part == word.as_bytes()).unwrap();
        bytes[at..at + word.len()].copy_from_slice(other.as_bytes());
        assert!(decode(bytes.into()).is_err(), "{word}");
    }
}

#[test]
fn a_field_of_a_later_version_is_never_left_out() {
    // A map of one more, and its last field.
    let field = b"\xa5later\xc0";
    let mut state = unhex(STATE_V1);
    state[0] += 1;
    state.extend_from_slice(field);
    let why = decode_state(&state).unwrap_err().to_string();
    assert!(why.contains("later"), "{why}");
    let mut record = unhex(RECORD_V1);
    let end = 21 + usize::from(record[20]);
    record[20] += 7;
    record[21] += 1;
    drop(record.splice(end..end, field.iter().copied()));
    let why = decode(record.into()).unwrap_err().to_string();
    assert!(why.contains("later"), "{why}");
}

#[test]
fn every_cut_of_a_record_or_state_is_an_error_and_no_panic() {
    // The body has no length of its own: what is cut off its end is not missed.
    let record = unhex(RECORD_V1);
    for length in 0..record.len() - full().job.body.len() {
        assert!(decode(record[..length].to_vec().into()).is_err(), "{length}");
    }
    let state = unhex(STATE_V1);
    for length in 0..state.len() {
        assert!(decode_state(&state[..length]).is_err(), "{length}");
    }
}

#[test]
fn the_digest_is_of_everything_but_the_moment_and_the_message() {
    let base = digest(&full());
    let change = |change: &dyn Fn(&mut NewSchedule)| {
        let mut new = full();
        change(&mut new);
        digest(&new)
    };
    assert_eq!(change(&|new| new.job.created_ms = 1), base);
    assert_eq!(change(&|new| new.job.origin = "kafka".to_owned()), base);
    assert_eq!(change(&|new| new.origin.fingerprint = [0; 8]), base);
    assert_eq!(change(&|new| new.conflict = Conflict::Keep), base);
    assert_eq!(change(&|new| new.is_paused = true), base);
    assert_ne!(change(&|new| new.timing.end_ms = None), base);
    assert_ne!(change(&|new| new.job.ttr_ms = 1), base);
    assert_ne!(change(&|new| new.job.headers.push("a", dwell_core::Value::Null)), base);
    assert_ne!(change(&|new| new.job = Job::for_queue("q", "{\"order\":1}")), base);
}

proptest! {
    #[test]
    fn no_bytes_make_the_readers_panic(bytes: Vec<u8>) {
        let _ = decode(bytes.clone().into());
        let _ = decode_state(&bytes);
    }

    #[test]
    fn no_damage_makes_the_readers_panic(at: prop::sample::Index, byte: u8) {
        let (mut record, mut state) = (unhex(RECORD_V1), unhex(STATE_V1));
        let (in_record, in_state) = (at.index(record.len()), at.index(state.len()));
        (record[in_record], state[in_state]) = (byte, byte);
        let _ = decode(record.into());
        let _ = decode_state(&state);
    }
}
