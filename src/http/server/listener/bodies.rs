//! The bodies of requests and answers, within the memory of their calls.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{Request, header};
use hyper::body::{Frame, Incoming, SizeHint};
use parking_lot::Mutex;

use super::slot::{BusyGuard, Slot};
use crate::budget::UsedUp;
use crate::clock;
use crate::http::server::account::Account;
use crate::http::server::transfers::{HangUp, Transfer};

/// The most bytes of a body that are read though its call did not.
const MAX_DRAIN_BYTES: u64 = 64 << 10;
/// The time that a client has to send these bytes.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The memory of one byte of a body: as it came, as a job, and on its way to Redis.
const MEMORY_PER_BODY_BYTE: usize = 3;
/// The memory that each part of a body takes besides its bytes.
const PART_OVERHEAD_BYTES: usize = 256;

/// The most memory of a body without room of its own whose end has not come. Those of all
/// connections that have buffers take half of the memory that is not for such room.
const UNRESERVED_BYTES: usize = 8 << 10;
/// The room where a client does not say how many bytes it sends. It doubles up to the step, and
/// then grows by the step.
const FIRST_ROOM_BYTES: usize = (64 << 10) * MEMORY_PER_BODY_BYTE;
const ROOM_STEP_BYTES: usize = (1 << 20) * MEMORY_PER_BODY_BYTE;

/// The body of a request. Its [`Rest`] has the bytes that the call does not read.
pub(super) struct AskedBody {
    body: Option<Incoming>,
    rest: Rest,
    account: Account,
    slot: Arc<Slot>,
    /// The bytes that came, and their memory.
    came: usize,
    held: usize,
    /// The room of its own that the body has.
    room: usize,
    /// Others need the room of the body.
    revoke: HangUp,
    revoked: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// A part that waits for room.
    waiting: Option<(Frame<Bytes>, WaitsForRoom)>,
}

type WaitsForRoom = Pin<Box<dyn Future<Output = Result<(), UsedUp>> + Send>>;

/// The part of a request's body that its call did not read. Clones share it.
#[derive(Clone)]
pub(super) struct Rest {
    left: Arc<Mutex<Left>>,
    slot: Arc<Slot>,
}

enum Left {
    Nothing,
    /// The call has the body.
    Held,
    /// The client waits for a word before it sends the body.
    Unsent,
    /// The memory has no room for the body.
    TooMuch,
    Body(Incoming),
}

impl AskedBody {
    /// Returns the same request, and the part of its body that its call will not have read.
    pub(super) fn of(
        request: Request<Incoming>,
        account: Account,
        slot: Arc<Slot>,
    ) -> (Request<AskedBody>, Rest) {
        let (is_empty, waits) =
            (request.body().is_end_stream(), request.headers().contains_key(header::EXPECT));
        let left = match (is_empty, waits) {
            (true, _) => Left::Nothing,
            (false, true) => Left::Unsent,
            (false, false) => Left::Held,
        };
        let rest = Rest { left: Arc::new(Mutex::new(left)), slot: slot.clone() };
        (
            request.map(|body| AskedBody {
                body: Some(body),
                rest: rest.clone(),
                account,
                slot,
                came: 0,
                held: 0,
                room: 0,
                revoke: HangUp::default(),
                revoked: None,
                waiting: None,
            }),
            rest,
        )
    }
}

impl Rest {
    /// Whether the call had no room for the body.
    pub(super) fn is_too_much(&self) -> bool {
        matches!(*self.left.lock(), Left::TooMuch)
    }

    /// Reads what is left, if that is little and comes soon. Whether nothing is left: then the next
    /// bytes of the connection are the next request.
    pub(super) async fn read(&self) -> bool {
        let left = std::mem::replace(&mut *self.left.lock(), Left::Held);
        let mut body = match left {
            Left::Nothing => return true,
            Left::Held | Left::Unsent | Left::TooMuch => return false,
            Left::Body(body) => body,
        };
        if body.size_hint().lower() > MAX_DRAIN_BYTES {
            return false;
        }
        let whole = async {
            let mut bytes = 0;
            loop {
                match std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
                {
                    None => return true,
                    Some(Err(_)) => return false,
                    Some(Ok(frame)) => {
                        bytes += frame.data_ref().map_or(0, |data| data.len() as u64)
                    }
                }
                if bytes > MAX_DRAIN_BYTES {
                    return false;
                }
            }
        };
        self.slot.set_starved(true);
        let is_whole = clock::timeout(DRAIN_TIMEOUT, whole).await.unwrap_or(false);
        self.slot.set_starved(false);
        is_whole
    }
}

impl hyper::body::Body for AskedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let AskedBody { body, rest, account, slot, came, held, room, revoke, revoked, waiting } =
            &mut *self;
        if waiting.is_none() {
            let Some(body) = body else { return Poll::Ready(None) };
            let whole = body.size_hint().exact().and_then(|left| usize::try_from(left).ok());
            let polled = Pin::new(&mut *body).poll_frame(context);
            slot.set_starved(polled.is_pending());
            if polled.is_pending()
                && revoked.as_mut().is_some_and(|revoked| revoked.as_mut().poll(context).is_ready())
            {
                *rest.left.lock() = Left::TooMuch;
                *revoked = None;
                return Poll::Ready(Some(Err(UsedUp.into())));
            }
            *rest.left.lock() =
                if matches!(polled, Poll::Ready(None)) { Left::Nothing } else { Left::Held };
            let frame = match ready!(polled) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other.map(|read| read.map_err(Into::into))),
            };
            let more = frame.data_ref().map_or(0, Bytes::len);
            let bytes = more * MEMORY_PER_BODY_BYTE + PART_OVERHEAD_BYTES;
            // All at once: bodies that each hold a part, and wait for the rest, would wait for each
            // other.
            let whole = whole.map_or(0, |left| came.saturating_add(left));
            let whole = whole.saturating_mul(MEMORY_PER_BODY_BYTE);
            *came += more;
            *held += bytes;
            let so_far = BodyProgress { held: *held, whole, is_over: body.is_end_stream() };
            let needed = room_for(so_far, *room, || account.has_ample_room());
            let more_room = needed.saturating_sub(*room);
            *room = needed.max(*room);
            account.body_goes_on();
            if more_room == 0 && account.grow(bytes).is_ok() {
                return Poll::Ready(Some(Ok(frame)));
            }
            let (account, revoke) = (account.clone(), revoke.clone());
            if more_room > 0 && revoked.is_none() {
                let revoke = revoke.clone();
                *revoked = Some(Box::pin(async move { revoke.notified().await }));
            }
            let waits = async move {
                if more_room > 0 {
                    account.take_body(more_room, &revoke).await?;
                }
                account.take(bytes).await
            };
            *waiting = Some((frame, Box::pin(waits)));
        }
        let has_room =
            waiting.as_mut().map_or(Poll::Ready(Ok(())), |(_, waits)| waits.as_mut().poll(context));
        let frame = match ready!(has_room) {
            Ok(()) => waiting.take().map(|(frame, _)| Ok(frame)),
            Err(used_up) => {
                *rest.left.lock() = Left::TooMuch;
                Some(Err(used_up.into()))
            }
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(|body| body.size_hint()).unwrap_or_default()
    }
}

/// The memory of a body so far, and of the whole body as far as its client says so.
struct BodyProgress {
    held: usize,
    whole: usize,
    is_over: bool,
}

/// The room that this body needs, of which it has `room`. A body that came at once needs none. The
/// overhead of ordinary parts is within an eighth of the room. Where the room of all bodies is not
/// ample, one that grows takes the whole step: many that each hold a part would wait for each
/// other.
fn room_for(
    BodyProgress { held, whole, is_over }: BodyProgress,
    room: usize,
    is_ample: impl FnOnce() -> bool,
) -> usize {
    let is_small = is_over || held.max(whole) <= UNRESERVED_BYTES;
    if room == 0 && is_small || room > 0 && whole <= room && held <= room + room / 8 {
        room
    } else if whole >= held {
        whole
    } else if held <= FIRST_ROOM_BYTES {
        FIRST_ROOM_BYTES
    } else if held <= ROOM_STEP_BYTES / 2 && is_ample() {
        FIRST_ROOM_BYTES * held.div_ceil(FIRST_ROOM_BYTES).next_power_of_two()
    } else {
        held.next_multiple_of(ROOM_STEP_BYTES)
    }
}

impl Drop for AskedBody {
    fn drop(&mut self) {
        self.slot.set_starved(false);
        let Some(body) = self.body.take() else { return };
        let mut left = self.rest.left.lock();
        if matches!(*left, Left::Held) {
            *left = if body.is_end_stream() { Left::Nothing } else { Left::Body(body) };
        }
    }
}

/// The body of an answer. The connection is busy until the body ends: an event stream, too.
pub(super) struct AnswerBody {
    body: Body,
    /// Of an answer that is large: it comes in one part.
    share: Option<Transfer>,
    _work: BusyGuard,
}

/// The bytes of an answer, and their share of the memory of all calls. The connection keeps both
/// until it has written them.
struct Held {
    bytes: Bytes,
    _share: Transfer,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AnswerBody {
    pub(super) fn new(body: Body, share: Option<Transfer>, work: BusyGuard) -> Self {
        AnswerBody { body, share, _work: work }
    }
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match (polled, self.share.take()) {
            (Poll::Ready(Some(Ok(frame))), Some(mut share)) => {
                share.goes_on();
                Poll::Ready(Some(Ok(
                    frame.map_data(|bytes| Bytes::from_owner(Held { bytes, _share: share }))
                )))
            }
            (polled, share) => {
                self.share = share;
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
