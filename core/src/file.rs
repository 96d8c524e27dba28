//! What the read of a file that a setting names gave: the text, or in words why there is none. Pure.

use std::io;
use std::path::Path;

/// The hint for a file that cannot be read, or that holds nothing.
pub const FILE_HINT: &str = "check the file and its permissions";

/// The secret in this text of its file: trimmed; or that there is none.
pub fn secret_text(path: &Path, text: &str) -> Result<String, String> {
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
    fn a_secret_is_trimmed_and_never_empty_and_its_file_is_named() {
        let path = Path::new("/run/x");
        assert_eq!(secret_text(path, " hush\n"), Ok("hush".to_owned()));
        assert_eq!(secret_text(path, " \n"), Err("/run/x is empty".to_owned()));
        assert_eq!(unreadable(path, &io::ErrorKind::NotFound.into()), "cannot read /run/x: no such file");
    }
}
