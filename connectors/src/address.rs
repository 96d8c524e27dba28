//! Checks and texts for the settings that several connectors share: URL, login and client
//! certificate.

use std::path::Path;

use crate::ConnectorError;
use crate::secret::Urls;
use crate::settings::read_secret;

/// The address of the broker for people: the URLs without secrets.
pub(crate) fn place(kind: &str, url: Option<&Urls>, file: Option<&Path>) -> String {
    match (url, file) {
        (Some(urls), _) => urls.to_string(),
        (None, Some(file)) => format!("the URL in {}", file.display()),
        (None, None) => format!("{kind} without a URL"),
    }
}

/// The URLs, and the name of the setting that they come from.
pub(crate) async fn urls(
    url: Option<&Urls>,
    file: Option<&Path>,
) -> Result<(&'static str, Urls), ConnectorError> {
    Ok(match (url, file) {
        (Some(urls), _) => ("url", urls.clone()),
        (None, Some(file)) => ("url_file", Urls::new(read_secret("url_file", file).await?)),
        (None, None) => ("url", Urls::default()),
    })
}

/// Adds the problems of `user`, `password` and `password_file`.
pub(crate) fn login_problems(
    user: bool,
    password: bool,
    password_file: bool,
    problems: &mut Vec<String>,
) {
    if password && password_file {
        problems.push("`password` and `password_file` are both set: keep one".to_owned());
    }
    match (user, password || password_file) {
        (true, false) => {
            problems.push("`user` is set without `password` or `password_file`".to_owned())
        }
        (false, true) => problems.push("a password is set without `user`".to_owned()),
        _ => {}
    }
}

/// Adds the problems of `tls_cert_file` and `tls_key_file`.
pub(crate) fn certificate_problems(cert: bool, key: bool, problems: &mut Vec<String>) {
    match (cert, key) {
        (true, false) => problems.push("`tls_cert_file` is set without `tls_key_file`".to_owned()),
        (false, true) => problems.push("`tls_key_file` is set without `tls_cert_file`".to_owned()),
        _ => {}
    }
}
