//! The parts that the tests and the laboratory of Dwell share. Not shipped.
//!
//! - [`jetstream`]: the API of JetStream over plain TCP.
//! - [`ledger`]: the requests that were sent, the messages that arrived, and the differences.
//! - [`servers`]: private Redis, NATS, RabbitMQ and Kafka servers, and `dwell run` itself, as child
//!   processes.
//! - [`environment`]: private servers with settings that lead to them, a producer and a consumer.
//! - [`usage`]: CPU time and memory of processes.

pub mod environment;
pub mod jetstream;
pub mod ledger;
pub mod servers;
pub mod usage;
