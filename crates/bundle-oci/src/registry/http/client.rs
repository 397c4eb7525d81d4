//! Sends requests to registries, with deadlines and bounded responses. The module `pools` manages
//! the connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bundle_core::json;
use bytes::{Bytes, BytesMut};
use rustls::AlertDescription;
use url::Url;

use crate::registry::http::body::BlobPart;
use crate::registry::http::pools::{CertificateVerification, ConnectionPools, authority};
use crate::registry::http::request_log::RequestLog;
use crate::registry::http::zone::{NetworkZone, ZoneError};
use crate::registry::http_error::HttpError;
use crate::registry::memory::{
    COPIES_IN_MEMORY, FIRST_RESERVATION_BYTES, MemoryReservation, reserve,
};
use crate::registry::{ClientOptions, Deadlines, RegistryError, RegistryErrorReason};

/// Minimum rate of an upload, in bytes per second. A slower upload counts as stalled.
const MIN_UPLOAD_RATE: u64 = 64 << 10;

/// Minimum rate at which a registry stores received bytes, in bytes per second. A slower registry
/// counts as stalled.
const MIN_STORE_RATE: u64 = 4 << 20;

/// HTTP client that sends the requests of a registry client.
pub(in crate::registry) struct HttpClient {
    deadlines: Deadlines,
    pools: Arc<ConnectionPools>,
    /// Host and port of a server whose certificate is not verified. `None` if every certificate is
    /// verified.
    unverified: Option<String>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

impl HttpClient {
    pub(in crate::registry) fn new(options: &ClientOptions) -> Result<Self, RegistryError> {
        Ok(Self {
            deadlines: options.deadlines,
            pools: Arc::new(ConnectionPools::new(options)?),
            unverified: None,
        })
    }

    /// Returns a client that accepts every certificate of the host of `url`. All other connections
    /// are shared with this client.
    pub(in crate::registry) fn without_verification(&self, url: &Url) -> Self {
        Self {
            deadlines: self.deadlines,
            pools: Arc::clone(&self.pools),
            unverified: Some(authority(url)),
        }
    }

    fn verification(&self, url: &Url) -> CertificateVerification {
        match &self.unverified {
            Some(host) if *host == authority(url) => CertificateVerification::Skipped,
            _ => CertificateVerification::Required,
        }
    }

    /// Records the host of the URL as a registry. Only registries may receive a client certificate.
    pub(in crate::registry) fn add_registry_host(&self, url: &Url) {
        self.pools.add_registry_host(url);
    }

    /// Sends one request without retries.
    pub(in crate::registry) async fn send(
        &self,
        request: reqwest::Request,
    ) -> Result<reqwest::Response, RegistryErrorReason> {
        let client = self
            .pools
            .client(request.url(), self.verification(request.url()))?;
        self.send_by(&client, request).await
    }

    /// Sends one request to a URL that a registry returned. `from` is the network zone of this
    /// registry.
    pub(in crate::registry) async fn send_from(
        &self,
        request: reqwest::Request,
        from: NetworkZone,
    ) -> Result<reqwest::Response, RegistryErrorReason> {
        let client = self.redirect_client(request.url(), from)?;
        self.send_by(&client, request).await
    }

    fn redirect_client(
        &self,
        url: &Url,
        from: NetworkZone,
    ) -> Result<reqwest::Client, RegistryErrorReason> {
        self.pools
            .redirect_client(url, from, self.verification(url))
    }

    async fn send_by(
        &self,
        client: &reqwest::Client,
        request: reqwest::Request,
    ) -> Result<reqwest::Response, RegistryErrorReason> {
        let registry = authority(request.url());
        // The response cannot arrive before the body has been sent. Therefore the deadline is
        // extended by one second for every 64 KiB of the body.
        let sending = request
            .body()
            .and_then(reqwest::Body::as_bytes)
            .map_or(0, |bytes| bytes.len() as u64 / MIN_UPLOAD_RATE);
        let timeout = self.deadlines.stall + Duration::from_secs(sending);
        let log = RequestLog::begin(&request);
        let answer = tokio::time::timeout(timeout, client.execute(request)).await;
        let outcome = match answer {
            Ok(answer) => answer.map_err(|error| self.connection_error(&registry, error)),
            Err(_) => Err(RegistryErrorReason::Stalled { after: timeout }),
        };
        if let Some(log) = log {
            log.end(&outcome);
        }
        outcome
    }

    /// Sends one request whose body is a part of a blob. There is no deadline while the body makes
    /// progress.
    pub(in crate::registry) async fn send_watched(
        &self,
        request: reqwest::Request,
        part: &BlobPart<'_>,
        from: NetworkZone,
    ) -> Result<reqwest::Response, RegistryErrorReason> {
        let log = RequestLog::begin(&request);
        let outcome = self.watch(request, part, from).await;
        if let Some(log) = log {
            log.end(&outcome);
        }
        outcome
    }

    async fn watch(
        &self,
        request: reqwest::Request,
        part: &BlobPart<'_>,
        from: NetworkZone,
    ) -> Result<reqwest::Response, RegistryErrorReason> {
        let registry = authority(request.url());
        let client = self.redirect_client(request.url(), from)?;
        let mut answer = std::pin::pin!(client.execute(request));
        loop {
            let before = part.watch.taken();
            let sent = before == part.length;
            let mut after = self.deadlines.stall;
            if sent {
                // The registry has received all bytes and needs time to store them.
                after += Duration::from_secs(part.length / MIN_STORE_RATE);
            }
            match tokio::time::timeout(after, answer.as_mut()).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => {
                    return Err(part.watch.failure().map_or_else(
                        || self.connection_error(&registry, error),
                        RegistryErrorReason::Source,
                    ));
                }
                Err(_) if sent => return Err(RegistryErrorReason::Stalled { after }),
                Err(_) if part.watch.taken() == before && !part.watch.is_waiting() => {
                    return Err(RegistryErrorReason::Stalled { after });
                }
                Err(_) => {}
            }
        }
    }

    /// Returns the next piece of a response, and `None` at its end.
    pub(in crate::registry) async fn piece(
        &self,
        response: &mut reqwest::Response,
    ) -> Result<Option<Bytes>, RegistryErrorReason> {
        let after = self.deadlines.stall;
        tokio::time::timeout(after, response.chunk())
            .await
            .map_err(|_| RegistryErrorReason::Stalled { after })?
            .map_err(|error| self.connection_error(&authority(response.url()), error))
    }

    /// Returns the whole body. Returns an error if the body has more than `limit` bytes. If the
    /// body is JSON, the memory of its parsed form is reserved too.
    pub(in crate::registry) async fn body(
        &self,
        mut response: reqwest::Response,
        limit: u64,
        what: &str,
        memory: &dyn MemoryReservation,
    ) -> Result<Bytes, RegistryErrorReason> {
        let too_large = || RegistryErrorReason::TooLarge {
            what: what.to_owned(),
            limit,
        };
        let announced = response.content_length();
        if announced.is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let mut taken = announced.unwrap_or(FIRST_RESERVATION_BYTES).min(limit);
        reserve(memory, taken * COPIES_IN_MEMORY).await?;
        // Allocates the length in `Content-Length` at once. A buffer that grows step by step would
        // need up to twice this length.
        let length = usize::try_from(announced.unwrap_or_default()).unwrap_or_default();
        let mut body = BytesMut::with_capacity(length);
        while let Some(piece) = self.piece(&mut response).await? {
            let length = (body.len() + piece.len()) as u64;
            if length > limit {
                return Err(too_large());
            }
            if length > taken {
                reserve(memory, (limit - taken) * COPIES_IN_MEMORY).await?;
                taken = limit;
            }
            body.extend_from_slice(&piece);
        }
        // Nested objects need far more memory than their text.
        let parsed = json::memory_to_read(&body);
        reserve(memory, parsed.saturating_sub(taken)).await?;
        Ok(body.freeze())
    }

    /// Converts an error of the HTTP client: unreachable, wrong certificate, or interrupted.
    fn connection_error(&self, registry: &str, error: reqwest::Error) -> RegistryErrorReason {
        let registry = registry.to_owned();
        let source = HttpError::from(error);
        let tls = source.find::<rustls::Error>();
        // The server sent a TLS alert, because the server rejects the client certificate or
        // requires a client certificate. The alert arrives with the first response, after the
        // handshake.
        if let Some(rustls::Error::AlertReceived(alert)) = tls
            && ALERTS.contains(alert)
        {
            let given = self.pools.has_client_certificate(&registry);
            return RegistryErrorReason::ClientCertificate { registry, given };
        }
        if source.is_connect() {
            if source.find::<ZoneError>().is_some() {
                return RegistryErrorReason::Redirect {
                    to: registry,
                    why: "the target is in a private or local network",
                };
            }
            if let Some(
                rustls::Error::InvalidCertificate(_)
                | rustls::Error::InvalidCertRevocationList(_)
                | rustls::Error::NoCertificatesPresented,
            ) = tls
            {
                return RegistryErrorReason::Certificate { registry, source };
            }
            return RegistryErrorReason::Unreachable { registry, source };
        }
        if source.is_timeout() {
            return RegistryErrorReason::Stalled {
                after: self.deadlines.stall,
            };
        }
        RegistryErrorReason::Cut { registry, source }
    }
}

/// TLS alerts with which a server rejects its client.
const ALERTS: [AlertDescription; 7] = [
    AlertDescription::CertificateRequired,
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::AccessDenied,
];
