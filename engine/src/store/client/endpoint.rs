//! The addresses of the settings: the one server, the master that the sentinels name, or the first
//! nodes to ask in a cluster.

use std::time::Duration;

use rand::seq::SliceRandom;
use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsMode};

use super::place;
use crate::config::{Redis, RedisMode};
use crate::store::error::{Class, StoreError};

fn tcp() -> TcpSettings {
    // The library leaves Nagle's delay on. The user timeout ends a half-open connection, which the
    // kernel would keep for minutes.
    TcpSettings::default().set_nodelay(true).set_user_timeout(Duration::from_secs(5))
}

/// Why a server is unreachable, with a hint.
pub(super) fn refused(place: &str, error: &redis::RedisError) -> StoreError {
    let mut failure = StoreError::from_redis(&format!("connecting to {place}"), error);
    if error.kind() == redis::ErrorKind::InvalidClientConfig {
        failure.class = Class::Settings;
    }
    let text = error.to_string().to_lowercase();
    failure.hint(if error.kind() == redis::ErrorKind::AuthenticationFailed {
        "check the user and the password in redis.urls"
    } else if text.contains("certificate") {
        "make the authority that signed the server's certificate known to this system, or name a file of authorities in the variable \
         SSL_CERT_FILE; the name or address in redis.urls must be one that the certificate is for"
    } else {
        "is Redis running there, and is redis.urls right?"
    })
}

/// The addresses of the settings in the library's form.
pub(super) fn infos(settings: &Redis) -> Result<Vec<ConnectionInfo>, StoreError> {
    let info = |url: &String| url.as_str().into_connection_info().map(|info| info.set_tcp_settings(tcp()));
    let infos: Vec<ConnectionInfo> =
        settings.urls.iter().map(info).collect::<Result<_, _>>().map_err(|error| refused(&place(settings), &error))?;
    if infos.is_empty() {
        return Err(StoreError::new(Class::Settings, "redis.urls is empty"));
    }
    Ok(infos)
}

/// A client of one server: the configured one, the master that the sentinels name now, or a random
/// node of a cluster.
pub(in crate::store) async fn client(settings: &Redis) -> Result<Client, StoreError> {
    let failed = |error: redis::RedisError| refused(&place(settings), &error);
    let mut infos = infos(settings)?;
    match settings.mode {
        RedisMode::Single | RedisMode::Cluster => {
            infos.shuffle(&mut rand::rng());
            Client::open(infos.swap_remove(0)).map_err(failed)
        }
        RedisMode::Sentinel => master(settings, infos).await.map_err(failed),
    }
}

/// Finds the master through the sentinels. User, password and database in their URLs are those of
/// Redis; TLS applies to both.
async fn master(settings: &Redis, infos: Vec<ConnectionInfo>) -> Result<Client, redis::RedisError> {
    let redis = infos[0].redis_settings().clone();
    let mut sentinels: Vec<ConnectionAddr> = infos.into_iter().map(|info| info.addr().clone()).collect();
    let is_tls = matches!(sentinels[0], ConnectionAddr::TcpTls { .. });
    // Sentinels are asked in this order; a fixed first one whose host drops packets would use up
    // every try.
    sentinels.shuffle(&mut rand::rng());
    let mut builder =
        redis::sentinel::SentinelClientBuilder::new(sentinels, settings.master.clone(), redis::sentinel::SentinelServerType::Master)?
            .set_client_to_redis_tcp_settings(tcp())
            .set_client_to_sentinel_tcp_settings(tcp())
            .set_client_to_redis_db(redis.db());
    if is_tls {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    if let Some(user) = redis.username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = redis.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    builder.build()?.async_get_client().await
}

/// Host and port of an address.
pub(super) fn address(info: &ConnectionInfo) -> (String, u16) {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => (host.clone(), *port),
        other => (other.to_string(), 0),
    }
}

/// The same address with another host and port; user, password and TLS stay.
pub(super) fn elsewhere(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let address = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    info.clone().set_addr(address)
}
