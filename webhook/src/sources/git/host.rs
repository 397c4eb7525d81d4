//! The addresses of the host of a repository, which are resolved and checked once. Git contacts
//! only these addresses, so a later response of the DNS server has no effect.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::review::source::git::GitHost;
use bundle_oci::registry::{NameResolver, is_public_address};

/// Maximum number of addresses that are used.
const MOST: usize = 16;

/// The host of a repository cannot be contacted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    /// The class does not allow the address.
    #[error(
        "{host} has the address {address}, which is private, link-local or loopback, and the class does not allow such addresses"
    )]
    NotAllowed { host: String, address: IpAddr },
    /// The host name could not be resolved.
    #[error("cannot resolve the host {host}: {why}")]
    Unresolved { host: String, why: io::Error },
}

impl HostError {
    pub(super) fn finding(&self, message: String) -> Finding {
        let (code, hint) = match self {
            Self::NotAllowed { .. } => (
                codes::install::GIT_ADDRESS,
                "an administrator can set spec.sources.privateAddresses: Allow in the class",
            ),
            Self::Unresolved { .. } => (
                codes::install::GIT_UNREACHABLE,
                "the request is retried automatically",
            ),
        };
        Finding::error(code, message).hint(hint)
    }
}

/// Returns the addresses of `host`. Fails if one address is not allowed, because git can contact
/// any of the addresses.
pub(super) async fn addresses(
    resolver: &impl NameResolver,
    host: &GitHost,
    allows_private: bool,
) -> Result<Vec<IpAddr>, HostError> {
    let found = match host {
        GitHost::Address(address) => vec![*address],
        GitHost::Name(name) => {
            let unresolved = |why| HostError::Unresolved {
                host: name.clone(),
                why,
            };
            let found = resolver.resolve(name).await.map_err(unresolved)?;
            let found: BTreeSet<IpAddr> = found.iter().map(SocketAddr::ip).collect();
            if found.is_empty() {
                return Err(unresolved(io::Error::other("it has no address")));
            }
            found.into_iter().take(MOST).collect()
        }
    };
    let refused = found.iter().find(|address| !is_public_address(**address));
    match refused {
        Some(address) if !allows_private => Err(HostError::NotAllowed {
            host: host.to_string(),
            address: *address,
        }),
        _ => Ok(found),
    }
}
