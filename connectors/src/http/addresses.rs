//! The addresses that a target may have.
//!
//! A target's name may resolve to anything. So the address that is connected to is checked, not the
//! name: an address that is no host of the Internet is refused, unless an operator names its
//! subnet.

use std::borrow::Cow;
use std::net::IpAddr;

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::special_purpose::{inner, kind};

/// Subnets whose addresses targets may have, though they are no hosts of the Internet. A single
/// address is a subnet too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subnets {
    nets: Vec<IpNet>,
    /// Entries that are no subnet. Errors of the deserializer would not say why.
    problems: Vec<String>,
}

impl Subnets {
    /// The problems of the entries, each as a sentence.
    pub(super) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Whether a target may have this address. `Err`: the kind of the address, and a hint.
    pub(super) fn permit(&self, address: IpAddr) -> Result<(), String> {
        if self.has(address) {
            return Ok(());
        }
        let inner = if let IpAddr::V6(address) = address { inner(address) } else { None };
        let Some((form, inside)) = inner else {
            return kind(address)
                .map_or(Ok(()), |kind| Err(refused(&format!("{address} is {kind}"))));
        };
        for one in inside.into_iter().map(IpAddr::V4).filter(|one| !self.has(*one)) {
            if let Some(kind) = kind(one) {
                return Err(refused(&format!("{address} is {form} of {one}, {kind}")));
            }
        }
        Ok(())
    }

    /// Whether a subnet has this address. An IPv4-mapped address is the IPv4 address.
    fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.nets.iter().any(|subnet| subnet.contains(&address))
    }
}

fn refused(what: &str) -> String {
    format!(
        "{what}, where nothing is sent: to allow this, add its subnet to `subnets` of the broker"
    )
}

/// The subnet that an entry names.
fn subnet(text: &str) -> Result<IpNet, String> {
    let subnet =
        text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| {
            format!(
                "`{}` is no subnet: write an address or a prefix, as in 10.0.0.0/8 or fd00::/8",
                text.escape_debug()
            )
        })?;
    if let IpNet::V6(net) = subnet
        && let Some(address) = net.addr().to_ipv4_mapped()
    {
        let length = net.prefix_len().saturating_sub(96);
        return Err(format!(
            "`{text}` is a subnet of IPv4-mapped addresses: write `{address}/{length}`"
        ));
    }
    if subnet.trunc() != subnet {
        return Err(format!(
            "`{text}` has bits beyond its prefix: write `{}`, or one address without a prefix",
            subnet.trunc()
        ));
    }
    Ok(subnet)
}

impl<'de> Deserialize<'de> for Subnets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut subnets = Subnets::default();
        for text in Vec::<String>::deserialize(deserializer)? {
            match subnet(&text) {
                Ok(net) => subnets.nets.push(net),
                Err(why) => subnets.problems.push(why),
            }
        }
        Ok(subnets)
    }
}

impl Serialize for Subnets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.nets.iter().map(IpNet::to_string))
    }
}

impl JsonSchema for Subnets {
    fn schema_name() -> Cow<'static, str> {
        "Subnets".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "array", "items": {"type": "string"}})
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::Error as ValueError;

    use super::*;

    fn subnets(texts: &[&str]) -> Subnets {
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        Subnets::deserialize(IntoDeserializer::<ValueError>::into_deserializer(texts)).unwrap()
    }

    fn permit(subnets: &Subnets, address: &str) -> Result<(), String> {
        subnets.permit(address.parse().unwrap())
    }

    #[test]
    fn what_is_no_host_of_the_internet_is_refused_with_its_kind() {
        let none = Subnets::default();
        for (address, word) in [
            ("0.0.0.0", "this host"),
            ("127.0.0.1", "loopback"),
            ("127.8.8.8", "loopback"),
            ("10.0.0.1", "private"),
            ("172.20.0.1", "private"),
            ("192.168.1.1", "private"),
            ("100.64.0.1", "CGNAT"),
            // Metadata services: most clouds, Amazon's DNS and containers, Alibaba, Oracle.
            ("169.254.169.254", "metadata"),
            ("169.254.169.253", "metadata"),
            ("169.254.170.2", "metadata"),
            ("100.100.100.200", "CGNAT"),
            ("192.0.0.192", "IETF protocol"),
            ("fd00:ec2::254", "private"),
            ("fd20:ce::254", "private"),
            ("192.0.2.1", "documentation"),
            ("198.18.0.1", "benchmarks"),
            ("192.88.99.1", "6to4 relay"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.250", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("::", "this host"),
            ("::1", "loopback"),
            ("fc00::1", "private"),
            ("fe80::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
            ("ff0e::1", "multicast"),
            ("100::1", "discard"),
            ("2001:db8::1", "documentation"),
            ("64:ff9b:1::8.8.8.8", "local NAT64"),
            ("200::1", "reserved"),
            ("::ffff:127.0.0.1", "IPv4-mapped address of 127.0.0.1, a loopback address"),
            ("::ffff:169.254.169.254", "metadata"),
            ("::ffff:0.0.0.0", "this host"),
            ("::ffff:224.0.0.1", "multicast"),
            ("::127.0.0.1", "IPv4-compatible address of 127.0.0.1, a loopback address"),
            ("64:ff9b::169.254.169.254", "NAT64 address of 169.254.169.254, a link-local address"),
            ("64:ff9b::a00:1", "NAT64 address of 10.0.0.1, a private address"),
            ("2002:7f00:1::", "6to4 address of 127.0.0.1, a loopback address"),
            ("2002:c0a8:101::1", "6to4 address of 192.168.1.1, a private address"),
            ("2001:0:808:808:0:0:80ff:fffe", "Teredo address of 127.0.0.1, a loopback address"),
            ("2001:0:a00:1:0:0:f7f7:f7f7", "Teredo address of 10.0.0.1, a private address"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let why = none.permit(address).unwrap_err();
            assert!(
                why.starts_with(&format!("{address} is "))
                    && why.contains(word)
                    && why.contains("`subnets`"),
                "{address}: {why}"
            );
        }
    }

    #[test]
    fn hosts_of_the_internet_are_permitted() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "192.0.0.9",
            "192.31.196.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001:829::200e",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2001:0:808:808:0:0:f7f7:f7f7",
        ] {
            assert_eq!(permit(&Subnets::default(), address), Ok(()), "{address}");
        }
    }

    #[test]
    fn a_subnet_permits_its_addresses_in_every_form() {
        let some = subnets(&["10.1.0.0/16", "127.0.0.1", "fd00:1::/32", "::1", "64:ff9b:1::/48"]);
        for address in [
            "10.1.2.3",
            "127.0.0.1",
            "fd00:1::5",
            "::1",
            "::ffff:10.1.2.3",
            "::ffff:127.0.0.1",
            "64:ff9b::10.1.2.3",
            "2002:a01:203::",
            "64:ff9b:1::10.0.0.1",
            "8.8.8.8",
        ] {
            assert_eq!(permit(&some, address), Ok(()), "{address}");
        }
        for address in [
            "10.2.0.0",
            "127.0.0.2",
            "fd00:2::5",
            "::ffff:10.2.0.0",
            "::ffff:0:1",
            "64:ff9b::10.2.0.0",
            "2001:0:a02:1:0:0:f5fe:fdfc",
        ] {
            assert!(permit(&some, address).is_err(), "{address}");
        }
        // All of IPv6 is not IPv4.
        let ipv6 = subnets(&["::/0"]);
        assert!(
            permit(&ipv6, "fe80::1").is_ok()
                && permit(&ipv6, "::ffff:10.0.0.1").is_err()
                && permit(&ipv6, "10.0.0.1").is_err()
        );
        let all = subnets(&["0.0.0.0/0", "::/0"]);
        assert!(
            ["169.254.169.254", "::ffff:10.0.0.1", "::1"]
                .iter()
                .all(|address| permit(&all, address).is_ok())
        );
    }

    #[test]
    fn a_wrong_entry_is_named() {
        for (entry, said) in [
            ("", "`` is no subnet"),
            ("internal", "`internal` is no subnet"),
            ("10.0.0.0/33", "`10.0.0.0/33` is no subnet"),
            ("10.0.0.0/255.0.0.0", "`10.0.0.0/255.0.0.0` is no subnet"),
            ("10.0.0", "`10.0.0` is no subnet"),
            ("010.0.0.1", "`010.0.0.1` is no subnet"),
            ("10.0.0.0/8 ", "`10.0.0.0/8 ` is no subnet"),
            ("[::1]", "`[::1]` is no subnet"),
            ("10.0.0.1/8", "write `10.0.0.0/8`"),
            ("fd00::1/8", "write `fd00::/8`"),
            ("::ffff:10.0.0.0/104", "write `10.0.0.0/8`"),
            ("::ffff:10.0.0.1", "write `10.0.0.1/32`"),
        ] {
            let subnets = subnets(&["127.0.0.1", entry]);
            let [error] = subnets.problems() else { panic!("{entry}: {subnets:?}") };
            assert!(
                error.contains(said) && permit(&subnets, "127.0.0.1").is_ok(),
                "{entry}: {error}"
            );
        }
    }
}
