//! Requests in Kafka's protocol, for what librdkafka does not send.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::TIMEOUT;

const CREATE_ACLS: (i16, i16) = (30, 1);

/// Lets everybody read the topic. Where an authorizer allows what has no rule, that takes away all
/// other rights on it.
pub(crate) fn allow_reading_alone(address: &str, topic: &str) {
    const TOPIC: u8 = 2;
    const LITERAL: u8 = 3;
    const READ: u8 = 3;
    const ALLOW: u8 = 3;
    let mut request = Vec::new();
    request.extend(1_i32.to_be_bytes());
    request.push(TOPIC);
    text(&mut request, topic);
    request.push(LITERAL);
    text(&mut request, "User:*");
    text(&mut request, "*");
    request.extend([READ, ALLOW]);
    let answer = ask(address, CREATE_ACLS, &request);
    // Behind the time of throttling and the number of results.
    assert_eq!(answer[8..10], [0, 0], "{}", String::from_utf8_lossy(&answer));
}

/// Sends a request; returns the answer without its header.
fn ask(address: &str, (api, version): (i16, i16), body: &[u8]) -> Vec<u8> {
    let mut request = Vec::new();
    request.extend(api.to_be_bytes());
    request.extend(version.to_be_bytes());
    request.extend(1_i32.to_be_bytes());
    text(&mut request, "raw");
    request.extend(body);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(&length(&request).to_be_bytes()).unwrap();
    stream.write_all(&request).unwrap();
    let mut size = [0; 4];
    stream.read_exact(&mut size).unwrap();
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes(size)).unwrap()];
    stream.read_exact(&mut answer).unwrap();
    answer.split_off(4)
}

fn length<T>(items: &[T]) -> i32 {
    i32::try_from(items.len()).unwrap()
}

/// A text behind its length.
fn text(to: &mut Vec<u8>, text: &str) {
    to.extend(i16::try_from(text.len()).unwrap().to_be_bytes());
    to.extend(text.as_bytes());
}
