//! A publisher that writes raw AMQP frames, as no library writes them.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::TIMEOUT;

pub(crate) struct Wire(TcpStream);

pub(crate) const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;

/// A short string: its length takes one byte.
pub(crate) fn short(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text].concat()
}

/// Bytes with their length in four bytes.
pub(crate) fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// A complete frame.
pub(crate) fn frame(channel: u16, kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind], &channel.to_be_bytes()[..], &long(payload), &[0xce]].concat()
}

/// The channel and the method (class and number) of the next method frame.
pub(crate) fn next_method(stream: &mut TcpStream) -> (u16, [u8; 4]) {
    let (channel, payload) = next_payload(stream);
    (channel, payload[..4].try_into().unwrap())
}

/// The channel and the payload of the next method frame.
fn next_payload(stream: &mut TcpStream) -> (u16, Vec<u8>) {
    loop {
        let mut head = [0; 7];
        stream.read_exact(&mut head).unwrap();
        let size = u32::from_be_bytes(head[3..].try_into().unwrap());
        let mut payload = vec![0; usize::try_from(size).unwrap() + 1];
        stream.read_exact(&mut payload).unwrap();
        if head[0] == METHOD {
            payload.pop();
            return (u16::from_be_bytes([head[1], head[2]]), payload);
        }
    }
}

impl Wire {
    /// Logs in as `guest` on the vhost `/`, and opens channel 1. `url` has only a host and a port.
    pub(crate) fn connect(url: &str) -> Self {
        let stream = TcpStream::connect(url.strip_prefix("amqp://").unwrap()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut wire = Wire(stream);
        wire.0.write_all(b"AMQP\0\0\x09\x01").unwrap();
        wire.wait_for(10, 10);
        let start_ok =
            [long(b""), short(b"PLAIN"), long(b"\0guest\0guest"), short(b"en_US")].concat();
        wire.method(0, 10, 11, &start_ok);
        let tune = wire.wait_for(10, 30);
        wire.method(0, 10, 31, &tune);
        wire.method(0, 10, 40, &[short(b"/"), short(b""), vec![0]].concat());
        wire.wait_for(10, 41);
        wire.method(1, 20, 10, &short(b""));
        wire.wait_for(20, 11);
        wire
    }

    /// Publishes a body with these properties: their flags, and their encoded values.
    pub(crate) fn publish(
        &mut self,
        exchange: &str,
        key: &[u8],
        flags: u16,
        properties: &[u8],
        body: &[u8],
    ) {
        self.method(
            1,
            60,
            40,
            &[vec![0, 0], short(exchange.as_bytes()), short(key), vec![0]].concat(),
        );
        let size = u64::try_from(body.len()).unwrap().to_be_bytes();
        self.frame(
            1,
            HEADER,
            &[&[0, 60, 0, 0], &size[..], &flags.to_be_bytes(), properties].concat(),
        );
        self.frame(1, BODY, body);
    }

    /// Waits until the server has read everything, and closes the channel.
    pub(crate) fn finish(mut self) {
        self.method(1, 20, 40, &[vec![0, 200], short(b""), vec![0; 4]].concat());
        self.wait_for(20, 41);
    }

    fn method(&mut self, channel: u16, class: u16, method: u16, arguments: &[u8]) {
        self.frame(
            channel,
            METHOD,
            &[&class.to_be_bytes()[..], &method.to_be_bytes(), arguments].concat(),
        );
    }

    fn frame(&mut self, channel: u16, kind: u8, payload: &[u8]) {
        self.0.write_all(&frame(channel, kind, payload)).unwrap();
    }

    /// The arguments of the next method, which must be this one.
    fn wait_for(&mut self, class: u16, method: u16) -> Vec<u8> {
        let (_, mut payload) = next_payload(&mut self.0);
        assert_eq!(
            payload[..4],
            [class.to_be_bytes(), method.to_be_bytes()].concat(),
            "{}",
            payload.escape_ascii()
        );
        payload.split_off(4)
    }
}
