//! A link to Redis past the store, for tests.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};

/// Connects to this server. The client's own patience, half a second, is too little on a busy machine.
///
/// # Panics
/// The server does not answer.
pub(crate) async fn raw_link(url: String) -> MultiplexedConnection {
    const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));
    let patient = AsyncConnectionConfig::new()
        .set_response_timeout(PATIENCE)
        .set_connection_timeout(PATIENCE);
    let client = Client::open(url).expect("a URL");
    client.get_multiplexed_async_connection_with_config(&patient).await.expect("a link")
}
