//! Resolution of host names.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use futures::future::{BoxFuture, FutureExt as _};

/// Addresses of a host, with port 0.
pub type HostAddresses = io::Result<Vec<SocketAddr>>;

/// Error: a DNS lookup was not started, because the caller already runs its maximum number of
/// lookups. The error is independent of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many DNS lookups of the same requester are running")]
pub struct LookupLimit;

/// Resolves the names of registries, token services and proxies.
pub trait NameResolver: fmt::Debug + Send + Sync {
    /// Returns the addresses of `host`. This function runs in the task that sends the request.
    fn resolve(&self, host: &str) -> BoxFuture<'static, HostAddresses>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SystemResolver;

impl NameResolver for SystemResolver {
    fn resolve(&self, host: &str) -> BoxFuture<'static, HostAddresses> {
        let host = host.to_owned();
        async move { Ok(tokio::net::lookup_host((host, 0)).await?.collect()) }.boxed()
    }
}
