//! A private redis-server that runs the same texts, and its data as a store of this test.

use std::collections::HashMap;

use dwell_store::store::scripts::Name;
use redis::{Connection, Value};

use crate::call::{Call, keys_of};
use crate::redis::{Moment, Store};
use crate::reply::Reply;

/// A real Redis.
pub(crate) struct Real {
    connection: Connection,
    hashes: HashMap<Name, String>,
}

impl Real {
    /// Loads the scripts.
    pub(crate) fn new(url: &str, source: impl Fn(Name) -> String) -> Real {
        let mut connection = redis::Client::open(url)
            .and_then(|client| client.get_connection())
            .expect("the server is ready");
        let mut load = |name: Name| {
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(source(name))
                .query(&mut connection)
                .expect("a script loads")
        };
        let hashes = Name::ALL.into_iter().map(|name| (name, load(name))).collect();
        Real { connection, hashes }
    }

    /// Runs one command.
    pub(crate) fn command(&mut self, words: &[Vec<u8>]) -> Reply {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        self.query(&command)
    }

    /// Runs one call of a script.
    pub(crate) fn run(&mut self, call: &Call) -> Reply {
        let keys = keys_of(call.name, call.sets);
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hashes[&call.name]).arg(keys.len()).arg(keys).arg(&call.arguments);
        self.query(&command)
    }

    fn query(&mut self, command: &redis::Cmd) -> Reply {
        command
            .query(&mut self.connection)
            .map_or_else(|error| Reply::Error(error.to_string()), reply)
    }

    /// Reads every key.
    pub(crate) fn store(&mut self) -> Store {
        let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
        let (mut store, moment) = (Store::default(), Moment { now_us: 0, info: "" });
        for key in self.command(&words(&[b"KEYS", b"*"])).items() {
            let key = key.bytes();
            let is_hash = self.command(&words(&[b"TYPE", key])) == Reply::Status("hash".to_owned());
            let read = if is_hash {
                words(&[b"HGETALL", key])
            } else {
                words(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])
            };
            for pair in self.command(&read).items().chunks_exact(2) {
                let (first, second) = (pair[0].bytes(), pair[1].bytes());
                let write = if is_hash {
                    [b"HSET", key, first, second]
                } else {
                    [b"ZADD", key, second, first]
                };
                store.command(&moment, &words(&write)).expect("what Redis holds");
            }
        }
        store
    }
}

fn reply(value: Value) -> Reply {
    match value {
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => Reply::Bulk(bytes),
        Value::SimpleString(status) => Reply::Status(status),
        Value::Okay => Reply::Status("OK".to_owned()),
        Value::Array(items) => Reply::Array(items.into_iter().map(reply).collect()),
        Value::ServerError(error) => Reply::Error(error.to_string()),
        Value::Nil => Reply::Nil,
        other => panic!("an answer of RESP2: {other:?}"),
    }
}
