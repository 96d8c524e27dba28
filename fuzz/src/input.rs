//! An input read as a sequence of fields, so that a small change of its bytes is a small change of
//! what it means.

use bytes::Bytes;
use dwell_connectors::Value;

/// The deepest value that is made.
const DEPTH: usize = 6;

/// The rest of an input. Past its end, everything is zero and empty.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn number(&mut self) -> i64 {
        let mut bytes = [0; 8];
        bytes.fill_with(|| self.byte());
        i64::from_le_bytes(bytes)
    }

    /// Its length in a byte before it.
    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    /// At most 255 bytes: names in AMQP's tables have no more.
    pub(crate) fn text(&mut self) -> String {
        let mut text = String::from_utf8_lossy(self.bytes()).into_owned();
        text.truncate(text.floor_char_boundary(255));
        text
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// A value of any type.
    pub(crate) fn value(&mut self) -> Value {
        self.value_within(DEPTH)
    }

    fn value_within(&mut self, depth: usize) -> Value {
        match self.byte() {
            // Mostly text: it is what headers are.
            kind if kind < 200 => Value::Text(self.text()),
            200 => Value::Null,
            201 => Value::Bool(self.byte() & 1 == 1),
            202 => Value::I8(i8::from_le_bytes([self.byte()])),
            203 => Value::I64(self.number()),
            204 => Value::U32(u32::from(self.byte())),
            205 => Value::F64(f64::from_bits(self.number().cast_unsigned())),
            206 => Value::Decimal(self.byte(), 7),
            207 => Value::Timestamp(self.number().cast_unsigned()),
            kind if kind < 230 => Value::Bytes(Bytes::copy_from_slice(self.bytes())),
            _ if depth == 0 => Value::Null,
            kind if kind < 245 => {
                let count = self.byte() % 4;
                Value::List((0..count).map(|_| self.value_within(depth - 1)).collect())
            }
            _ => {
                let count = self.byte() % 4;
                Value::Table(
                    (0..count).map(|_| (self.text(), self.value_within(depth - 1))).collect(),
                )
            }
        }
    }
}
