//! A message on an ingest: an accepted one keeps its promises, and `rejected` can take a refused
//! one.

use bytes::Bytes;
use dwell::outgoing::Rejected;
use dwell::request::known_headers::NAMES;
use dwell::request::{Rejection, Request, parse};
use dwell_connectors::{Destination, Header, Headers, Message, Position, Properties, Value};

use crate::input::Input;
use crate::promises;
use crate::rules::{KINDS, NOW, broker, rules};

/// A frame that holds what is left of a refused request at the last.
const FRAME: usize = 4096;

/// Kind and flags, headers (a name from the list or its own, a value), key, address, and the rest
/// as the body.
pub(crate) fn target(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (kind, flags) = (KINDS[usize::from(input.byte()) % KINDS.len()], input.byte());
    let message = message(&mut input, kind, flags);
    let rules = rules(kind, flags & 1 != 0, flags & 2 != 0);
    match parse(&message, &rules, NOW) {
        Ok(Request::NewJob(new_job)) => promises::kept(&new_job, &rules, kind),
        Ok(Request::NewSchedule(new)) => promises::kept_by_schedule(&new, &rules, kind),
        Ok(Request::Act(act)) => assert!(act.action != dwell::job::Action::Add),
        Err(rejection) => {
            assert!(!rejection.detail.chars().any(char::is_control), "{:?}", rejection.detail);
            assert!(rejection.detail.len() < 2000, "{}", rejection.detail.len());
            rejected(message, &rejection, kind);
        }
    }
}

fn message(input: &mut Input<'_>, kind: &str, flags: u8) -> Message {
    let mut headers = Headers::default();
    for _ in 0..input.byte() % 12 {
        let name = match input.byte() {
            number if usize::from(number) < NAMES.len() => NAMES[usize::from(number)].to_owned(),
            _ => input.text(),
        };
        let value = input.value();
        headers.push(name, value);
    }
    // Headers that the broker itself could have delivered.
    let headers: Headers = headers.into_iter().filter_map(|header| carried(header, kind)).collect();
    let key = (flags & 4 != 0).then(|| Bytes::copy_from_slice(input.bytes()));
    let exchange = if kind == "amqp" { input.text() } else { String::new() };
    let destination = Destination { exchange, address: input.text() };
    let properties = (kind == "amqp").then(|| {
        let text = |text: String| Some(text).filter(|text| text.len() <= 255);
        Box::new(Properties {
            message_id: text(input.text()),
            reply_to: text(input.text()),
            priority: Some(flags),
            ..Properties::default()
        })
    });
    let timestamp_ms = (flags & 8 != 0).then(|| NOW.saturating_add(input.number()));
    Message {
        body: Bytes::copy_from_slice(input.rest()),
        has_body: kind != "kafka" || flags & 16 == 0,
        key: key.filter(|_| kind == "kafka"),
        headers,
        properties,
        destination,
        position: (kind != "amqp").then(|| Position {
            log: "LOG".to_owned(),
            partition: 0,
            offset: 7,
        }),
        timestamp_ms,
        timestamp_is_cut: flags & 64 != 0,
        redelivered: flags & 32 != 0,
        mark_lost: false,
        unreadable: Vec::new(),
    }
}

/// A header as a broker of this kind can deliver it, if it can.
fn carried(header: Header, kind: &str) -> Option<Header> {
    let keep = match (&header.value, kind) {
        (_, "amqp") => header.name.len() <= 255,
        // Bytes that are not UTF-8 come from blocks that the client library does not read.
        (Value::Text(_) | Value::Bytes(_), "nats")
        | (Value::Text(_) | Value::Bytes(_) | Value::Null, _) => true,
        _ => false,
    };
    keep.then_some(header)
}

/// Each step sends less, whatever the broker makes of it, and every broker takes the last step.
fn rejected(message: Message, rejection: &Rejection, kind: &str) {
    let has_copies = |message: &Message| {
        message.headers.iter().any(|header| header.name == "CC" || header.name == "BCC")
    };
    let mut rejected = Rejected::new(message, rejection, broker(kind).capabilities());
    let mut last = rejected.message();
    assert!(
        kind != "amqp" || !has_copies(&last),
        "a rejected request goes to its own destination alone"
    );
    for _ in 0..20 {
        if !rejected.leave_out() {
            assert!(
                last.body.is_empty()
                    && last.key.is_none()
                    && last.properties.is_none()
                    && last.headers.len() == 2,
                "{last:?}"
            );
            dwell_connectors::fuzz::publishable(kind, last, FRAME)
                .expect("the code and what was wrong pass everywhere");
            return;
        }
        last = rejected.message();
    }
    panic!("there is always something more to leave out");
}
