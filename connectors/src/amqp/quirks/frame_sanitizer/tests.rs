//! Frames that arrive in pieces of any size come out as whole frames do.

use std::collections::VecDeque;
use std::task::Waker;

use proptest::prelude::*;

use super::*;
use crate::amqp::quirks::sanitize::INVALID_BYTE_MARK;

/// Returns one piece at a time, and `Pending` in between.
struct Pieces {
    pieces: VecDeque<Vec<u8>>,
    ready: bool,
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.ready = !self.ready;
        if !self.ready {
            return Poll::Pending;
        }
        let Some(mut piece) = self.pieces.pop_front() else { return Poll::Ready(Ok(0)) };
        let count = piece.len().min(into.len());
        into[..count].copy_from_slice(&piece[..count]);
        let rest = piece.split_off(count);
        if !rest.is_empty() {
            self.pieces.push_front(rest);
        }
        Poll::Ready(Ok(count))
    }
}

/// The output for these pieces, read with a buffer of this many bytes.
fn read(pieces: impl IntoIterator<Item = Vec<u8>>, at_a_time: usize) -> io::Result<Vec<u8>> {
    let pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
    let mut sanitizer =
        FrameSanitizer::new(Pieces { pieces, ready: false }, "test".to_owned(), None);
    let (mut all, mut into) = (Vec::new(), vec![0; at_a_time]);
    loop {
        match Pin::new(&mut sanitizer).poll_read(&mut Context::from_waker(Waker::noop()), &mut into)
        {
            Poll::Pending => {}
            Poll::Ready(Ok(0)) => return Ok(all),
            Poll::Ready(Ok(count)) => all.extend_from_slice(&into[..count]),
            Poll::Ready(Err(error)) => return Err(error),
        }
    }
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[kind, 0, 1], &size[..], payload, &[0xce]].concat()
}

/// Frames of each kind: a delivery with an invalid key, an invalid content type, a body and a
/// heartbeat. As received, and as expected.
fn delivery() -> (Vec<u8>, Vec<u8>) {
    let frames = |bad: u8| {
        let deliver = [&b"\0\x3c\0\x3c\x01c"[..], &[0xff; 9], b"\0\x02k", &[bad]].concat();
        let header = [&b"\0\x3c\0\0\0\0\0\0\0\0\0\x05\x80\0\x02t"[..], &[bad]].concat();
        // A body that looks like a header frame.
        let body = frame(2, b"\0\x3c\0\0\0\0\0\0\0\0\0\x05\x80\0\x01\xff");
        [frame(1, &deliver), frame(2, &header), frame(3, &body), frame(8, b""), frame(3, b"")]
            .concat()
            .repeat(2)
    };
    (frames(0xff), frames(INVALID_BYTE_MARK))
}

#[test]
fn cuts_at_every_byte_change_nothing() {
    let (bytes, right) = delivery();
    for at_a_time in [1, 2, 7, 8, 50, 1000] {
        assert_eq!(read(bytes.iter().map(|byte| vec![*byte]), at_a_time).unwrap(), right);
        for cut in 0..bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(
                read([head.to_vec(), tail.to_vec()], at_a_time).unwrap(),
                right,
                "{cut} {at_a_time}"
            );
        }
    }
}

#[test]
fn large_frames_are_kept_whole_and_senseless_ones_refused() {
    let header = |bad: u8| {
        let text = [
            &b"\0\x3c\0\0\0\0\0\0\0\0\0\x05\x20\0"[..],
            &100_007_u32.to_be_bytes(),
            b"\x01",
            &[bad],
            b"S\0\x01\x86\xa0",
        ]
        .concat();
        frame(2, &[&text[..], &[0xff; 100_000]].concat())
    };
    for chunk in [1000, 4096, 60_000] {
        let pieces = header(0xff);
        assert_eq!(
            read(pieces.chunks(chunk).map(<[u8]>::to_vec), 5000).unwrap(),
            header(INVALID_BYTE_MARK)
        );
    }
    let error = read([b"\x02\0\x01\xff\xff\xff\xff\0\0".to_vec()], 100).unwrap_err();
    assert!(
        error.kind() == io::ErrorKind::InvalidData && error.to_string().contains("4294967295"),
        "{error}"
    );
}

#[test]
fn what_is_no_frame_passes_to_the_parser() {
    for bytes in
        [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"AMQP\0\0\x09\x01", b"AMQP\x03\x01\0\0AMQP"]
    {
        assert_eq!(read(bytes.iter().map(|byte| vec![*byte]), 100).unwrap(), bytes);
        assert_eq!(read([bytes.to_vec()], 3).unwrap(), bytes);
    }
}

proptest! {
    #[test]
    fn whatever_comes_in_pieces_comes_out_as_it_would_whole(
        frames in proptest::collection::vec((proptest::sample::select(vec![1_u8, 2, 3, 8]), proptest::collection::vec(any::<u8>(), 0..60)), 0..8),
        cuts in proptest::collection::vec(1_usize..40, 1..20),
        at_a_time in 1_usize..100,
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(|(kind, payload)| frame(*kind, payload)).collect();
        let right: Vec<u8> = frames.into_iter().flat_map(|(kind, mut payload)| {
            sanitize(kind, &mut payload);
            frame(kind, &payload)
        }).collect();
        let (mut rest, mut cuts) = (&bytes[..], cuts.into_iter().cycle());
        let pieces = std::iter::from_fn(|| {
            let (piece, after) = rest.split_at(cuts.next()?.min(rest.len()));
            rest = after;
            (!piece.is_empty()).then(|| piece.to_vec())
        });
        prop_assert_eq!(read(pieces.collect::<Vec<_>>(), at_a_time).unwrap(), right);
    }

    /// Nothing is lost or added, unless the frame is refused.
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..200), at_a_time in 1_usize..50) {
        if let Ok(out) = read([bytes.clone()], at_a_time) {
            // An incomplete frame at the end of the connection is dropped.
            prop_assert!(out.len() <= bytes.len());
        }
    }
}
