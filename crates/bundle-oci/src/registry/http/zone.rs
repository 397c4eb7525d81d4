//! Limits of redirects: a registry cannot redirect to an address that is closer to this machine
//! than the address of the registry.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::registry::names::NameResolver;

/// Network zone of an address. The variants are ordered from the farthest to the nearest zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::registry) enum NetworkZone {
    /// Public address.
    Public,
    /// Private network, or a shared, multicast or reserved range.
    Private,
    /// Loopback, unspecified or link-local address, or the metadata service of a cloud, which
    /// returns credentials.
    Local,
}

impl NetworkZone {
    pub(in crate::registry) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [a, b, ..] = address.octets();
        if address.is_loopback() || address.is_link_local() || a == 0 {
            Self::Local
        } else if address.is_private()
            || address.is_multicast()
            || a >= 240
            || (a == 100 && (64..128).contains(&b))
            || (a == 198 && (18..20).contains(&b))
        {
            Self::Private
        } else {
            Self::Public
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        // An IPv6 address can contain an IPv4 address: IPv4-mapped, IPv4-compatible, 6to4 or NAT64.
        if let Some(inner) = address.to_ipv4_mapped() {
            return Self::of_v4(inner);
        }
        let segments = address.segments();
        let inner = match segments {
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some((high, low)),
            [0, 0, 0, 0, 0, 0, high, low] if (high, low) > (0, 1) => Some((high, low)),
            _ => None,
        };
        if let Some((high, low)) = inner {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            return Self::of_v4(Ipv4Addr::new(a, b, c, d));
        }
        // The first range contains the metadata service of a cloud. The second range is local-use
        // NAT64 (RFC 8215).
        if matches!(segments, [0xfd00, 0x0ec2, ..] | [0x64, 0xff9b, 1, ..]) {
            return Self::Local;
        }
        if segments[0] & 0xffc0 == 0xfec0 {
            return Self::Private;
        }
        if address.is_loopback() || address.is_unspecified() || address.is_unicast_link_local() {
            Self::Local
        } else if address.is_unique_local() || address.is_multicast() {
            Self::Private
        } else {
            Self::Public
        }
    }

    /// Returns the zone of the IP address or of `localhost` in a URL; `None` for other host names.
    fn of_url(url: &Url) -> Option<Self> {
        match url.host()? {
            Host::Ipv4(address) => Some(Self::of_v4(address)),
            Host::Ipv6(address) => Some(Self::of_v6(address)),
            Host::Domain(name) => {
                let local = name == "localhost" || name.ends_with(".localhost");
                local.then_some(Self::Local)
            }
        }
    }

    /// Returns the network zone of the server that sent a response. If the URL has an IP address,
    /// the zone of this address is used. Otherwise the zone of the peer address `other_end` is
    /// used.
    pub(in crate::registry) fn of_response(url: &Url, other_end: Option<SocketAddr>) -> Self {
        Self::of_url(url)
            .or_else(|| other_end.map(|address| Self::of(address.ip())))
            .unwrap_or(Self::Public)
    }

    /// Returns the reason why a registry in this zone must not redirect to that URL; `None` if the
    /// redirect is allowed. Host names are checked when they are resolved.
    pub(in crate::registry) fn rejection_reason(self, to: &Url) -> Option<&'static str> {
        Self::of_url(to)
            .filter(|near| *near > self)
            .map(|near| match near {
                Self::Local => "the target is a loopback or link-local address",
                _ => "the target is in a private network",
            })
    }
}

/// Returns `true` if an address is public. Loopback, link-local, private and reserved addresses are
/// not public.
pub fn is_public_address(address: IpAddr) -> bool {
    NetworkZone::of(address) == NetworkZone::Public
}

/// DNS resolver that rejects addresses in a zone nearer than `nearest`.
#[derive(Debug, Clone)]
pub(in crate::registry) struct ZoneResolver {
    pub(in crate::registry) names: Arc<dyn NameResolver>,
    pub(in crate::registry) nearest: NetworkZone,
}

/// Error for a name that resolves to an address in a zone nearer than [`ZoneResolver::nearest`].
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} is a private, link-local or loopback address, and a redirect from another network to it is rejected"
)]
pub(in crate::registry) struct ZoneError(IpAddr);

impl Resolve for ZoneResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let nearest = self.nearest;
        let found = self.names.resolve(name.as_str());
        Box::pin(async move {
            let found = found.await?;
            // All addresses of the name must be allowed, because the client may use any of them.
            match found
                .iter()
                .find(|address| NetworkZone::of(address.ip()) > nearest)
            {
                Some(near) => Err(Box::new(ZoneError(near.ip())) as Box<dyn Error + Send + Sync>),
                None => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::names::SystemResolver;

    #[test]
    fn addresses_are_public_private_or_local() {
        for (text, reach) in [
            ("203.0.113.9", NetworkZone::Public),
            ("2001:db8::1", NetworkZone::Public),
            ("100.128.0.1", NetworkZone::Public),
            ("10.1.2.3", NetworkZone::Private),
            ("172.16.0.1", NetworkZone::Private),
            ("192.168.0.1", NetworkZone::Private),
            ("100.64.0.1", NetworkZone::Private),
            ("fd00::1", NetworkZone::Private),
            ("255.255.255.255", NetworkZone::Private),
            ("127.0.0.2", NetworkZone::Local),
            ("0.0.0.0", NetworkZone::Local),
            ("169.254.169.254", NetworkZone::Local),
            ("::1", NetworkZone::Local),
            ("::", NetworkZone::Local),
            ("fe80::1", NetworkZone::Local),
            ("::ffff:127.0.0.1", NetworkZone::Local),
            ("64:ff9b::a9fe:a9fe", NetworkZone::Local),
        ] {
            assert_eq!(NetworkZone::of(text.parse().unwrap()), reach, "{text}");
        }
    }

    #[test]
    fn rejects_redirects_from_public_to_private_and_local_addresses() {
        let url = |text: &str| Url::parse(text).unwrap();
        let metadata = url("http://169.254.169.254/latest");
        let inside = url("https://[fd00::1]/x");
        let name = url("https://cdn.example.com/x");
        let own = url("http://localhost:1/x");
        for (from, metadata_refused, inside_refused) in [
            (NetworkZone::Public, true, true),
            (NetworkZone::Private, true, false),
            (NetworkZone::Local, false, false),
        ] {
            assert_eq!(from.rejection_reason(&metadata).is_some(), metadata_refused);
            assert_eq!(from.rejection_reason(&own).is_some(), metadata_refused);
            assert_eq!(from.rejection_reason(&inside).is_some(), inside_refused);
            assert_eq!(from.rejection_reason(&name), None);
        }
        // These URLs contain the loopback address in other notations.
        assert!(
            NetworkZone::Public
                .rejection_reason(&url("http://2130706433/"))
                .is_some()
        );
        assert!(
            NetworkZone::Public
                .rejection_reason(&url("http://0x7f.1/"))
                .is_some()
        );
        let registry = url("https://registry.example.com/v2/");
        let other_end = |text: &str| Some(text.parse().unwrap());
        assert_eq!(
            NetworkZone::of_response(&registry, other_end("10.0.0.1:443")),
            NetworkZone::Private
        );
        assert_eq!(
            NetworkZone::of_response(&registry, None),
            NetworkZone::Public
        );
        assert_eq!(
            NetworkZone::of_response(&url("https://203.0.113.9/"), other_end("127.0.0.1:3128")),
            NetworkZone::Public
        );
    }

    #[tokio::test]
    async fn rejects_names_that_resolve_to_closer_addresses() {
        let resolve = |nearest| {
            let names = Arc::new(SystemResolver);
            ZoneResolver { names, nearest }.resolve("localhost".parse().unwrap())
        };
        let Err(error) = resolve(NetworkZone::Public).await else {
            panic!("localhost is not public");
        };
        assert!(error.downcast_ref::<ZoneError>().is_some(), "{error}");
        assert!(resolve(NetworkZone::Local).await.is_ok());
    }
}
