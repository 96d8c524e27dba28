//! The login to Redis: secrets from files, read anew for each connection.

use std::path::Path;

use dwell_core::{FILE_HINT, secret_text, unreadable};
use redis::IntoConnectionInfo;

use crate::config::{Redis, RedisMode, urls_in};
use crate::store::error::{Class, StoreError};

/// Whether a secret may be another one at the next connection.
pub(super) fn may_change(settings: &Redis) -> bool {
    settings.urls_file.is_some() || settings.sentinel_password_file.is_some()
}

/// The settings with the current contents of the files.
pub(super) async fn fresh(settings: &Redis) -> Result<Redis, StoreError> {
    let mut fresh = settings.clone();
    if let Some(file) = &settings.urls_file {
        fresh.urls = urls_in(&read("urls_file", file).await?);
        let wrong = |why: &str| {
            Err(not_there("urls_file", format!("{}: {why}", file.display()))
                .hint("write redis://USER:PASSWORD@HOST:6379, one URL a line; a comma in it is written %2C"))
        };
        if fresh.urls.iter().any(|url| url.as_str().into_connection_info().is_err()) {
            return wrong("a line is no URL of Redis");
        }
        if fresh.urls.len() > 1 && settings.mode == RedisMode::Single {
            return wrong("mode \"single\" takes one URL");
        }
    }
    if let Some(file) = &settings.sentinel_password_file {
        fresh.sentinel_password = Some(read("sentinel_password_file", file).await?);
    }
    Ok(fresh)
}

async fn read(setting: &str, file: &Path) -> Result<String, StoreError> {
    let text = tokio::fs::read_to_string(file).await.map_err(|error| unreadable(file, &error));
    text.and_then(|text| secret_text(file, &text))
        .map_err(|why| not_there(setting, why).hint(FILE_HINT))
}

/// A secret that cannot be read now: somebody may be writing its file. Redis got no call, so
/// nothing is refused, and waiting helps.
fn not_there(setting: &str, why: String) -> StoreError {
    StoreError::new(Class::Io, format!("redis.{setting}: {why}"))
}

/// The hint for a refused login with these settings.
pub(in crate::store) fn hint(settings: &Redis) -> String {
    let urls = if settings.urls_file.is_some() {
        "redis.urls_file, which is read again at each try"
    } else {
        "redis.urls"
    };
    let sentinels = match settings.mode {
        RedisMode::Sentinel if settings.sentinel_password_file.is_some() => {
            "; and those of the sentinels in redis.sentinel_user and redis.sentinel_password_file"
        }
        RedisMode::Sentinel => {
            "; and those of the sentinels in redis.sentinel_user and redis.sentinel_password"
        }
        RedisMode::Single | RedisMode::Cluster => "",
    };
    format!("check the user and the password in {urls}{sentinels}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_are_read_anew_and_what_they_lack_is_told_without_their_words() {
        let folder = tempfile::tempdir().unwrap();
        let (urls, sentinel) = (folder.path().join("urls"), folder.path().join("sentinel"));
        let settings = Redis {
            mode: RedisMode::Sentinel,
            urls_file: Some(urls.clone()),
            sentinel_password_file: Some(sentinel.clone()),
            ..Redis::new("redis://old")
        };
        assert!(
            fresh(&settings).await.unwrap_err().message.contains("redis.urls_file: cannot read")
        );
        for (text, password) in [("redis://:one@a\n", "x"), ("redis://:two@a,redis://:two@b", "y")]
        {
            std::fs::write(&urls, text).unwrap();
            std::fs::write(&sentinel, format!("{password}\n")).unwrap();
            let fresh = fresh(&settings).await.unwrap();
            assert_eq!(
                (fresh.urls.join(","), fresh.sentinel_password.as_deref()),
                (text.trim().to_owned(), Some(password))
            );
        }
        let single = Redis { mode: RedisMode::Single, ..settings.clone() };
        assert!(
            fresh(&single).await.unwrap_err().message.ends_with("mode \"single\" takes one URL")
        );
        for half in ["hush", "redis://user:hush", "redis://a/hush"] {
            std::fs::write(&urls, half).unwrap();
            let error = fresh(&settings).await.unwrap_err();
            assert_eq!(
                (error.class, error.message.contains("hush")),
                (Class::Io, false),
                "{error}"
            );
        }
        std::fs::write(&sentinel, "").unwrap();
        std::fs::write(&urls, "redis://a").unwrap();
        assert!(fresh(&settings).await.unwrap_err().message.ends_with("is empty"));
    }
}
