//! `dwell ready`: asks the probes of a running instance, as the health check of a container does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::common::Common;
use super::exit::{Exit, Stop};
use super::table::clean;
use crate::clock;

/// The time for an answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The most bytes of an answer.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// `dwell ready`
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Asks the instance that has the same settings.
///
/// # Errors
/// The instance does not answer. The settings are wrong: none runs with them.
pub(super) async fn run(common: &Common, _args: &Args) -> Result<Exit, Stop> {
    let settings = common.settings().map_err(|stop| {
        let text = stop.to_string();
        Stop::because(Exit::Failed, text.strip_prefix("error: ").unwrap_or(&text), "")
    })?;
    let listen = &settings.probes.listen;
    let away = |why: String| {
        Stop::because(
            Exit::Failed,
            format!("no instance answers at probes.listen = \"{listen}\": {why}"),
            "",
        )
    };
    let address: SocketAddr = listen.parse().map_err(|_| away("it is no address".to_owned()))?;
    let asked = clock::timeout(TIMEOUT, ask(address)).await;
    let (ready, body) = asked
        .unwrap_or_else(|| Err(std::io::ErrorKind::TimedOut.into()))
        .map_err(|error| away(error.to_string()))?;
    common.answer(&body, &text(ready, &body))?;
    Ok(if ready { Exit::Ok } else { Exit::Failed })
}

/// The answer of `/readyz`: whether the instance is ready, and what it says.
async fn ask(address: SocketAddr) -> std::io::Result<(bool, Value)> {
    let mut link = connect(address).await?;
    link.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    link.take(MAX_ANSWER_BYTES).read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    // Another program may have the port.
    let body = serde_json::from_str(body)
        .map_err(|_| std::io::Error::other("the answer is not that of /readyz"))?;
    Ok((head.starts_with("HTTP/1.1 200"), body))
}

/// Connects to an instance that listens here, from its own host.
async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let by_ipv4 = (Ipv4Addr::LOCALHOST, address.port());
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => TcpStream::connect(by_ipv4).await,
        // `[::]` takes IPv4 too, and a host may have one of the two alone.
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => match TcpStream::connect(by_ipv4).await {
            Ok(link) => Ok(link),
            Err(error) => {
                let by_ipv6 = (Ipv6Addr::LOCALHOST, address.port());
                TcpStream::connect(by_ipv6).await.map_err(|_| error)
            }
        },
        _ => TcpStream::connect(address).await,
    }
}

fn text(ready: bool, body: &Value) -> String {
    let detail = body["detail"].as_object().into_iter().flatten();
    let mut lines = vec![if ready { "ready".to_owned() } else { "not ready".to_owned() }];
    let waiting = body["waiting_for"].as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.extend(
        waiting.filter(|what| body["detail"][what].is_null()).map(|what| format!("  {what}")),
    );
    lines.extend(
        detail.map(|(what, why)| format!("  {what}: {}", clean(why.as_str().unwrap_or_default()))),
    );
    lines.join("\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_instance_that_has_ipv6_alone_is_reached() {
        // Where there is no IPv6, nothing listens so.
        let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await else { return };
        let address =
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, listener.local_addr().unwrap().port()));
        let link = connect(address).await.unwrap();
        assert_eq!(link.peer_addr().unwrap(), listener.local_addr().unwrap());
    }
}
