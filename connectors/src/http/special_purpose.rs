//! The addresses that are no host of the Internet, by IANA's registries.
//!
//! The rows are those of the IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890, RFC 8190)
//! as of 2025, with multicast and with what lies outside IPv6's global unicast.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// A kind of address, for people.
type Kind = &'static str;

const PRIVATE: Kind = "a private address";
const LOOPBACK: Kind = "a loopback address";
const LINK_LOCAL: Kind = "a link-local address, as of a cloud's metadata service";
const UNSPECIFIED: Kind = "an address of this host or network";
const DOCUMENTATION: Kind = "an address for documentation";
const BENCHMARKING: Kind = "an address for benchmarks";
const PROTOCOL: Kind = "an address of an IETF protocol";
const MULTICAST: Kind = "a multicast address";
const RESERVED: Kind = "a reserved address";

/// The first row that has the address decides. `None`: globally reachable.
const IPV4: &[(Ipv4Net, Option<Kind>)] = &[
    (v4([0, 0, 0, 0], 8), Some(UNSPECIFIED)), // RFC 791: this network
    (v4([10, 0, 0, 0], 8), Some(PRIVATE)),    // RFC 1918
    (v4([100, 64, 0, 0], 10), Some("a shared address (CGNAT)")), // RFC 6598
    (v4([127, 0, 0, 0], 8), Some(LOOPBACK)),  // RFC 1122
    (v4([169, 254, 0, 0], 16), Some(LINK_LOCAL)), // RFC 3927
    (v4([172, 16, 0, 0], 12), Some(PRIVATE)), // RFC 1918
    (v4([192, 0, 0, 9], 32), None),           // RFC 7723: Port Control Protocol anycast
    (v4([192, 0, 0, 10], 32), None),          // RFC 8155: TURN anycast
    // RFC 6890, with 192.0.0.0/29 (RFC 7335), 192.0.0.8 (RFC 7600), 192.0.0.170 and .171 (RFC
    // 8880).
    (v4([192, 0, 0, 0], 24), Some(PROTOCOL)),
    (v4([192, 0, 2, 0], 24), Some(DOCUMENTATION)), // RFC 5737
    // RFC 7526: 6to4 relay anycast, deprecated, with 192.88.99.2 (RFC 6751).
    (v4([192, 88, 99, 0], 24), Some("an address of a 6to4 relay")),
    (v4([192, 168, 0, 0], 16), Some(PRIVATE)), // RFC 1918
    (v4([198, 18, 0, 0], 15), Some(BENCHMARKING)), // RFC 2544
    (v4([198, 51, 100, 0], 24), Some(DOCUMENTATION)), // RFC 5737
    (v4([203, 0, 113, 0], 24), Some(DOCUMENTATION)), // RFC 5737
    (v4([224, 0, 0, 0], 4), Some(MULTICAST)),  // RFC 1112
    (v4([255, 255, 255, 255], 32), Some("the broadcast address")), // RFC 919
    (v4([240, 0, 0, 0], 4), Some(RESERVED)),   // RFC 1112
];

/// As [`IPV4`]. An address that [`inner`] knows is not looked for here.
const IPV6: &[(Ipv6Net, Option<Kind>)] = &[
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), Some(UNSPECIFIED)), // RFC 4291
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), Some(LOOPBACK)),    // RFC 4291
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), Some("an address of a local NAT64")), // RFC 8215
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), Some("a discard address")), // RFC 6666
    (v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64), Some("a dummy address")), // RFC 9780
    (v6([0x2001, 1, 0, 0, 0, 0, 0, 1], 128), None), // RFC 7723: Port Control Protocol anycast
    (v6([0x2001, 1, 0, 0, 0, 0, 0, 2], 128), None), // RFC 8155: TURN anycast
    (v6([0x2001, 1, 0, 0, 0, 0, 0, 3], 128), None), // RFC 9665: DNS-SD service registration anycast
    (v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), Some(BENCHMARKING)), // RFC 5180
    (v6([0x2001, 3, 0, 0, 0, 0, 0, 0], 32), None),  // RFC 7450: AMT
    (v6([0x2001, 4, 0x112, 0, 0, 0, 0, 0], 48), None), // RFC 7535: AS112
    (v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28), None), // RFC 7343: ORCHIDv2
    (v6([0x2001, 0x30, 0, 0, 0, 0, 0, 0], 28), None), // RFC 9374: drone remote IDs
    // RFC 2928, with the deprecated 2001:10::/28 (RFC 4843: ORCHID).
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), Some(PROTOCOL)),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), Some(DOCUMENTATION)), // RFC 3849
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), Some(DOCUMENTATION)),     // RFC 9637
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), Some("a segment identifier (SRv6)")), // RFC 9602
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), Some("a private address (unique local)")), // RFC 4193
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), Some(LINK_LOCAL)),        // RFC 4291
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), Some("a private address (site-local)")), // RFC 3879
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), Some(MULTICAST)),          // RFC 4291
    (v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3), None),                     // RFC 3587: global unicast
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 0), Some(RESERVED)),                // RFC 4291: by the IETF
];

const fn v4([a, b, c, d]: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length)
}

/// The kind of an address that is no host of the Internet. `None`: the address is globally
/// reachable. Not for an address that [`inner`] knows: the addresses inside decide.
pub(super) fn kind(address: IpAddr) -> Option<Kind> {
    match address {
        IpAddr::V4(address) => {
            IPV4.iter().find(|(net, _)| net.contains(&address)).and_then(|(_, kind)| *kind)
        }
        IpAddr::V6(address) => {
            IPV6.iter().find(|(net, _)| net.contains(&address)).and_then(|(_, kind)| *kind)
        }
    }
}

/// The IPv4 addresses that packets to this IPv6 address go to, and the name of its form.
pub(super) fn inner(address: Ipv6Addr) -> Option<(Kind, Vec<Ipv4Addr>)> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    Some(match address.segments() {
        // RFC 4291: the unspecified and the loopback address.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => return None,
        // RFC 4291.
        [0, 0, 0, 0, 0, 0xffff, high, low] => ("an IPv4-mapped address", vec![v4(high, low)]),
        // RFC 4291, deprecated.
        [0, 0, 0, 0, 0, 0, high, low] => ("an IPv4-compatible address", vec![v4(high, low)]),
        // RFC 6052.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => ("a NAT64 address", vec![v4(high, low)]),
        // RFC 3056.
        [0x2002, high, low, ..] => ("a 6to4 address", vec![v4(high, low)]),
        // RFC 4380: the server, and the client with inverted bits.
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            ("a Teredo address", vec![v4(!high, !low), v4(server_high, server_low)])
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_hides_one_below_it() {
        for (at, (net, _)) in IPV4.iter().enumerate() {
            assert!(!IPV4[..at].iter().any(|(before, _)| before.contains(net)), "{net}");
        }
        for (at, (net, _)) in IPV6.iter().enumerate() {
            assert!(!IPV6[..at].iter().any(|(before, _)| before.contains(net)), "{net}");
        }
    }

    #[test]
    fn rows_start_and_end_where_the_registries_say() {
        // The first and last address of each block, and the ones beside it that are reachable.
        for (inside, outside) in [
            (["0.0.0.0", "0.255.255.255"], &["1.0.0.0"][..]),
            (["10.0.0.0", "10.255.255.255"], &["9.255.255.255", "11.0.0.0"]),
            (["100.64.0.0", "100.127.255.255"], &["100.63.255.255", "100.128.0.0"]),
            (["127.0.0.0", "127.255.255.255"], &["126.255.255.255", "128.0.0.0"]),
            (["169.254.0.0", "169.254.255.255"], &["169.253.255.255", "169.255.0.0"]),
            (["172.16.0.0", "172.31.255.255"], &["172.15.255.255", "172.32.0.0"]),
            (
                ["192.0.0.0", "192.0.0.255"],
                &["191.255.255.255", "192.0.0.9", "192.0.0.10", "192.0.1.0"],
            ),
            (["192.0.0.8", "192.0.0.11"], &[]),
            (["192.0.0.170", "192.0.0.171"], &[]),
            (["192.0.2.0", "192.0.2.255"], &["192.0.1.255", "192.0.3.0"]),
            (["192.88.99.0", "192.88.99.255"], &["192.88.98.255", "192.88.100.0"]),
            (["192.168.0.0", "192.168.255.255"], &["192.167.255.255", "192.169.0.0"]),
            (["198.18.0.0", "198.19.255.255"], &["198.17.255.255", "198.20.0.0"]),
            (["198.51.100.0", "198.51.100.255"], &["198.51.99.255", "198.51.101.0"]),
            (["203.0.113.0", "203.0.113.255"], &["203.0.112.255", "203.0.114.0"]),
            (["224.0.0.0", "255.255.255.255"], &["223.255.255.255"]),
            (["64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"], &[]),
            (["100::", "100::ffff:ffff:ffff:ffff"], &[]),
            (["100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff"], &[]),
            (["2001:1::", "2001:1::4"], &["2001:1::1", "2001:1::2", "2001:1::3"]),
            (
                ["2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff"],
                &["2001:3::", "2001:3:ffff:ffff:ffff:ffff:ffff:ffff"],
            ),
            (
                ["2001:4:111::", "2001:4:113::"],
                &["2001:4:112::", "2001:4:112:ffff:ffff:ffff:ffff:ffff"],
            ),
            (
                ["2001:10::", "2001:1f:ffff:ffff:ffff:ffff:ffff:ffff"],
                &["2001:20::", "2001:3f:ffff:ffff:ffff:ffff:ffff:ffff"],
            ),
            (["2001:40::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"], &["2001:200::"]),
            (
                ["2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"],
                &["2001:db7::", "2001:db9::"],
            ),
            (["3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"], &["3ffe::", "3fff:1000::"]),
            (["4000::", "5f00::"], &["2000::"]),
            (["fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"], &[]),
            (["fe80::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"], &[]),
            (["::", "::1"], &["2620:4f:8000::"]),
            (
                ["::1:0:0:0", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
                &["192.31.196.1", "192.52.193.1", "192.175.48.1"],
            ),
        ] {
            for address in inside {
                assert!(kind(address.parse().unwrap()).is_some(), "{address}");
            }
            for address in outside {
                assert_eq!(kind(address.parse().unwrap()), None, "{address}");
            }
        }
    }

    #[test]
    fn ipv6_shows_the_ipv4_inside() {
        for (address, form, inside) in [
            ("::ffff:10.0.0.1", "mapped", &["10.0.0.1"][..]),
            ("::10.0.0.1", "compatible", &["10.0.0.1"]),
            ("::2", "compatible", &["0.0.0.2"]),
            ("64:ff9b::10.0.0.1", "NAT64", &["10.0.0.1"]),
            ("2002:0a00:1::", "6to4", &["10.0.0.1"]),
            ("2002:0a00:1:ffff::1", "6to4", &["10.0.0.1"]),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo", &["192.0.2.45", "65.54.227.120"]),
        ] {
            let (name, found) = inner(address.parse().unwrap()).unwrap();
            let inside: Vec<Ipv4Addr> = inside.iter().map(|one| one.parse().unwrap()).collect();
            assert!(name.contains(form) && found == inside, "{address}: {name} {found:?}");
        }
        for address in [
            "::",
            "::1",
            "64:ff9b::1:0:0",
            "64:ff9b:1::10.0.0.1",
            "2001:1::",
            "::1:0:0:0",
            "::ffff:0:10.0.0.1",
        ] {
            assert_eq!(inner(address.parse().unwrap()), None, "{address}");
        }
    }
}
