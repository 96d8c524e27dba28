//! Workarounds for behaviour of librdkafka and of brokers. Each file names the behaviour and when the file may go.

pub(super) mod refused_batch;
pub(super) mod stalled_partitions;
