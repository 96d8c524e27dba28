//! A fake server, for answers that a real server cannot be made to give at a given moment.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::wire::{METHOD, frame, long, next_method, short};

const CONNECTION_CLOSE: [u8; 4] = [0, 10, 0, 50];
const CHANNEL_OPEN: [u8; 4] = [0, 20, 0, 10];
const CHANNEL_CLOSE: [u8; 4] = [0, 20, 0, 40];
const CONFIRM_SELECT: [u8; 4] = [0, 85, 0, 10];

/// Accepts one connection, where each queue and exchange exists. Returns its URL, and the most
/// channels that were open at once.
pub(crate) fn counts_channels() -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("amqp://{}", listener.local_addr().unwrap());
    let most = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&most);
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        begin(&mut stream);
        let mut open = 0;
        loop {
            let (channel, method) = next_method(&mut stream);
            match method {
                CHANNEL_OPEN => open += 1,
                CHANNEL_CLOSE => open -= 1,
                _ => {}
            }
            counted.fetch_max(open, Ordering::Relaxed);
            reply(&mut stream, channel, method);
            if method == CONNECTION_CLOSE {
                return;
            }
        }
    });
    (url, most)
}

/// Accepts one connection and this many publications on its first channel. Then sends all confirms
/// and the end of the connection in one write. Returns its URL.
pub(crate) fn confirms_and_closes(count: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("amqp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let channel = greet(&mut stream);
        let mut taken = 0;
        // The first publication goes alone.
        while taken < count {
            if next_method(&mut stream).1 == [0, 60, 0, 40] {
                taken += 1;
                if taken == 1 {
                    stream.write_all(&ack(channel, 1, false)).unwrap();
                }
            }
        }
        let goodbye = frame(
            0,
            METHOD,
            &[&[0, 10, 0, 50, 1, 64][..], &short(b"CONNECTION_FORCED"), &[0; 4]].concat(),
        );
        stream.write_all(&[ack(channel, count, true), goodbye].concat()).unwrap();
        // Unread data in a closing socket would reset the connection, and the client would lose
        // what it received.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    url
}

fn ack(channel: u16, tag: u64, multiple: bool) -> Vec<u8> {
    frame(
        channel,
        METHOD,
        &[&[0, 60, 0, 80][..], &tag.to_be_bytes(), &[u8::from(multiple)]].concat(),
    )
}

/// Runs the handshake up to a channel with confirms; returns the channel number.
fn greet(stream: &mut TcpStream) -> u16 {
    begin(stream);
    loop {
        let (channel, method) = next_method(stream);
        reply(stream, channel, method);
        if method == CONFIRM_SELECT {
            return channel;
        }
    }
}

/// Reads the header of the protocol, and sends the first method.
fn begin(stream: &mut TcpStream) {
    let mut header = [0; 8];
    std::io::Read::read_exact(stream, &mut header).unwrap();
    let start = [&[0, 10, 0, 10, 0, 9][..], &long(b""), &long(b"PLAIN"), &long(b"en_US")].concat();
    stream.write_all(&frame(0, METHOD, &start)).unwrap();
}

/// Answers a method that has an answer.
fn reply(stream: &mut TcpStream, channel: u16, method: [u8; 4]) {
    let answer: Vec<u8> = match method {
        [0, 10, 0, 11] => vec![0, 10, 0, 30, 0, 0, 0, 2, 0, 0, 0, 0],
        [0, 10, 0, 40] => vec![0, 10, 0, 41, 0],
        CONNECTION_CLOSE => vec![0, 10, 0, 51],
        CHANNEL_OPEN => vec![0, 20, 0, 11, 0, 0, 0, 0],
        CHANNEL_CLOSE => vec![0, 20, 0, 41],
        [0, 40, 0, 10] => vec![0, 40, 0, 11],
        [0, 50, 0, 10] => [&[0, 50, 0, 11][..], &short(b"q"), &[0; 8]].concat(),
        CONFIRM_SELECT => vec![0, 85, 0, 11],
        _ => return,
    };
    stream.write_all(&frame(channel, METHOD, &answer)).unwrap();
}
