//! Requests in Kafka's protocol, for what librdkafka does not send.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::TIMEOUT;

const PRODUCE: (i16, i16) = (0, 3);
const CREATE_ACLS: (i16, i16) = (30, 1);

/// Publishes one message to partition 0, with headers whose names are any bytes.
pub(crate) fn publish(address: &str, topic: &str, body: &[u8], headers: &[(&[u8], &[u8])]) {
    let batch = batch(body, headers);
    let mut request = Vec::new();
    // No transaction; acks of all; the timeout.
    request.extend((-1_i16).to_be_bytes());
    request.extend((-1_i16).to_be_bytes());
    request.extend(10_000_i32.to_be_bytes());
    request.extend(1_i32.to_be_bytes());
    text(&mut request, topic);
    request.extend(1_i32.to_be_bytes());
    request.extend(0_i32.to_be_bytes());
    request.extend(length(&batch).to_be_bytes());
    request.extend(batch);
    let answer = ask(address, PRODUCE, &request);
    // Behind the number of topics, the name, the number of partitions and the partition.
    let code = 4 + 2 + topic.len() + 4 + 4;
    assert_eq!(answer[code..code + 2], [0, 0], "{answer:?}");
}

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

/// A batch of one record (magic 2).
fn batch(body: &[u8], headers: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut record = Vec::new();
    // Attributes, the differences of time and offset, and no key.
    record.extend([0, 0, 0]);
    varint(&mut record, -1);
    bytes(&mut record, body);
    varint(&mut record, length(headers));
    for (name, value) in headers {
        bytes(&mut record, name);
        bytes(&mut record, value);
    }
    // A time of 2020. No producer id, epoch or sequence.
    let time = 1_600_000_000_000_i64.to_be_bytes();
    let mut checked = Vec::new();
    checked.extend(0_i16.to_be_bytes());
    checked.extend(0_i32.to_be_bytes());
    checked.extend(time);
    checked.extend(time);
    checked.extend((-1_i64).to_be_bytes());
    checked.extend((-1_i16).to_be_bytes());
    checked.extend((-1_i32).to_be_bytes());
    checked.extend(1_i32.to_be_bytes());
    bytes(&mut checked, &record);
    let mut rest = (-1_i32).to_be_bytes().to_vec();
    rest.push(2);
    rest.extend(crc32c(&checked).to_be_bytes());
    rest.extend(checked);
    let mut batch = 0_i64.to_be_bytes().to_vec();
    batch.extend(length(&rest).to_be_bytes());
    batch.extend(rest);
    batch
}

fn length<T>(items: &[T]) -> i32 {
    i32::try_from(items.len()).unwrap()
}

/// A text behind its length.
fn text(to: &mut Vec<u8>, text: &str) {
    to.extend(i16::try_from(text.len()).unwrap().to_be_bytes());
    to.extend(text.as_bytes());
}

/// Bytes behind their length, in a record.
fn bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    varint(to, length(bytes));
    to.extend(bytes);
}

/// A number in zigzag form, seven bits a byte.
fn varint(to: &mut Vec<u8>, number: i32) {
    let mut rest = ((number << 1) ^ (number >> 31)).cast_unsigned();
    while rest >= 0x80 {
        to.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    to.push(u8::try_from(rest).unwrap());
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc: u32, _| {
            if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}
