//! A free loopback port, reserved while its server is down.

use std::env;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use super::ServerError;

/// Below the range of outgoing connections on Linux (32768 and up), which could take the port of a
/// server that is down.
const RANGE: std::ops::Range<u16> = 15_000..32_000;

/// The most ports that a reservation tries.
const MAX_TRIES: u32 = 1000;

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
        for _ in 0..MAX_TRIES {
            let number = rand::random_range(RANGE);
            let lock = File::create(folder.join(number.to_string()))
                .map_err(ServerError::prepare(format!("a lock in {}", folder.display())))?;
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Port { number, _lock: lock });
            }
        }
        let taken = format!("tried {MAX_TRIES} of them on 127.0.0.1, all are taken");
        Err(ServerError::prepare("a free port")(io::Error::other(taken)))
    }

    /// The number of the port.
    pub fn number(&self) -> u16 {
        self.number
    }
}
