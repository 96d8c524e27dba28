//! Workarounds for behaviour of librdkafka and of Kafka brokers. Each file says what the library or
//! the broker does and where, what Dwell does about it, and when the workaround may go.

pub(super) mod empty_assignment;
pub(super) mod header_names;
pub(super) mod refused_batch;
pub(super) mod stalled_partitions;
