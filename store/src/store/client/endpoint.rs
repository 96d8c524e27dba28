//! The addresses of the settings: the one server, the master that the sentinels name, or the first
//! nodes to ask in a cluster.

use std::time::Duration;

use rand::seq::SliceRandom;
use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsMode};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::{login, place};
use crate::clock;
use crate::config::{Redis, RedisMode};
use crate::store::error::{Class, StoreError};

/// Host and port.
pub(super) type Address = (String, u16);

fn tcp() -> TcpSettings {
    // The library leaves Nagle's delay on. The user timeout ends a half-open connection, which the
    // kernel would keep for minutes.
    TcpSettings::default().set_nodelay(true).set_user_timeout(Duration::from_secs(5))
}

/// The error of an unreachable server, with a hint. `place`: the server.
pub(super) fn refused(settings: &Redis, place: &str, error: &redis::RedisError) -> StoreError {
    let mut failure = StoreError::from_redis(&format!("connecting to {place}"), error);
    if failure.class == Class::Refused {
        return failure.hint(login::hint(settings));
    }
    if error.kind() == redis::ErrorKind::InvalidClientConfig {
        failure.class = Class::Settings;
    }
    let text = error.to_string().to_lowercase();
    // The client library puts it in its own words, by the version of the server.
    if text.contains("sentinel")
        && ["unknown command", "does not point to"].iter().any(|words| text.contains(words))
    {
        failure.class = Class::Settings;
        return failure
            .hint("set redis.mode = \"single\" or \"cluster\": this server is no sentinel");
    }
    if error.kind() == redis::ErrorKind::MasterNameNotFoundBySentinel {
        return failure.hint(
            "is redis.master one of the names that `SENTINEL MASTERS` lists, and is that master up?",
        );
    }
    failure.hint(if text.contains("certificate") {
        "make the authority that signed the server's certificate known to this system, or name a file of authorities in the variable \
         SSL_CERT_FILE; the name or address in redis.urls must be one that the certificate is for"
    } else {
        "is Redis running there, and is redis.urls right?"
    })
}

/// The longest wait for the reason why a server takes no connection.
const GREETING_TIMEOUT: Duration = Duration::from_secs(1);

/// The error with the server's reason for ending a connection. A server that takes no connection
/// writes the reason and closes at once; the client, which writes first, sees a broken pipe.
pub(super) async fn told(info: &ConnectionInfo, error: StoreError) -> StoreError {
    let ConnectionAddr::Tcp(host, port) = info.addr() else { return error };
    let greeting = async {
        let mut link = TcpStream::connect((host.as_str(), *port)).await.ok()?;
        let mut text = [0; 256];
        let length = link.read(&mut text).await.ok()?;
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        // The first sentence of the greeting.
        text.strip_prefix('-')?.split(['\r', '.']).next().map(str::to_owned)
    };
    let Some(reason) = clock::timeout(GREETING_TIMEOUT, greeting).await.flatten() else {
        return error;
    };
    let hint = if reason.starts_with("DENIED") {
        "the server takes connections only from its own host while it has no password: set requirepass (or a user's password) there, \
         and write it into redis.urls; or set protected-mode no in a network that nobody else reaches"
    } else if reason.contains("max number of clients") {
        "raise maxclients of the server, or close connections of others"
    } else {
        &error.hint
    };
    StoreError::new(error.class, format!("redis: {host}:{port} takes no connection: {reason}"))
        .hint(hint)
}

/// The addresses of the settings in the library's form.
pub(super) fn infos(settings: &Redis) -> Result<Vec<ConnectionInfo>, StoreError> {
    let info =
        |url: &String| url.as_str().into_connection_info().map(|info| info.set_tcp_settings(tcp()));
    let infos: Vec<ConnectionInfo> = settings
        .urls
        .iter()
        .map(info)
        .collect::<Result<_, _>>()
        .map_err(|error| refused(settings, &place(settings), &error))?;
    if infos.is_empty() {
        return Err(StoreError::new(Class::Settings, "redis.urls is empty"));
    }
    Ok(infos)
}

/// A client of one server: the configured one, the master that the sentinels name now, or a random
/// node of a cluster. Logs in with the secrets that the files hold now.
pub(in crate::store) async fn client(settings: &Redis) -> Result<Client, StoreError> {
    let settings = &login::fresh(settings).await?;
    let failed = |error: redis::RedisError| refused(settings, &place(settings), &error);
    let mut infos = infos(settings)?;
    match settings.mode {
        RedisMode::Single | RedisMode::Cluster => {
            infos.shuffle(&mut rand::rng());
            Client::open(infos.swap_remove(0)).map_err(failed)
        }
        RedisMode::Sentinel => master(settings, infos).await.map_err(failed),
    }
}

/// A client of a node of the cluster.
pub(super) async fn node(settings: &Redis, place: &Address) -> Result<Client, StoreError> {
    let settings = login::fresh(settings).await?;
    let info = of_node(&infos(&settings)?, place);
    Client::open(info).map_err(|error| refused(&settings, &place.0, &error))
}

/// A node that the settings name has the login of its own URL, any other node that of the first.
fn of_node(infos: &[ConnectionInfo], place: &Address) -> ConnectionInfo {
    let own = infos.iter().find(|info| address(info) == *place);
    own.cloned().unwrap_or_else(|| elsewhere(&infos[0], &place.0, place.1))
}

/// Finds the master through the sentinels. User, password and database in their URLs belong to
/// Redis; TLS applies to both. The sentinels have a login of their own.
async fn master(settings: &Redis, infos: Vec<ConnectionInfo>) -> Result<Client, redis::RedisError> {
    let redis = infos[0].redis_settings().clone();
    let mut sentinels: Vec<ConnectionAddr> =
        infos.into_iter().map(|info| info.addr().clone()).collect();
    let is_tls = matches!(sentinels[0], ConnectionAddr::TcpTls { .. });
    // Sentinels are asked in this order; a fixed first one whose host drops packets would use up
    // every try.
    sentinels.shuffle(&mut rand::rng());
    let mut builder = redis::sentinel::SentinelClientBuilder::new(
        sentinels,
        settings.master.clone(),
        redis::sentinel::SentinelServerType::Master,
    )?
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
    if let Some(user) = &settings.sentinel_user {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = &settings.sentinel_password {
        builder = builder.set_client_to_sentinel_password(password);
    }
    builder.build()?.async_get_client().await
}

/// Host and port of an address.
pub(super) fn address(info: &ConnectionInfo) -> Address {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            (host.clone(), *port)
        }
        other => (other.to_string(), 0),
    }
}

/// The same address with another host and port; user, password and TLS stay.
fn elsewhere(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let address = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host: host.to_owned(),
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    info.clone().set_addr(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_that_the_sentinels_do_not_know_names_the_setting() {
        let kind = redis::ErrorKind::MasterNameNotFoundBySentinel;
        let error = redis::RedisError::from((kind, "Master with given name not found"));
        let error = refused(&Redis::new("redis://a"), "redis://a", &error);
        assert!(error.class == Class::Other && error.hint.contains("redis.master"), "{error:?}");
    }

    #[test]
    fn a_node_of_a_cluster_logs_in_with_its_own_url_or_else_the_first() {
        let urls = ["rediss://one:a@first:1/0", "redis://two:b@second:2"].map(str::to_owned);
        let infos = infos(&Redis { urls: urls.to_vec(), ..Redis::new("") }).unwrap();
        for (host, port, user) in
            [("first", 1, "one"), ("second", 2, "two"), ("second", 3, "one"), ("third", 2, "one")]
        {
            let info = of_node(&infos, &(host.to_owned(), port));
            assert_eq!(
                (address(&info), info.redis_settings().username()),
                ((host.to_owned(), port), Some(user)),
                "{host}:{port}"
            );
        }
    }
}
