//! Tells which header blocks async-nats parses reliably, and parses all others.
//!
//! - Behaviour: a NATS server accepts any bytes as headers. async-nats 0.51
//!   (`Connection::try_read_op` in `src/connection.rs`) ends the connection if the block is not
//!   UTF-8, does not start with `NATS/1.0` and an optional three-digit status, has a line without a
//!   colon, or a name with other than visible ASCII characters. It panics on a carriage return
//!   inside a value (`From<String> for HeaderValue` in `src/header.rs`; nats-io/nats.rs#1612).
//! - Workaround: [`is_plain`] finds the messages that async-nats may fail on, so that
//!   [`super::unreadable_message`] fetches them; [`parse`] parses their headers.
//! - May go when async-nats delivers messages with any header block.

use bytes::Bytes;

use crate::{Header, Headers, Value};

const VERSION: &str = "NATS/1.0";

/// Whether async-nats parses this block reliably. It also parses some malformed blocks; `false` for
/// those only costs a second way to read them.
pub(in crate::nats) fn is_plain(block: &[u8]) -> bool {
    if block.is_empty() {
        return true;
    }
    let Some(lines) = std::str::from_utf8(block)
        .ok()
        .and_then(|text| text.strip_prefix(VERSION)?.strip_prefix("\r\n")?.strip_suffix("\r\n"))
        .filter(|lines| lines.is_empty() || lines.ends_with("\r\n"))
    else {
        return false;
    };
    lines.split_terminator("\r\n").all(|line| {
        let Some((name, value)) = line.split_once(':') else { return false };
        is_name(name) && !value.contains(['\r', '\n'])
    })
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The headers of any block, as async-nats gives them if it parses the block: sorted by name,
/// values trimmed. A value that is not UTF-8 becomes bytes. A line that is no header becomes a
/// value without a name.
pub(in crate::nats) fn parse(block: &[u8]) -> Headers {
    let mut headers: Vec<(String, Vec<u8>)> = Vec::new();
    let mut lines =
        block.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    if let Some(first) = lines.next().filter(|first| !first.is_empty() && !is_version(first)) {
        headers.push((String::new(), first.to_vec()));
    }
    // Whether a line that starts with white space continues the line before.
    let mut open = false;
    for line in lines.filter(|line| !line.is_empty()) {
        if open
            && line[0].is_ascii_whitespace()
            && let Some((_, value)) = headers.last_mut()
        {
            value.extend_from_slice(line);
            continue;
        }
        let header = line.iter().position(|byte| *byte == b':').and_then(|colon| {
            let name = std::str::from_utf8(&line[..colon]).ok().filter(|name| !name.is_empty())?;
            Some((name.to_owned(), line[colon + 1..].to_vec()))
        });
        open = header.is_some();
        headers.push(header.unwrap_or_else(|| (String::new(), line.to_vec())));
    }
    headers.sort_by(|(one, _), (other, _)| one.cmp(other));
    headers.into_iter().map(|(name, value)| Header { name, value: text_or_bytes(&value) }).collect()
}

/// `NATS/1.0`, with or without a status, which means nothing on a message.
fn is_version(line: &[u8]) -> bool {
    line.strip_prefix(VERSION.as_bytes()).is_some_and(|rest| {
        let status = rest.trim_ascii().split(|byte| *byte == b' ').next().unwrap_or_default();
        status.is_empty() || (status.len() == 3 && status.iter().all(u8::is_ascii_digit))
    })
}

fn text_or_bytes(value: &[u8]) -> Value {
    match std::str::from_utf8(value) {
        Ok(text) => Value::Text(text.trim().to_owned()),
        Err(_) => Value::Bytes(Bytes::copy_from_slice(value.trim_ascii())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(block: &[u8]) -> Vec<(String, Value)> {
        parse(block).into_iter().map(|header| (header.name, header.value)).collect()
    }

    fn text(name: &str, value: &str) -> (String, Value) {
        (name.to_owned(), value.into())
    }

    #[test]
    fn blocks_as_they_should_be_are_plain() {
        for block in [
            "",
            "NATS/1.0\r\n\r\n",
            "NATS/1.0\r\na: b\r\n\r\n",
            "NATS/1.0\r\na:b\r\nA: \u{e4}: c\r\n\r\n",
            "NATS/1.0\r\na:\r\na:\r\n\r\n",
        ] {
            assert!(is_plain(block.as_bytes()), "{block:?}");
        }
    }

    #[test]
    fn blocks_that_the_client_may_fail_on_are_not() {
        for block in [
            &b"NATS/1.0\r\na: \xff\r\n\r\n"[..],
            b"NATS/1.0\r\n\xff: a\r\n\r\n",
            b"NATS/1.0\r\nno colon\r\n\r\n",
            b"NATS/1.0\r\na b: c\r\n\r\n",
            b"NATS/1.0\r\n\xc3\xa4: c\r\n\r\n",
            b"NATS/1.0\r\n: c\r\n\r\n",
            b"NATS/1.0\r\na: b\rc\r\n\r\n",
            b"NATS/1.0\r\na: b\nc\r\n\r\n",
            b"NATS/1.0\r\na: b\r\n",
            b"NATS/1.0\r\n",
            b"NATS/1.0",
            b"NATS/1.0 503\r\n\r\n",
            b"NATS/1.0 abc\r\n\r\n",
            b"\r\n",
            b"garbage",
        ] {
            assert!(!is_plain(block), "{:?}", block.escape_ascii().to_string());
        }
    }

    #[test]
    fn every_block_is_read() {
        assert_eq!(
            read(b"NATS/1.0 503 no\r\na:  b \r\nA: c: d\r\n\r\n"),
            [text("A", "c: d"), text("a", "b")]
        );
        assert_eq!(
            read(b"NATS/1.0\r\na: \xff\xfe\r\nb: c\r\n\r\n"),
            [("a".to_owned(), Value::Bytes(Bytes::from_static(b"\xff\xfe"))), text("b", "c")]
        );
        assert_eq!(read(b"NATS/1.0\r\na: b\r\n  c\r\n\td\r\n\r\n"), [text("a", "b  c\td")]);
        assert_eq!(read(b"NATS/1.0\r\na: b\rc\r\n\r\n"), [text("a", "b\rc")]);
        assert_eq!(
            read(b"NATS/1.0 abc\r\n no colon\r\na: b\r\n\xff: x\r\n: y"),
            [
                text("", "NATS/1.0 abc"),
                text("", "no colon"),
                (String::new(), Value::Bytes(Bytes::from_static(b"\xff: x"))),
                text("", ": y"),
                text("a", "b")
            ]
        );
        for empty in [&b""[..], b"\r\n", b"NATS/1.0", b"NATS/1.0\r\n\r\n"] {
            assert_eq!(read(empty), []);
        }
    }
}
