//! The commands that calls share, their answers, and what ends the sharing.
#![allow(clippy::unwrap_used, reason = "tests")]

use redis::Arg;

use super::*;
use crate::store::scripts::{Name, Scripts};

/// A call with one key, which has its place as the name, and with one argument of this length.
fn call(scripts: &Scripts, script: Name, place: usize, jobs: usize, bytes: usize) -> ScriptCall {
    let mut call = ScriptCall::new(scripts, script, 1);
    call.arg(format!("key-{place}")).arg(vec![b'x'; bytes]);
    call.with_jobs(jobs);
    call
}

/// The places in each command of one wave of calls with these scripts, jobs and bytes.
fn joined(calls: &[(Name, usize, usize)], may_share: bool) -> Vec<Vec<usize>> {
    let scripts = Scripts::new(1);
    let of = |(place, (script, jobs, bytes)): (usize, &(Name, usize, usize))| {
        call(&scripts, *script, place, *jobs, *bytes)
    };
    let waves: [Vec<ScriptCall>; 1] = [calls.iter().enumerate().map(of).collect()];
    join(&waves, may_share)[0].iter().map(|sent| sent.places().collect()).collect()
}

#[test]
fn calls_of_one_script_share_a_command() {
    let (schedule, cancel) = ((Name::Schedule, 1, 9), (Name::Cancel, 1, 9));
    let claim = (Name::Claim, 1, 9);
    let calls = [schedule, cancel, claim, schedule, claim, cancel, schedule];
    assert_eq!(joined(&calls, true), [vec![0, 3, 6], vec![1, 5], vec![2], vec![4]]);
    assert_eq!(joined(&calls, false), [[0], [1], [2], [3], [4], [5], [6]]);
    // A probe has no jobs.
    assert_eq!(joined(&[(Name::Schedule, 0, 0); 2], true), [[0], [1]]);
}

#[test]
fn a_command_is_bounded_by_calls_by_jobs_and_by_bytes() {
    let lengths = |calls: &[(Name, usize, usize)]| -> Vec<usize> {
        joined(calls, true).iter().map(Vec::len).collect()
    };
    assert_eq!(lengths(&[(Name::Cancel, 1, 1); SHARED_CALLS + 1]), [SHARED_CALLS, 1]);
    let of_jobs = |jobs| (Name::Schedule, jobs, 1);
    let full = CALL_JOBS / SHARED_CALL_JOBS;
    assert_eq!(lengths(&vec![of_jobs(SHARED_CALL_JOBS); full + 1]), [full, 1]);
    // A call with more jobs is a command of its own.
    assert_eq!(joined(&[1, SHARED_CALL_JOBS + 1, 1].map(of_jobs), true), [vec![0, 2], vec![1]]);
    let of_bytes = |bytes| (Name::Schedule, 1, bytes);
    assert_eq!(lengths(&[2 * CALL_BYTES, 1, CALL_BYTES / 2, CALL_BYTES].map(of_bytes)), [1, 2, 1]);
}

#[test]
fn waves_do_not_share_and_places_go_through_all_of_them() {
    let scripts = Scripts::new(1);
    let wave = |count: usize| -> Vec<ScriptCall> {
        (0..count).map(|place| call(&scripts, Name::Schedule, place, 1, 1)).collect()
    };
    let waves = [wave(2), wave(1), wave(2)];
    let places: Vec<Vec<usize>> =
        join(&waves, true).iter().flatten().map(|sent| sent.places().collect()).collect();
    assert_eq!(places, [vec![0, 1], vec![2], vec![3, 4]]);
}

#[test]
fn a_command_has_the_keys_of_its_calls_and_their_counts() {
    let scripts = Scripts::new(1);
    let mut second = ScriptCall::new(&scripts, Name::Cancel, 2);
    second.arg(["b1", "b2"].as_slice()).arg("id");
    second.with_jobs(1);
    let waves = [vec![call(&scripts, Name::Cancel, 0, 1, 2), second]];
    let sent = join(&waves, true);
    let words: Vec<String> = AsRef::<Cmd>::as_ref(&sent[0][0])
        .args_iter()
        .map(|word| match word {
            Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            _ => String::new(),
        })
        .collect();
    let hash = scripts.shared_hash(Name::Cancel).unwrap();
    let expected =
        ["EVALSHA", &*hash, "3", "key-0", "b1", "b2", "2", "1", "1", "2", "1", "xx", "id"];
    assert_eq!(words, expected);
    assert_ne!(&*hash, scripts.hash(Name::Cancel));
}

#[test]
fn the_error_of_a_call_is_as_redis_sends_it_for_that_call() {
    let texts = [
        ("DWELL_BROKER 1 =orders", Class::Outdated),
        ("DWELL_LATE 1790000000123456", Class::Unserved),
        ("DWELL_VERSION x", Class::Script),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", Class::Script),
        ("ERR user_script:31: attempt to index a nil value", Class::Script),
        ("OOM command not allowed when used memory > 'maxmemory'.", Class::Oom),
        // Redis 6.
        (
            "ERR @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.",
            Class::Oom,
        ),
        ("NOREPLICAS Not enough good replicas to write.", Class::Readonly),
        ("READONLY You can't write against a read only replica.", Class::Readonly),
        ("ERR of two\r\nlines", Class::Other),
    ];
    let told = Value::Array(vec![Value::BulkString(b"added".to_vec())]);
    let mut answers = vec![told.clone()];
    answers.extend(texts.map(|(text, _)| Value::BulkString(text.as_bytes().to_vec())));
    let each = split("schedule", Value::Array(answers), texts.len() + 1).unwrap();
    assert_eq!(each[0], told);
    for (answer, (text, class)) in each[1..].iter().zip(texts) {
        let error = answer.clone().extract_error().unwrap_err();
        assert_eq!(StoreError::from_redis("schedule", &error).class, class, "{text}");
    }
    for odd in [
        Value::Okay,
        Value::Array(Vec::new()),
        Value::Array(vec![told.clone(), told.clone(), told.clone()]),
        Value::Array(vec![told, Value::Int(1)]),
    ] {
        assert_eq!(split("schedule", odd, 2).unwrap_err().class, Class::Other);
    }
}

fn error(text: &str) -> StoreError {
    let answer = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
    StoreError::from_redis("schedule", &answer.extract_error().unwrap_err())
}

#[test]
fn a_server_that_refuses_a_shared_command_gets_no_other() {
    for (text, class, goes_on) in [
        ("CROSSSLOT Keys in request don't hash to the same slot", Class::Unshared, false),
        ("NOPERM User dwell has no permissions to access the 'x' key", Class::Unshared, false),
        // Whether it ran is unknown.
        ("ERR command is not supported", Class::Unserved, false),
        ("ERR user_script:31: attempt to index a nil value", Class::Unserved, false),
        ("ERR unknown command 'EVALSHA', with args beginning with: 'x'", Class::Settings, false),
        ("LOADING Redis is loading the dataset in memory", Class::Unserved, true),
        ("READONLY You can't write against a read only replica.", Class::Readonly, true),
        ("NOAUTH Authentication required.", Class::Refused, true),
    ] {
        let sharing = Sharing::default();
        assert_eq!(sharing.refused(error(text)).class, class, "{text}");
        assert_eq!(sharing.is_on(), goes_on, "{text}");
    }
    let sharing = Sharing::default();
    assert!(sharing.refused(StoreError::held_back("schedule")).was_not_run());
    let lost = StoreError::new(Class::Timeout, "redis: schedule: no answer");
    assert!(!sharing.refused(lost).was_not_run() && sharing.is_on());
}

#[tokio::test(start_paused = true)]
async fn a_busy_or_full_server_gets_no_shared_command_for_a_minute() {
    let busy = "BUSY Redis is busy running a script. You can only call SCRIPT KILL";
    let full = "OOM command not allowed when used memory > 'maxmemory'.";
    for (text, class) in
        [(busy, Class::Other), ("DWELL_FULL no call was run", Class::Unshared), (full, Class::Oom)]
    {
        let sharing = Sharing::default();
        assert_eq!(sharing.refused(error(text)).class, class, "{text}");
        assert!(!sharing.is_on());
        clock::sleep(REST - Duration::from_secs(1)).await;
        assert!(!sharing.is_on());
        clock::sleep(Duration::from_secs(1)).await;
        assert!(sharing.is_on());
    }
}

#[test]
fn a_shared_script_that_does_not_compile_is_not_used() {
    let sharing = Sharing::default();
    assert!(sharing.not_loaded(StoreError::new(Class::Io, "redis: SCRIPT LOAD: cut")).is_err());
    assert!(sharing.is_on());
    let refused =
        error("ERR Error compiling script (new function): user_script:300: too many upvalues");
    assert!(sharing.not_loaded(refused).is_ok() && !sharing.is_on());
    let full = Sharing::default();
    assert!(full.not_loaded(StoreError::new(Class::Oom, "redis: SCRIPT LOAD")).is_ok());
    assert!(!full.is_on());
}

#[test]
fn an_odd_answer_is_told_in_short() {
    let long = Value::BulkString(vec![b'x'; 1 << 20]);
    let error = split("schedule", Value::Array(vec![long]), 2).unwrap_err();
    assert!(error.message.len() < 2 * SHOWN_CHARS, "{}", error.message.len());
}
