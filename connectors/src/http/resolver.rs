//! The look-up of a host: only addresses that may be connected to come back. The client connects to
//! these and looks nothing up again, so a name that changes meanwhile gains nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use super::addresses::Subnets;

/// Looks hosts up with the system's resolver, and passes on the addresses that are permitted.
#[derive(Debug, Clone)]
pub(super) struct Resolver {
    pub(super) subnets: Subnets,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let subnets = self.subnets.clone();
        Box::pin(async move {
            // The client puts the port of the URL in.
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(permitted(name.as_str(), &found, &subnets)?.into_iter())
        })
    }
}

/// The addresses that may be connected to; an error where none may.
fn permitted(host: &str, found: &[SocketAddr], subnets: &Subnets) -> io::Result<Vec<SocketAddr>> {
    let permitted: Vec<SocketAddr> = found.iter().copied().filter(|address| subnets.permit(address.ip()).is_ok()).collect();
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
    use super::*;

    #[test]
    fn only_permitted_addresses_are_passed_on() {
        let at = |text: &str| SocketAddr::new(text.parse().unwrap(), 0);
        let none = Subnets::default();
        let mixed = [at("127.0.0.1"), at("8.8.8.8"), at("::ffff:169.254.169.254"), at("2606:4700::1111")];
        assert_eq!(permitted("a", &mixed, &none).unwrap(), [mixed[1], mixed[3]]);
        let error = permitted("rebind.example", &[at("169.254.169.254")], &none).unwrap_err();
        assert!(error.to_string().contains("`rebind.example` resolves to 169.254.169.254: "), "{error}");
        assert_eq!(permitted("a", &[], &none).unwrap_err().to_string(), "`a` has no address");
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_refused_unless_a_subnet_has_its_address() {
        let name = || "localhost".parse::<Name>().unwrap();
        let error = Resolver { subnets: Subnets::default() }.call(name()).await.unwrap_err();
        assert!(error.to_string().contains("loopback"), "{error}");
        let subnets: Subnets = serde_json::from_value(serde_json::json!(["127.0.0.0/8", "::1"])).unwrap();
        assert!(Resolver { subnets }.call(name()).await.unwrap().count() > 0);
    }
}
