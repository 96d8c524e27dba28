//! The limits of one host (its requests, its streams, the headers of its answers) and of all hosts
//! of a sink.

/// The most requests of one host at a time, and the most connections: on HTTP/1.1 each request
/// needs one of its own.
pub(super) const MAX_REQUESTS_PER_HOST: usize = 256;
/// The most requests of a host over HTTP/2, which has one connection: as many as servers commonly
/// take, and the least that RFC 9113 §6.5.2 recommends to them.
pub(super) const MAX_STREAMS_PER_HOST: usize = 100;
/// The most connections without a request that the hosts of one sink keep together. Each takes a
/// file descriptor, and hosts are many. The listeners leave 2048 descriptors to Redis, the brokers
/// and the targets.
pub(super) const MAX_IDLE_CONNECTIONS: usize = 512;
/// The most bytes of an answer's headers.
pub(super) const MAX_HEADERS_BYTES: usize = 64 << 10;
