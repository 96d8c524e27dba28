//! Binds an address. The unspecified address of IPv6, `[::]`, takes IPv4 too, whatever the host's
//! default is; on a host without IPv6 it is that of IPv4.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV6};

use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_v6only;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

pub(super) async fn bind(listen: &str) -> io::Result<TcpListener> {
    match listen.parse() {
        Ok(SocketAddr::V6(address)) if address.ip().is_unspecified() => match bind_both(address) {
            Err(error) if has_no_ipv6(&error) => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
            }
            bound => bound,
        },
        _ => TcpListener::bind(listen).await,
    }
}

fn bind_both(address: SocketAddrV6) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    set_ipv6_v6only(&socket, false)?;
    socket.set_reuseaddr(true)?;
    socket.bind(address.into())?;
    socket.listen(BACKLOG)
}

fn has_no_ipv6(error: &io::Error) -> bool {
    let codes = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn the_unspecified_address_of_ipv6_takes_ipv4_too() {
        let listener = bind("[::]:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let by_ipv4 = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (_, peer) = listener.accept().await.unwrap();
        assert_eq!(
            (peer.ip().to_canonical(), peer.port()),
            (Ipv4Addr::LOCALHOST.into(), by_ipv4.local_addr().unwrap().port())
        );
        if listener.local_addr().unwrap().is_ipv6() {
            TcpStream::connect(("::1", port)).await.unwrap();
            listener.accept().await.unwrap();
        }
    }
}
