//! The close of a group member that has no partition.
//!
//! - Behaviour: such a member of a cooperative group closes without leaving the group
//!   ("consumer is terminating, skipping rejoin" in `rdkafka_cgrp.c` of 2.12). The group keeps the
//!   member until its session times out. If the answer to a heartbeat then says that the group
//!   rebalances, librdkafka leaves after all, with a coordinator that is already freed: the process
//!   ends with SIGSEGV in `rd_kafka_cgrp_handle_LeaveGroup`. Instances that stop at the same time
//!   do both.
//! - Workaround: every reader unsubscribes first, which leaves the group, and closes then.
//! - May go with a librdkafka in which such a member leaves. 2.14.2 does not end the process
//!   (confluentinc/librdkafka#5327).

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use tokio::time::Instant;
use tracing::debug;

/// The longest time of polling for the end of the assignment. The callback of the rebalance may
/// take longer: it commits.
const ASSIGNMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait of one poll.
const POLL_TIMEOUT: Duration = Duration::from_millis(20);

/// Leaves the group. Messages that come meanwhile are not handed out, and come again.
pub(in crate::kafka) fn leave<C: ConsumerContext>(consumer: &BaseConsumer<C>) {
    consumer.unsubscribe();
    let begun = Instant::now();
    // The callback of the rebalance commits, and gives the partitions back.
    while consumer.assignment().is_ok_and(|ours| ours.count() > 0) {
        if begun.elapsed() >= ASSIGNMENT_TIMEOUT {
            debug!("the partitions are not given back yet, closing");
            return;
        }
        drop(consumer.poll(POLL_TIMEOUT));
    }
}
