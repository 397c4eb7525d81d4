//! Addresses of a node and its Pods. The ranges are not used by any real network. Each running node
//! has its own range.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Result, bail};

/// Addresses of one node. No other node on this machine uses these addresses while this value
/// exists.
///
/// The addresses are in 198.18.0.0/15, which RFC 2544 reserves for tests of network devices.
pub(in crate::cluster) struct NodeNetwork {
    index: u8,
    claim: File,
}

impl NodeNetwork {
    /// Reserves the addresses of a node.
    pub(super) fn reserve() -> Result<Self> {
        let user = rustix::process::getuid().as_raw();
        let folder = std::env::temp_dir().join(format!("kubectl-bundle-nodes-{user}"));
        fs_err::create_dir_all(&folder)?;
        for index in 0..=u8::MAX {
            let claim = fs_err::File::create(folder.join(index.to_string()))?.into_file();
            // The kernel releases the lock when this process ends.
            let network = Self { index, claim };
            let interface = Path::new("/sys/class/net").join(network.interface());
            if network.claim.try_lock().is_ok() && !interface.exists() {
                return Ok(network);
            }
        }
        bail!("256 nodes run on this machine, and no addresses are left for another node")
    }

    /// Returns the address of this host on the link to the node. API server and registries listen
    /// on this address.
    pub(in crate::cluster) fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.index, 1)
    }

    /// Returns the address of the node.
    pub(super) fn node(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.index, 2)
    }

    /// Returns the address range of the Pods, in CIDR notation.
    pub(super) fn pods(&self) -> String {
        format!("198.19.{}.0/24", self.index)
    }

    /// Returns the name of the host's interface on the link to the node.
    pub(super) fn interface(&self) -> String {
        format!("kbnode{}", self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_different_addresses() {
        let (one, other) = (
            NodeNetwork::reserve().unwrap(),
            NodeNetwork::reserve().unwrap(),
        );
        assert_ne!(one.host(), other.host());
        assert_ne!(one.pods(), other.pods());
        assert_ne!(one.interface(), other.interface());
    }
}
