//! Reads the bytes of records and states.

use super::Unreadable;

/// The rest of a record or a state, read from its start.
pub(in crate::store) struct Reader<'a> {
    pub(in crate::store) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The next bytes; an error if fewer are left.
    pub(in crate::store) fn slice(&mut self, length: usize) -> Result<&'a [u8], Unreadable> {
        if self.rest.len() < length {
            return Err(Unreadable(format!(
                "cut off: {length} bytes expected, {} left",
                self.rest.len()
            )));
        }
        let (slice, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(slice)
    }

    /// The same for a fixed number of bytes.
    pub(in crate::store) fn take<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let slice = self.slice(N)?;
        Ok(std::array::from_fn(|i| slice[i]))
    }
}
