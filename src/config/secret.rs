//! Secrets: which settings hold one, hiding them in messages, reading them from files.

use std::path::Path;

use dwell_connectors::{known_scheme, parse_duration_ms, quote, redacted, secret_text, unreadable};
use dwell_schedule::Expression;

/// Texts of a user that may hold a secret, each with the part of it that is shown. Messages quote
/// what stands in a setting or an argument by mistake, and a URL with its password may stand in
/// any.
pub(crate) struct Mask(Vec<(String, String)>);

impl Mask {
    /// Returns the mask for the secrets in these arguments. The id of a job may look like a login,
    /// and is shown.
    pub(crate) fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Mask {
        Mask::over_all(texts.into_iter().map(value_of).filter(|text| may_hold_a_secret(text)))
    }

    /// Returns the mask for the secrets in these settings.
    pub(super) fn of_settings<'a>(texts: impl IntoIterator<Item = &'a str>) -> Mask {
        Mask::over_all(
            texts
                .into_iter()
                .map(value_of)
                .filter(|text| may_hold_a_secret(text) || may_be_a_login(text)),
        )
    }

    /// The same mask, which also hides all of these texts.
    pub(crate) fn and_all_of<'a>(mut self, texts: impl IntoIterator<Item = &'a str>) -> Mask {
        self.0.extend(
            texts
                .into_iter()
                .filter(|text| !text.is_empty())
                .map(|text| (text.to_owned(), "***".to_owned())),
        );
        self.0.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        self
    }

    fn over_all<'a>(texts: impl Iterator<Item = &'a str>) -> Mask {
        let mut all: Vec<(String, String)> = Vec::new();
        for text in texts {
            // A list may be quoted in parts, and any of them may be of a password.
            let whole = [text, text.trim()].into_iter().map(|whole| (whole, redacted(whole)));
            let parts = text.split(',').map(|part| (part.trim(), "***".to_owned()));
            for (part, shown) in whole.chain(parts).filter(|(part, _)| part.len() > 2) {
                all.push((quote(part).trim_matches('`').to_owned(), shown.clone()));
                all.push((part.escape_debug().to_string(), shown.clone()));
                all.push((part.to_owned(), shown));
            }
        }
        all.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        Mask(all)
    }

    /// The message without the secrets of these texts.
    pub(crate) fn over(&self, message: &str) -> String {
        self.0.iter().fold(message.to_owned(), |message, (text, shown)| {
            message.replace(text.as_str(), shown)
        })
    }
}

/// The value of `KEY=VALUE` and `--set=KEY=VALUE`; any other text as it is.
fn value_of(text: &str) -> &str {
    let is_key = |key: &str| {
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    match text.split_once('=') {
        Some((key, value)) if is_key(key) => value_of(value),
        _ => text,
    }
}

/// Whether a URL stands here that is not shown as it is. A pattern of URLs is.
fn may_hold_a_secret(text: &str) -> bool {
    // `@daily` and `0 0 ? * MON` look like a login and a URL. So does `@weekdays`, which is refused.
    let is_word = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || c == ' ');
    if Expression::parse(text).is_ok() || text.strip_prefix('@').is_some_and(is_word) {
        return false;
    }
    let pattern = text.replace('*', "x");
    let is_url = text.contains("://")
        || text.contains('?')
        || known_scheme(&text.replacen(':', "://", 1)).is_some();
    text.contains('@') || is_url && redacted(&pattern) != pattern
}

/// Whether this may be a user with a password, without a URL: `bob:hush`. A host with a port, a
/// time and a path are none, nor is what ends in a duration.
fn may_be_a_login(text: &str) -> bool {
    let Some((user, password)) = text.trim().split_once(':') else { return false };
    let is_name =
        !user.is_empty() && user.chars().all(|c| c.is_alphanumeric() || "._-".contains(c));
    let is_time = text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || "-:.+TZtz".contains(c));
    // That of a module, or of a URL.
    let is_path = password.starts_with(':') || password.starts_with("//");
    let is_duration =
        !password.bytes().all(|byte| byte.is_ascii_digit()) && parse_duration_ms(password).is_ok();
    is_name
        && !password.is_empty()
        && !is_time
        && !is_path
        && !is_duration
        && redacted(text) != text
}

/// Whether the value of a setting of this name is secret.
pub(super) fn is_secret(key: &str) -> bool {
    let named = ["url", "password", "token", "secret", "seed", "properties"]
        .iter()
        .any(|word| key.contains(word));
    // `tokens` is the table of `[http.tokens.NAME]`.
    named && key != "tokens" && !key.ends_with("_file")
}

/// The content of a secret's file, trimmed; or why the file cannot be read.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    secret_text(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_wrote_is_quoted_without_its_secrets() {
        for (written, message, shown) in [
            (
                "redis://me:hu sh@h",
                "\"redis://me:hu sh@h\" is not one of \"single\"",
                "\"redis://me:***@h\" is not one of \"single\"",
            ),
            (
                "redis://me:hu\"sh",
                "`redis://me:hu\"sh` is no duration",
                "`redis://***` is no duration",
            ),
            ("me:hush,Rest@h", "`me:hush` and `Rest@h` are none", "`***` and `***` are none"),
            (
                "redis://h?password=hush",
                "`redis://h?password=hush` is none",
                "`redis://h?***` is none",
            ),
            ("a=für://me:hush@h", "there is no für://me:hush@h", "there is no ***"),
            ("@weekdays", "`@weekdays` is no schedule", "`@weekdays` is no schedule"),
            (
                "https://*.internal/**",
                "`https://*.internal/**` is wrong",
                "`https://*.internal/**` is wrong",
            ),
            (
                "brokers.main.url=nats://h:1",
                "no answer from nats://h:1",
                "no answer from nats://h:1",
            ),
            (
                "--set=url=nats://me:hush@h",
                "no answer from nats://me:hush@h",
                "no answer from nats://me:***@h",
            ),
        ] {
            assert_eq!(Mask::of([written]).over(message), shown);
        }
        let long = format!("amqp://me:{}@h", "hush".repeat(40));
        assert_eq!(
            Mask::of([long.as_str()]).over(&format!("{} is none", quote(&long))),
            "`amqp://me:***@h` is none"
        );
    }
}
