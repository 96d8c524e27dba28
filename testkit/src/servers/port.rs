//! A free loopback port, reserved while its server is down.

use std::collections::HashSet;
use std::env;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use super::ServerError;

/// Below the range of outgoing connections on Linux (32768 and up), which could take the port of a
/// server that is down.
const RANGE: std::ops::Range<u16> = 15_000..32_000;

/// A port, reserved by a lock on a file of that number while the value lives.
#[derive(Debug)]
pub struct Port {
    pub(super) number: u16,
    _lock: File,
}

impl Port {
    /// Finds a port without a listener that no other run has reserved.
    pub fn reserve() -> Result<Port, ServerError> {
        let folder =
            env::temp_dir().join(format!("dwell-ports-{}", rustix::process::getuid().as_raw()));
        fs::create_dir_all(&folder)
            .map_err(ServerError::prepare(format!("the folder {}", folder.display())))?;
        let mut tried = HashSet::new();
        while tried.len() < 1000 {
            let number = rand::random_range(RANGE);
            if !tried.insert(number) {
                continue;
            }
            let lock = File::create(folder.join(number.to_string()))
                .map_err(ServerError::prepare(format!("a lock in {}", folder.display())))?;
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Port { number, _lock: lock });
            }
        }
        Err(ServerError::Prepare {
            what: "a free port".to_owned(),
            error: io::Error::other("tried 1000 of them on 127.0.0.1, all are taken"),
        })
    }

    /// The number of the port.
    pub fn number(&self) -> u16 {
        self.number
    }
}
