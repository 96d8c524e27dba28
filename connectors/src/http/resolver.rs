//! The look-up of a host: only addresses that may be connected to come back. The client connects to
//! these and looks nothing up again, so a name that changes meanwhile gains nothing.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use hyper_util::client::legacy::connect::dns::Name;
use parking_lot::Mutex;
use tokio::net::lookup_host;
use tower_service::Service;

use super::addresses::Subnets;

/// Looks hosts up with the system's resolver, and passes on the addresses that are permitted.
/// Clones share the look-ups.
#[derive(Clone)]
pub(super) struct Resolver {
    subnets: Subnets,
    /// One at a time for each name. A look-up has a thread for as long as the system's resolver
    /// takes, and a host makes up to 256 connections at once: without this, few names that hang
    /// would take all threads.
    running: Arc<Mutex<HashMap<String, Shared<BoxFuture<'static, Found>>>>>,
}

/// The result of a look-up.
type Found = Result<Arc<[SocketAddr]>, Arc<io::Error>>;

impl Resolver {
    pub(super) fn new(subnets: Subnets) -> Self {
        Resolver { subnets, running: Arc::default() }
    }

    /// The look-up of this name that runs, or a new one.
    fn look_up(&self, name: &str) -> Shared<BoxFuture<'static, Found>> {
        let mut running = self.running.lock();
        if let Some(found) = running.get(name) {
            return found.clone();
        }
        let (of, all) = (name.to_owned(), Arc::clone(&self.running));
        // A task of its own: the callers that wait for it may give up.
        let task = tokio::spawn(async move {
            // The client puts the port of the URL in.
            let found =
                lookup_host((of.as_str(), 0)).await.map(Iterator::collect).map_err(Arc::new);
            all.lock().remove(&of);
            found
        });
        let found = async move {
            task.await.unwrap_or_else(|error| Err(Arc::new(io::Error::other(error))))
        }
        .boxed()
        .shared();
        running.insert(name.to_owned(), found.clone());
        found
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (subnets, found) = (self.subnets.clone(), self.look_up(name.as_str()));
        Box::pin(async move {
            let found = found.await.map_err(|error| io::Error::new(error.kind(), error))?;
            Ok(permitted(name.as_str(), &found, &subnets)?.into_iter())
        })
    }
}

/// The addresses that may be connected to; an error where none may.
fn permitted(host: &str, found: &[SocketAddr], subnets: &Subnets) -> io::Result<Vec<SocketAddr>> {
    let permitted: Vec<SocketAddr> =
        found.iter().copied().filter(|address| subnets.permit(address.ip()).is_ok()).collect();
    if !permitted.is_empty() {
        return Ok(permitted);
    }
    let why = match found.first().map(|address| (address.ip(), subnets.permit(address.ip()))) {
        Some((address, Err(why))) => refused(host, address, &why),
        _ => format!("`{host}` has no address"),
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Why an address of this host is not connected to.
fn refused(host: &str, address: IpAddr, why: &str) -> String {
    format!("`{host}` resolves to {address}: {why}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use tokio::time::{Duration, Instant};

    use super::*;

    #[test]
    fn only_permitted_addresses_are_passed_on() {
        let at = |text: &str| SocketAddr::new(text.parse().unwrap(), 0);
        let none = Subnets::default();
        let mixed =
            [at("127.0.0.1"), at("8.8.8.8"), at("::ffff:169.254.169.254"), at("2606:4700::1111")];
        assert_eq!(permitted("a", &mixed, &none).unwrap(), [mixed[1], mixed[3]]);
        let error = permitted("rebind.example", &[at("169.254.169.254")], &none).unwrap_err();
        assert!(
            error.to_string().contains("`rebind.example` resolves to 169.254.169.254: "),
            "{error}"
        );
        assert_eq!(permitted("a", &[], &none).unwrap_err().to_string(), "`a` has no address");
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_refused_unless_a_subnet_has_its_address() {
        let name = || "localhost".parse::<Name>().unwrap();
        let error = Resolver::new(Subnets::default()).call(name()).await.unwrap_err();
        assert!(error.to_string().contains("loopback"), "{error}");
        let subnets: Subnets =
            serde_json::from_value(serde_json::json!(["127.0.0.0/8", "::1"])).unwrap();
        assert!(Resolver::new(subnets).call(name()).await.unwrap().count() > 0);
    }

    #[tokio::test]
    async fn a_name_has_one_look_up_at_a_time() {
        let resolver = Resolver::new(Subnets::default());
        let both = [resolver.look_up("localhost"), resolver.clone().look_up("localhost")];
        assert!(both[0].ptr_eq(&both[1]) && resolver.running.lock().len() == 1);
        // Waiting callers may give up.
        drop(both);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !resolver.running.lock().is_empty() {
            assert!(Instant::now() < deadline, "the look-up goes on");
            tokio::task::yield_now().await;
        }
        assert!(!resolver.look_up("localhost").await.unwrap().is_empty());
        assert!(resolver.running.lock().is_empty());
    }
}
