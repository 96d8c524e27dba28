//! All ready futures of a `FuturesUnordered`.
//!
//! - Behaviour: `FuturesUnordered::poll_next` returns `Pending` although futures are ready, if two
//!   of the polled futures were woken during their poll (futures-util 0.3.34,
//!   `src/stream/futures_unordered/mod.rs`; intended, rust-lang/futures-rs#2551). lapin completes
//!   confirms on another thread, so that happens often. [`super::return_matcher`] needs every ready
//!   confirm before it judges.
//! - Workaround: [`ready`] polls again as long as the set wakes its own waker.
//! - May go when one poll is enough: then the test below fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt};

/// A waker that records that it was woken.
#[derive(Default)]
struct Again(AtomicBool);

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// The next ready output; `None` only if no future is ready.
pub(in crate::amqp) fn ready<F: Future>(set: &mut FuturesUnordered<F>) -> Option<F::Output> {
    let again = Arc::new(Again::default());
    let waker = Waker::from(Arc::clone(&again));
    loop {
        match set.poll_next_unpin(&mut Context::from_waker(&waker)) {
            Poll::Ready(next) => return next,
            Poll::Pending if again.0.swap(false, Ordering::AcqRel) => {}
            Poll::Pending => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{BoxFuture, FutureExt, poll_fn, ready as completed};

    use super::*;

    #[test]
    fn what_is_ready_is_found_behind_those_that_are_woken_while_they_are_looked_at() {
        let woken = || {
            let mut looks = 0;
            poll_fn(move |context| {
                looks += 1;
                if looks == 1 {
                    context.waker().wake_by_ref();
                }
                Poll::<u8>::Pending
            })
            .boxed()
        };
        let set = || -> FuturesUnordered<BoxFuture<'static, u8>> {
            [woken(), woken(), woken(), completed(7).boxed()].into_iter().collect()
        };
        assert_eq!(set().next().now_or_never(), None, "one poll is enough now: remove this file");
        let mut set = set();
        assert_eq!(ready(&mut set), Some(7));
        assert_eq!(ready(&mut set), None);
    }
}
