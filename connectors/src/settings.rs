//! The files that settings name, and errors of settings.

use std::io;
use std::path::Path;
#[cfg(any(feature = "amqp", feature = "http", feature = "nats"))]
use std::path::PathBuf;

use crate::{ConnectorError, ErrorKind, FILE_HINT, secret_text, unreadable};

/// The secret that the read of its file gave. `setting`: what names the file, as errors show it. A
/// file that is empty or gone may be one that somebody writes at this moment: waiting helps. At the
/// start of Dwell such a file is a mistake in the settings (`file_problems`).
pub(crate) fn secret_of(
    setting: &str,
    file: &Path,
    read: io::Result<String>,
) -> Result<String, ConnectorError> {
    let wrong = |kind: ErrorKind, why: String| {
        ConnectorError::new(kind, format!("{setting}: {why}")).hint(FILE_HINT)
    };
    let text = read.map_err(|error| {
        let kind = if error.kind() == io::ErrorKind::NotFound {
            ErrorKind::Disconnected
        } else {
            ErrorKind::Config
        };
        wrong(kind, unreadable(file, &error)).because(error)
    })?;
    secret_text(file, &text).map_err(|why| wrong(ErrorKind::Disconnected, why))
}

/// The content of a secret's file that a setting names, trimmed.
pub(crate) async fn read_secret(setting: &str, file: &Path) -> Result<String, ConnectorError> {
    secret_of(&format!("`{setting}`"), file, tokio::fs::read_to_string(file).await)
}

/// Adds a problem for each of these files that cannot be read or is empty, with the name of its
/// setting.
#[cfg(any(feature = "amqp", feature = "http", feature = "nats"))]
pub(crate) fn file_problems(files: &[(&str, &Option<PathBuf>)], problems: &mut Vec<String>) {
    for (setting, file) in
        files.iter().filter_map(|(setting, file)| Some((setting, file.as_deref()?)))
    {
        match is_empty(file) {
            Err(error) => problems.push(format!("`{setting}`: {}", unreadable(file, &error))),
            Ok(true) => problems.push(format!("`{setting}`: {} is empty", file.display())),
            Ok(false) => {}
        }
    }
}

/// Whether a file holds nothing. A pipe or the like can be read once only: it is opened, not read.
#[cfg(any(feature = "amqp", feature = "http", feature = "nats"))]
fn is_empty(path: &Path) -> io::Result<bool> {
    let mut file = std::fs::File::open(path)?;
    let mut bytes = Vec::new();
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes.iter().all(u8::is_ascii_whitespace))
}

/// The error for a setting that can never work.
#[cfg(any(feature = "amqp", feature = "http", feature = "nats"))]
pub(crate) fn wrong(setting: &str, problem: &str) -> ConnectorError {
    ConnectorError::new(ErrorKind::Config, format!("`{setting}`: {problem}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_file_is_named_with_a_hint_and_the_cause() {
        let of = |read| secret_of("`password_file`", Path::new("/run/x"), read);
        let error = of(Err(io::ErrorKind::NotFound.into())).unwrap_err();
        assert_eq!(
            (error.message.as_str(), error.hint.as_str()),
            ("`password_file`: cannot read /run/x: no such file", FILE_HINT)
        );
        let cause = error.source.and_then(|source| source.downcast::<io::Error>().ok());
        assert_eq!(cause.map(|cause| cause.kind()), Some(io::ErrorKind::NotFound));
        let error = of(Ok("\n".to_owned())).unwrap_err();
        assert!(
            error.message == "`password_file`: /run/x is empty" && error.source.is_none(),
            "{error}"
        );
    }
    #[cfg(any(feature = "amqp", feature = "http", feature = "nats"))]
    #[test]
    fn a_file_of_white_space_is_empty_and_what_is_no_file_is_not_read() {
        let file = std::env::temp_dir().join(format!("dwell-empty-{}", std::process::id()));
        std::fs::write(&file, " \n").unwrap();
        let found = [&*file, Path::new("Cargo.toml"), Path::new("/dev/null")]
            .map(|path| is_empty(path).ok());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(found, [Some(true), Some(false), Some(false)]);
    }
}
