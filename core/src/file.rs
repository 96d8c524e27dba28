//! The content of a file that a setting names: the text, or the reason in words why there is none.
//! Pure.

use std::io;
use std::path::Path;

/// The hint for a file that cannot be read, or that holds nothing.
pub const FILE_HINT: &str = "check the file and its permissions";

/// The secret in this text of its file, trimmed; an error if the text is blank.
pub fn secret_text(path: &Path, text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() { Err(format!("{} is empty", path.display())) } else { Ok(text.to_owned()) }
}

/// The message that this file cannot be read, and why. A path that neither names a file nor looks
/// like a path may be the secret itself, and is not shown.
#[must_use]
pub fn unreadable(path: &Path, error: &io::Error) -> String {
    let is_there = matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidData | io::ErrorKind::IsADirectory
    );
    let is_path = ["/", ".", ".."].iter().any(|first| path.starts_with(first));
    if is_there || is_path {
        format!("cannot read {}: {}", path.display(), io_reason(error))
    } else {
        format!(
            "cannot read the file that stands here, which is shown if it begins with `/` or `./`: {}",
            io_reason(error)
        )
    }
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
        assert_eq!(
            unreadable(path, &io::ErrorKind::NotFound.into()),
            "cannot read /run/x: no such file"
        );
    }

    #[test]
    fn a_secret_where_its_file_belongs_is_not_shown() {
        for (written, error, is_shown) in [
            ("hunter2", io::ErrorKind::NotFound, false),
            ("hunter2.x", io::ErrorKind::NotFound, false),
            ("hun/ter2", io::ErrorKind::NotFound, false),
            ("hunter2", io::ErrorKind::InvalidFilename, false),
            ("hunter2", io::ErrorKind::PermissionDenied, true),
            ("./hunter2", io::ErrorKind::NotFound, true),
            ("../hunter2", io::ErrorKind::NotFound, true),
            ("/run/hunter2", io::ErrorKind::NotFound, true),
        ] {
            let told = unreadable(Path::new(written), &error.into());
            assert_eq!(told.contains(written), is_shown, "{written}: {told}");
        }
    }
}
