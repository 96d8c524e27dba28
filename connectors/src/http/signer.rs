//! Signs requests with the secrets of a file, and follows changes of the file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::RwLock;

use super::signature::Secrets;
use crate::ConnectorError;
use crate::settings::read_secret;
use crate::settings::wrong;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The secrets of one broker; shared by its attempts.
#[derive(Debug)]
pub(super) struct Signer {
    file: PathBuf,
    secrets: RwLock<Secrets>,
}

impl Signer {
    /// Reads the file, and again whenever the file changes, as long as the signer lives.
    pub(super) async fn start(file: &Path) -> Result<Arc<Self>, ConnectorError> {
        let text = read_secret("secret_file", file).await?;
        let secrets = parsed(file, &text)?;
        let signer = Arc::new(Signer { file: file.to_owned(), secrets: RwLock::new(secrets) });
        tokio::spawn(follow(Arc::downgrade(&signer), text));
        Ok(signer)
    }

    /// The value of `webhook-signature`.
    pub(super) fn sign(&self, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        self.secrets.read().sign(id, timestamp_s, body)
    }
}

fn parsed(file: &Path, text: &str) -> Result<Secrets, ConnectorError> {
    Secrets::parse(text).map_err(|why| wrong("secret_file", &format!("{}: {why}", file.display())))
}

/// Takes over what the file holds. While it cannot be read, the former secrets stay.
async fn follow(signer: Weak<Signer>, mut seen: String) {
    let mut warned = false;
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(signer) = signer.upgrade() else { return };
        let read = read_secret("secret_file", &signer.file).await;
        match read.and_then(|text| if text == seen { Ok(None) } else { parsed(&signer.file, &text).map(|secrets| Some((text, secrets))) }) {
            Ok(None) => warned = false,
            Ok(Some((text, secrets))) => {
                *signer.secrets.write() = secrets;
                (seen, warned) = (text, false);
                tracing::info!(file = %signer.file.display(), "requests are signed with the new secrets");
            }
            Err(error) if !warned => {
                warned = true;
                tracing::warn!(%error, hint = error.hint, "the secrets cannot be read again: the former ones sign requests");
            }
            Err(_) => {}
        }
    }
}
