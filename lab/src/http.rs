//! HTTP targets measured: jobs that Dwell sends to URLs.
//!
//! - `receiver`: a server of targets; `receiving`: the same as a process of its own, which counts.
//! - [`drain`]: a backlog for one fast host, beside a bare client; [`hosts`]: many hosts, of which
//!   some hang.

pub mod drain;
pub mod hosts;
pub(crate) mod receiver;
pub mod receiving;

/// The settings of an instance whose only broker has these ports of this machine as its targets.
pub(crate) fn settings(ports: &[u16], timeout: &str) -> String {
    let allow: Vec<String> =
        ports.iter().map(|port| format!("\"http://127.0.0.1:{port}/*\"")).collect();
    format!(
        "[brokers.hook]\ntype = \"http\"\nallow = [{}]\nsubnets = [\"127.0.0.0/8\"]\ntimeout = \"{timeout}\"\n\n\
         [delivery]\ndead = \"\"\n",
        allow.join(", ")
    )
}
