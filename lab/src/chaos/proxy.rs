//! The proxy on each link: that of the connectors' tests.

pub use dwell_connectors::conformance::proxy::{Direction, Flow, Proxy, Stranded};
