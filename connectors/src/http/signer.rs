//! Signs requests with the secrets of a file, and follows changes of the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

use super::signature::Secrets;
use crate::settings::{read_secret, wrong};
use crate::{ConnectorError, follow_secret};

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
        let take = |signer: &Signer, text: &str| {
            *signer.secrets.write() = parsed(&signer.file, text)?;
            Ok(())
        };
        tokio::spawn(follow_secret(
            "secret_file".to_owned(),
            file.to_owned(),
            text,
            Arc::downgrade(&signer),
            take,
        ));
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
