//! Calls that share a command against the same calls one by one: the same answers, and the same
//! data. Those that fail leave the others alone.

use dwell_store::store::scripts::Name;

use crate::call::{Call, Set, keys, keys_of};
use crate::lua::Scripts;
use crate::random::Random;
use crate::redis::{Moment, Store};
use crate::reply::Reply;

const RUNS: u64 = 100;
const COMMANDS: usize = 40;
const MASTER: &str = "run_id:a\r\nmaster_replid2:0\r\n";

/// KEYS and ARGV of one command with these calls (`scripts/shared.lua`).
fn words_of(calls: &[Call]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut keys, mut arguments) = (Vec::new(), vec![calls.len().to_string().into_bytes()]);
    for call in calls {
        let own = keys_of(call.name, call.sets);
        let counts = [own.len(), call.arguments.len()];
        arguments.extend(counts.map(|count| count.to_string().into_bytes()));
        keys.extend(own);
    }
    arguments.extend(calls.iter().flat_map(|call| call.arguments.clone()));
    (keys, arguments)
}

/// Whether a shared command answers a call as the call alone is answered.
fn is_same(shared: &Reply, alone: &Reply) -> bool {
    match (shared, alone) {
        // What a script returns has its words; what Redis or Lua raises has others here than there.
        (Reply::Bulk(_), Reply::Error(error)) if error.starts_with("DWELL_") => {
            shared.text() == error
        }
        (Reply::Bulk(text), Reply::Error(_)) => text.starts_with(b"ERR "),
        (shared, alone) => shared == alone,
    }
}

#[test]
fn calls_that_share_a_command_are_answered_as_by_themselves() {
    let shared_names: Vec<Name> =
        Name::ALL.into_iter().filter(|name| name.shared_source(1).is_some()).collect();
    assert_eq!(shared_names.len(), 7, "{shared_names:?}");
    let alone = Scripts::new(|name| name.source(1));
    let together = Scripts::new(|name| name.shared_source(1).unwrap_or_else(|| name.source(1)));
    // What gives them jobs in each state.
    let others = [Name::Claim, Name::Hold, Name::Retry, Name::Bury, Name::Pop, Name::Complete];
    let (mut errors, mut raised) = (0, 0);
    for seed in 0..RUNS {
        let mut random = Random::new(seed);
        let mut store = Store::default();
        if seed % 5 == 0 {
            // A key of another type: the calls that name the queue fail, the others do not.
            let due = keys().due(0, Set::Queue.name()).into_bytes();
            let words = [b"HSET".to_vec(), due, b"x".to_vec(), b"y".to_vec()];
            store.command(&Moment { now_us: 0, info: MASTER }, &words).expect("no key is there");
        }
        for _ in 0..COMMANDS {
            random.pass();
            let moment = Moment { now_us: random.now_us, info: MASTER };
            if random.is_one_in(2) {
                let name = random.one_of(&others);
                let call = random.call(name);
                let (next, reply) = alone.run(&store, &moment, &call);
                random.saw(&call, &reply);
                store = next;
            }
            if seed % 2 == 1 && random.is_one_in(8) {
                // Fails on the key of another type, and changes nothing.
                let _ = store.command(&moment, &random.damage());
            }
            let name = random.one_of(&shared_names);
            let calls = [(); 4].map(|()| random.call(name));
            let (keys, arguments) = words_of(&calls);
            let (shared, answers) = together.run_with(&store, &moment, name, (&keys, &arguments));
            assert_eq!(answers.items().len(), calls.len(), "{answers:?}");
            for (call, answer) in calls.iter().zip(answers.items()) {
                let (next, reply) = alone.run(&store, &moment, call);
                assert!(is_same(answer, &reply), "{call:?}\nalone: {reply:?}\nshared: {answer:?}");
                errors += usize::from(matches!(reply, Reply::Error(_)));
                raised += usize::from(answer.bytes().starts_with(b"ERR "));
                store = next;
            }
            assert!(shared == store, "{calls:?}\nalone: {store:#?}\nshared: {shared:#?}");
        }
    }
    assert!(raised > 0 && errors > raised, "{errors} errors, {raised} of them raised");
}
