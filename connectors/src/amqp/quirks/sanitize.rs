//! Changes frame payloads that lapin's parser cannot parse, in place and with the same length.
//!
//! - Behaviour (amq-protocol-types 10.6, `src/parsing.rs`): `parse_field_array` and
//!   `parse_field_table` recurse without a bound, so deep nesting overflows the stack and aborts
//!   the process. `parse_short_string` fails for a short string that is not UTF-8, which the
//!   specification forbids (amqp-rs/amq-protocol#28), and lapin then closes the connection.
//!   RabbitMQ passes both on and redelivers them to the next reader, so one such message would stop
//!   every reader of its queue.
//! - Workaround: this parser does not recurse. A list or table nested deeper than [`MAX_DEPTH`]
//!   becomes a byte array, which has the same layout. Each byte that is not UTF-8 in a short string
//!   becomes [`INVALID_BYTE_MARK`] in what producers wrote, so that such a message is refused by
//!   name and never passes for another one; and `?` in what the server says.
//! - May go when the library bounds its recursion and accepts short strings of any bytes.

/// The deepest nesting of lists and tables; the table of the headers itself does not count.
pub(in crate::amqp) const MAX_DEPTH: usize = 32;

/// Stands for a byte that is not UTF-8: the control character SUB, which no name or id has.
pub(in crate::amqp) const INVALID_BYTE_MARK: u8 = 0x1a;

/// The types of frames that are sanitized.
pub(in crate::amqp) const METHOD_FRAME: u8 = 1;
pub(in crate::amqp) const HEADER_FRAME: u8 = 2;

/// Sanitizes the payload of a method or header frame; true if anything changed. The rest of a
/// malformed payload is left alone: lapin's parser reads in the same order and fails at the same
/// place.
pub(in crate::amqp) fn sanitize(kind: u8, payload: &mut [u8]) -> bool {
    let mut cursor = Cursor { bytes: payload, at: 0, changed: false, mark: INVALID_BYTE_MARK };
    // `None` only means that the payload ended early or is malformed.
    let _ = match kind {
        METHOD_FRAME => cursor.method(),
        HEADER_FRAME => cursor.header(),
        _ => None,
    };
    cursor.changed
}

struct Cursor<'a> {
    bytes: &'a mut [u8],
    at: usize,
    changed: bool,
    mark: u8,
}

impl Cursor<'_> {
    /// The methods with short strings from other clients: names, routing keys, reasons.
    fn method(&mut self) -> Option<()> {
        let (head, texts) = match (self.number(2)?, self.number(2)?) {
            // connection.close, channel.close: code, reason.
            (10, 50) | (20, 40) => (2, 1),
            // connection.blocked: reason.
            (10, 60) => (0, 1),
            // basic.return: code, reason, exchange, key.
            (60, 50) => (2, 3),
            // basic.deliver: consumer; then tag, redelivered, exchange, key.
            (60, 60) => {
                self.short()?;
                (9, 2)
            }
            // basic.get-ok: tag, redelivered, exchange, key.
            (60, 71) => (9, 2),
            _ => return None,
        };
        self.mark = if texts == 2 { INVALID_BYTE_MARK } else { b'?' };
        self.skip(head)?;
        (0..texts).try_for_each(|_| self.short())
    }

    /// Class, weight, body size, flags; then the properties whose flags are set, highest bit first.
    fn header(&mut self) -> Option<()> {
        self.skip(2 + 2 + 8)?;
        let flags = self.number(2)?;
        for bit in (2..16).rev().filter(|bit| flags & (1 << bit) != 0) {
            match bit {
                13 => self.table()?,
                // Delivery mode, priority.
                12 | 11 => self.skip(1)?,
                // Timestamp.
                6 => self.skip(8)?,
                _ => self.short()?,
            }
        }
        Some(())
    }

    /// A table with its content.
    fn table(&mut self) -> Option<()> {
        // The end of each open list or table, and whether it is a table.
        let mut open = [(0, false); MAX_DEPTH + 1];
        let mut depth = 0;
        open[0] = (self.end(self.bytes.len())?, true);
        loop {
            let (end, is_table) = open[depth];
            if self.at == end {
                if depth == 0 {
                    return Some(());
                }
                depth -= 1;
                continue;
            }
            if is_table {
                self.short()?;
            }
            let at = self.at;
            match self.number(1).and_then(|kind| u8::try_from(kind).ok())? {
                b'V' => {}
                b't' | b'b' | b'B' => self.skip(1)?,
                b's' | b'U' | b'u' => self.skip(2)?,
                b'I' | b'i' | b'f' => self.skip(4)?,
                b'D' => self.skip(5)?,
                b'L' | b'l' | b'd' | b'T' => self.skip(8)?,
                b'S' | b'x' => self.at = self.end(end)?,
                b'A' | b'F' if depth == MAX_DEPTH => {
                    let after = self.end(end)?;
                    *self.bytes.get_mut(at)? = b'x';
                    (self.at, self.changed) = (after, true);
                }
                kind @ (b'A' | b'F') => {
                    depth += 1;
                    open[depth] = (self.end(end)?, kind == b'F');
                }
                _ => return None,
            }
            if self.at > end {
                return None;
            }
        }
    }

    /// Reads a length of 4 bytes; returns the end of the content if it is not after `last`.
    fn end(&mut self, last: usize) -> Option<usize> {
        let length = self.number(4)?;
        self.at.checked_add(length).filter(|end| *end <= last)
    }

    /// A short string: its length takes one byte.
    fn short(&mut self) -> Option<()> {
        let length = self.number(1)?;
        let start = self.at;
        self.skip(length)?;
        let text = &mut self.bytes[start..self.at];
        self.changed |= make_text(text, self.mark);
        Some(())
    }

    fn number(&mut self, length: usize) -> Option<usize> {
        let start = self.at;
        self.skip(length)?;
        Some(
            self.bytes[start..self.at]
                .iter()
                .fold(0, |number, byte| number << 8 | usize::from(*byte)),
        )
    }

    fn skip(&mut self, length: usize) -> Option<()> {
        self.at = self.at.checked_add(length).filter(|end| *end <= self.bytes.len())?;
        Some(())
    }
}

/// Replaces each byte that is not UTF-8; true if there was one.
fn make_text(bytes: &mut [u8], mark: u8) -> bool {
    let (mut at, mut changed) = (0, false);
    while let Err(error) = std::str::from_utf8(&bytes[at..]) {
        let start = at + error.valid_up_to();
        at = error.error_len().map_or(bytes.len(), |length| start + length);
        bytes[start..at].fill(mark);
        changed = true;
    }
    changed
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
