//! Counts clients by network and by address.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};

/// Length of the prefix of an IPv4 network. Kubernetes gives the pods of one node a network of this
/// size by default (`--node-cidr-mask-size-ipv4` of kube-controller-manager).
const IPV4_PREFIX: u32 = 24;
/// Length of the prefix of an IPv6 network. Kubernetes gives the pods of one node a network of this
/// size by default, and providers assign no smaller networks. One client can use all addresses of
/// such a network.
const IPV6_PREFIX: u32 = 64;

/// The addresses with the most clients. Networks are compared first, so that a client with many
/// addresses of one network does not displace clients of other networks.
pub(crate) struct BusiestAddresses(BTreeSet<IpAddr>);

impl BusiestAddresses {
    /// Returns the busiest addresses. `clients` has one item for each client: its address.
    pub(crate) fn of(clients: impl Iterator<Item = IpAddr>) -> Self {
        let mut networks = HashMap::<IpAddr, HashMap<IpAddr, usize>>::new();
        for client in clients {
            let addresses = networks.entry(network(client)).or_default();
            *addresses.entry(client).or_default() += 1;
        }
        let size = |addresses: &HashMap<IpAddr, usize>| addresses.values().sum::<usize>();
        let largest = networks.values().map(size).max();
        let addresses = networks
            .values()
            .filter(|addresses| Some(size(addresses)) == largest);
        let addresses: Vec<_> = addresses.flatten().collect();
        let most = addresses.iter().map(|(_, count)| **count).max();
        let busiest = (addresses.into_iter()).filter(|(_, count)| Some(**count) == most);
        Self(busiest.map(|(address, _)| *address).collect())
    }

    /// Returns true if `address` is one of the busiest addresses.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

/// Returns the first address of the network of `address`.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX << (u32::BITS - IPV4_PREFIX);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX << (u128::BITS - IPV6_PREFIX);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns those of `clients` that have one of the busiest addresses, without duplicates.
    fn busiest(clients: &[&str]) -> Vec<String> {
        let addresses = || clients.iter().map(|text| text.parse().unwrap());
        let found = BusiestAddresses::of(addresses());
        let found: BTreeSet<IpAddr> = addresses().filter(|it| found.contains(*it)).collect();
        found.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn largest_network_is_selected_before_the_address_in_it() {
        for (clients, expected) in [
            (&[][..], &[][..]),
            (&["10.0.0.1"], &["10.0.0.1"]),
            (&["10.0.0.1", "10.0.1.1"], &["10.0.0.1", "10.0.1.1"]),
            (&["10.0.0.1", "10.0.0.2", "10.0.0.2"], &["10.0.0.2"]),
            // One network has many addresses. An API server is in another network.
            (
                &[
                    "fd00::1",
                    "fd00::2",
                    "fd00::3",
                    "fd00:0:0:1::1",
                    "fd00:0:0:1::1",
                ],
                &["fd00::1", "fd00::2", "fd00::3"],
            ),
            (
                &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.1.1", "10.0.1.1"],
                &["10.0.0.1", "10.0.0.2", "10.0.0.3"],
            ),
            // Both networks have the same number of clients.
            (
                &["10.0.0.1", "10.0.0.2", "10.0.1.1", "10.0.1.1"],
                &["10.0.1.1"],
            ),
        ] {
            assert_eq!(busiest(clients), expected, "{clients:?}");
        }
    }
}
