//! Follows the changes of a secret's file.

use std::path::PathBuf;
use std::sync::Weak;
use std::time::Duration;

use crate::ConnectorError;
use crate::settings::read_secret;

/// The interval between two looks at the file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Hands each new content of the file to `take`, as long as the owner lives. `seen` is the content
/// that the owner has. A content counts once two looks in a row have seen it: one look may fall
/// between two writes, and see the begin of a secret. While the file cannot be read, or is not
/// taken, the former secret stays; that is logged once.
pub async fn follow_secret<T>(
    setting: String,
    file: PathBuf,
    mut seen: String,
    owner: Weak<T>,
    take: impl Fn(&T, &str) -> Result<(), ConnectorError>,
) {
    let mut warned = false;
    let mut last_look = Some(seen.clone());
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Some(owner) = owner.upgrade() else { return };
        let read = read_secret(&setting, &file).await;
        let inspect = read.as_ref().ok().cloned();
        let stands_still = inspect == last_look;
        last_look = inspect;
        if !stands_still {
            continue;
        }
        match read.and_then(|text| {
            if text == seen { Ok(None) } else { take(&owner, &text).map(|()| Some(text)) }
        }) {
            Ok(None) => warned = false,
            Ok(Some(text)) => {
                (seen, warned) = (text, false);
                tracing::info!(setting, file = %file.display(), "the file has changed, the new secret counts");
            }
            Err(error) if !warned => {
                warned = true;
                tracing::warn!(%error, hint = error.hint, "the secret cannot be read again, the former one counts");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_secret_that_is_written_in_parts_counts_once_it_is_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "old").unwrap();
        let owner = Arc::new(Mutex::new(Vec::new()));
        let take = |owner: &Mutex<Vec<String>>, text: &str| {
            owner.lock().push(text.to_owned());
            Ok(())
        };
        let following = follow_secret(
            "token".to_owned(),
            file.path().to_owned(),
            "old".to_owned(),
            Arc::downgrade(&owner),
            take,
        );
        let writing = async {
            // Each part between two looks.
            tokio::time::sleep(CHECK_INTERVAL / 2).await;
            for part in ["", "n", "ne", "new"] {
                std::fs::write(&file, part).unwrap();
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
            tokio::time::sleep(CHECK_INTERVAL * 2).await;
        };
        tokio::select! {
            () = following => panic!("the owner lives"),
            () = writing => {}
        }
        assert_eq!(*owner.lock(), ["new"]);
    }
}
