//! Sends a request to the locations of a repository: mirrors before the registry. Records the
//! mirrors that fail, so that later requests skip them.

use std::time::Duration;

use reqwest::Response;
use tokio::time::timeout;

use super::attempt::FailureCause;
use super::{RegistryRequest, RequestTarget};
use crate::registry::auth::endpoint;
use crate::registry::http::pools::authority;
use crate::registry::mirrors::AccessKind;
use crate::registry::{Client, RegistryErrorReason, Repository};

/// Maximum time for the check whether a mirror responds. It is longer than the wait for a DNS
/// lookup of a caller that exceeds its limit.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

impl Client {
    /// Sends a request to the locations in order until a location succeeds. A read tries the
    /// mirrors before the registry. A write is sent only to the registry.
    pub(in crate::registry) async fn send(
        &self,
        ask: &RegistryRequest<'_>,
    ) -> Result<Response, RegistryErrorReason> {
        let wanted = match (&ask.target, ask.push) {
            (_, true) => AccessKind::Write,
            (RequestTarget::Url(received), _) => AccessKind::Location(authority(&received.url)),
            (RequestTarget::Path(path), _) => AccessKind::reading(path),
        };
        let mut locations = self.mirrors.locations(ask.repository, &wanted)?;
        let last = locations.pop().unwrap_or_else(|| ask.repository.clone());
        for location in &locations {
            match self.send_to(ask, location).await {
                Ok(response) => return Ok(response),
                // The target of a redirect can differ between repositories. A mirror can store a
                // large image before it responds. Therefore these failures must not disable the
                // mirror for other repositories.
                Err(failed) => match failed.cause {
                    FailureCause::Registry => {
                        self.mirrors.record_failure(location, &failed.reason);
                    }
                    FailureCause::RedirectTarget => {}
                    FailureCause::RegistryOrContent => {
                        // The future is boxed, because it is large and rarely needed.
                        match Box::pin(self.ping(location)).await {
                            Some(Ok(())) => self.mirrors.record_stalled_repository(location),
                            Some(Err(reason)) => self.mirrors.record_failure(location, &reason),
                            None => self.mirrors.record_failure(location, &failed.reason),
                        }
                    }
                },
            }
        }
        let sent = self.send_to(ask, &last).await;
        sent.map_err(|failed| failed.reason)
    }

    /// Sends `GET /v2/` to the registry of `location`. Returns `None` if it does not respond in time.
    async fn ping(&self, location: &Repository) -> Option<Result<(), RegistryErrorReason>> {
        let registry = location.registry.as_str();
        let security = self.security_of(registry);
        let asking = async {
            let endpoint = self.endpoints.get(&self.http, registry, security).await?;
            let found = endpoint::ping(&self.http, endpoint.base.clone()).await;
            found.map(drop)
        };
        let limit = PING_TIMEOUT.min(self.deadlines.stall);
        timeout(limit, asking).await.ok()
    }
}
