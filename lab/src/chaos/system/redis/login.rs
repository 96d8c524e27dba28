//! The user of the instances at Redis, whose password a fault changes. All other clients use the
//! default user.

use std::io;
use std::path::PathBuf;

use parking_lot::Mutex;

use crate::chaos::system::USER;

/// The password outside of faults.
pub(crate) const PASSWORD: &str = "first";

/// The files with the URLs of the instances.
#[derive(Default)]
pub(crate) struct Logins(Mutex<Vec<(PathBuf, Vec<String>)>>);

impl Logins {
    /// The user as in the configuration file of Redis.
    pub(super) fn user() -> Vec<String> {
        [USER, "on", &format!(">{PASSWORD}"), "~*", "&*", "+@all"].map(str::to_owned).into()
    }

    /// Writes a file with these URLs and the user's name and password.
    pub(super) fn add(&self, file: PathBuf, urls: Vec<String>) -> io::Result<()> {
        let mut files = self.0.lock();
        files.push((file, urls));
        files.last().map_or(Ok(()), |(file, urls)| write(file, urls, PASSWORD))
    }

    /// Writes this password into every file.
    pub(crate) fn change(&self, password: &str) -> io::Result<()> {
        self.0.lock().iter().try_for_each(|(file, urls)| write(file, urls, password))
    }
}

fn write(file: &PathBuf, urls: &[String], password: &str) -> io::Result<()> {
    let lines = urls
        .iter()
        .map(|url| url.replacen("redis://", &format!("redis://{USER}:{password}@"), 1) + "\n");
    // An instance that reads the file meanwhile gets the old one or the new one.
    let new = file.with_extension("new");
    std::fs::write(&new, lines.collect::<String>())?;
    std::fs::rename(&new, file)
}
