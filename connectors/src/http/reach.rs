//! Whether the hosts of `allow` can be reached: for `dwell check`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use ::url::Url;
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use super::config::Config;
use super::connection::Connect;
use super::url;
use crate::error::innermost;
use crate::{ConnectorError, ErrorKind};

/// The number of hosts that are asked at a time.
const CONCURRENT_HOSTS: usize = 64;
/// The longest time for all hosts together. A host that hangs takes three quarters of `timeout`,
/// and of this time at most.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Looks the hosts of the patterns up and connects to each once, with TLS where the URL says so.
/// Sends no request.
pub(super) async fn reach(
    config: &Config,
    patterns: &[&str],
) -> Vec<Result<String, ConnectorError>> {
    // One for all: it loads the system's certificates.
    let connect = match Connect::new(config, config.timeout().min(MAX_TIME)).await {
        Ok(connect) => connect,
        Err(error) => {
            return patterns
                .iter()
                .map(|_| Err(ConnectorError::new(error.kind, &error.message).hint(&error.hint)))
                .collect();
        }
    };
    let urls: Vec<Result<Url, String>> =
        patterns.iter().map(|pattern| url::parse(&pattern.replace('*', ""))).collect();
    let origins: BTreeMap<String, &Url> =
        urls.iter().flatten().map(|url| (url::origin(url), url)).collect();
    // Many hosts may be away, and each takes its time to show that.
    let asked: Vec<_> =
        origins.into_iter().map(|(origin, url)| ask(config, &connect, origin, url)).collect();
    let until = Instant::now() + MAX_TIME;
    let mut told: BTreeMap<String, Result<String, String>> = BTreeMap::new();
    {
        // Hosts that are still asked are given up with the block.
        let mut asking = pin!(stream::iter(asked).buffer_unordered(CONCURRENT_HOSTS));
        while let Ok(Some((origin, result))) = timeout_at(until, asking.next()).await {
            told.insert(origin, result);
        }
    }
    urls.into_iter().map(|url| of_url(url, &told)).collect()
}

/// The result for the host of this URL; `told`: of those that were asked in time.
fn of_url(
    url: Result<Url, String>,
    told: &BTreeMap<String, Result<String, String>>,
) -> Result<String, ConnectorError> {
    let origin = url::origin(&url.map_err(|why| ConnectorError::new(ErrorKind::Config, why))?);
    match told.get(&origin) {
        None => Err(ConnectorError::new(
            ErrorKind::Disconnected,
            format!("`{origin}` was not asked in time: {MAX_TIME:?} are for all hosts together"),
        )
        .hint("start the hosts that hang, and check again")),
        Some(Ok(addresses)) => Ok(format!("`{origin}` takes connections (it is {addresses})")),
        Some(Err(why)) => Err(ConnectorError::new(ErrorKind::Disconnected, format!("`{origin}` cannot be reached: {why}"))
            .hint("jobs for this host would be retried, and die: start the server, correct the host, or permit its network in `subnets`")),
    }
}

/// The origin of this URL, with the addresses of its host, or why it cannot be reached.
async fn ask(
    config: &Config,
    connect: &Connect,
    origin: String,
    url: &Url,
) -> (String, Result<String, String>) {
    let told = addresses(config, connect, &origin, url).await;
    (origin, told)
}

async fn addresses(
    config: &Config,
    connect: &Connect,
    origin: &str,
    url: &Url,
) -> Result<String, String> {
    if let Some(address) = url::literal(url) {
        config.subnets.permit(address)?;
    }
    let uri = origin.parse().map_err(|_| "this is no URL".to_owned())?;
    connect.connect(uri).await.map_err(|error| innermost(error.as_ref()))?;
    let (host, port) =
        (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
    let found = tokio::net::lookup_host((host.trim_matches(['[', ']']), port))
        .await
        .map_err(|error| error.to_string())?;
    let addresses: Vec<String> =
        found.map(|address: SocketAddr| address.ip().to_string()).collect();
    Ok(addresses.join(", "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_hosts_together_have_one_time() {
        // Each takes a connection, and says nothing of TLS.
        let hosts: Vec<_> =
            (0..CONCURRENT_HOSTS + 6).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let patterns: Vec<String> =
            hosts.iter().map(|host| format!("https://{}/*", host.local_addr().unwrap())).collect();
        let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
        let config: Config = serde_json::from_value(
            serde_json::json!({"subnets": ["127.0.0.0/8"], "timeout": "1h"}),
        )
        .unwrap();
        let begun = Instant::now();
        let reached = reach(&config, &patterns).await;
        let took = begun.elapsed();
        assert!(took >= MAX_TIME && took < MAX_TIME + Duration::from_secs(1), "{took:?}");
        let why: Vec<String> =
            reached.into_iter().map(|reached| reached.unwrap_err().message).collect();
        let count = |word: &str| why.iter().filter(|why| why.contains(word)).count();
        assert_eq!(
            (count("no connection within 45s"), count("was not asked in time")),
            (CONCURRENT_HOSTS, 6),
            "{why:?}"
        );
    }
}
