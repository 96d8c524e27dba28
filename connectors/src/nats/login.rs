//! The credentials of the client.

use std::path::Path;
use std::sync::Arc;

use async_nats::Auth;
use nkeys::KeyPair;

use super::config::Config;
use super::server::Server;
use crate::secret::Secret;
use crate::settings::read_secret;
use crate::{ConnectorError, ErrorKind};

/// Credentials from the settings and the files that they name.
#[derive(Clone)]
pub(super) enum Login {
    Nobody,
    User { user: String, password: Secret },
    Token(Secret),
    Key(Arc<KeyPair>),
    Creds { jwt: String, key: Arc<KeyPair> },
}

impl Login {
    pub(super) async fn read(config: &Config) -> Result<Self, ConnectorError> {
        if let Some(user) = &config.user {
            let password =
                secret("password_file", config.password.as_ref(), config.password_file.as_deref())
                    .await?
                    .unwrap_or_default();
            return Ok(Login::User { user: user.clone(), password });
        }
        if let Some(token) =
            secret("token_file", config.token.as_ref(), config.token_file.as_deref()).await?
        {
            return Ok(Login::Token(token));
        }
        if let Some(file) = &config.nkey_file {
            let seed = read_secret("nkey_file", file).await?;
            return Ok(Login::Key(key("nkey_file", file, &seed)?));
        }
        if let Some(file) = &config.creds_file {
            let text = read_secret("creds_file", file).await?;
            let (Some(jwt), Some(seed)) = (section(&text, "JWT"), section(&text, "SEED")) else {
                let message =
                    format!("`creds_file`: {} has no user JWT with a seed", file.display());
                return Err(ConnectorError::new(ErrorKind::Config, message)
                    .hint("write it with `nsc generate creds`"));
            };
            return Ok(Login::Creds { jwt: jwt.to_owned(), key: key("creds_file", file, seed)? });
        }
        Ok(Login::Nobody)
    }

    /// The credentials for this server: its URL may name a user or a token.
    pub(super) fn for_server(&self, server: &Server) -> Self {
        match (self, &server.user, &server.password) {
            (Login::Nobody, Some(user), Some(password)) => {
                Login::User { user: user.reveal().to_owned(), password: password.clone() }
            }
            (Login::Nobody, Some(token), None) => Login::Token(token.clone()),
            _ => self.clone(),
        }
    }

    /// The answer to the server's nonce.
    pub(super) fn answer(&self, nonce: &[u8]) -> Result<Auth, String> {
        let mut auth = Auth::new();
        match self {
            Login::Nobody => {}
            Login::User { user, password } => {
                auth.username = Some(user.clone());
                auth.password = Some(password.reveal().to_owned());
            }
            Login::Token(token) => auth.token = Some(token.reveal().to_owned()),
            Login::Key(key) => {
                auth.nkey = Some(key.public_key());
                auth.signature = Some(key.sign(nonce).map_err(|error| error.to_string())?);
            }
            Login::Creds { jwt, key } => {
                auth.jwt = Some(jwt.clone());
                auth.signature = Some(key.sign(nonce).map_err(|error| error.to_string())?);
            }
        }
        Ok(auth)
    }
}

async fn secret(
    setting: &str,
    inline: Option<&Secret>,
    file: Option<&Path>,
) -> Result<Option<Secret>, ConnectorError> {
    match (inline, file) {
        (Some(secret), _) => Ok(Some(secret.clone())),
        (None, Some(file)) => Ok(Some(Secret::new(read_secret(setting, file).await?))),
        (None, None) => Ok(None),
    }
}

fn key(setting: &str, file: &Path, seed: &str) -> Result<Arc<KeyPair>, ConnectorError> {
    KeyPair::from_seed(seed).map(Arc::new).map_err(|error| {
        let message = format!("`{setting}`: {} holds no nkey seed: {error}", file.display());
        ConnectorError::new(ErrorKind::Config, message)
            .hint("a seed is one line that begins with SU")
    })
}

/// The line after the `-----BEGIN …NAME…-----` of a creds file.
fn section<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.find(|line| line.starts_with("-----BEGIN") && line.contains(name))?;
    lines.next().filter(|line| !line.starts_with('-'))
}
