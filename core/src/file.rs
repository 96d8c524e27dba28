//! What the read of a file that a setting names gave: the text, or in words why there is none. Pure.

use std::io;
use std::path::Path;

/// The text of a secret's file, trimmed; or why there is none.
pub fn secret_text(path: &Path, read: io::Result<String>) -> Result<String, String> {
    let text = read.map_err(|error| unreadable(path, &error))?;
    let text = text.trim();
    if text.is_empty() { Err(format!("{} is empty", path.display())) } else { Ok(text.to_owned()) }
}

/// That this file cannot be read, and why.
#[must_use]
pub fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {}", path.display(), io_reason(error))
}

/// The reason of an I/O error, in words.
#[must_use]
pub fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::InvalidData => "the file is not UTF-8 text".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_trimmed_and_not_empty() {
        let of = |read| secret_text(Path::new("/run/x"), read);
        assert_eq!(of(Ok(" hush\n".to_owned())), Ok("hush".to_owned()));
        assert_eq!(of(Ok(" \n".to_owned())), Err("/run/x is empty".to_owned()));
        assert_eq!(of(Err(io::ErrorKind::NotFound.into())), Err("cannot read /run/x: no such file".to_owned()));
    }
}
