//! HTTP client for signing services. The client requires TLS except on loopback, limits time and
//! size, follows no redirects, and reads the service's error message.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use reqwest::header::HeaderValue;
use reqwest::{Certificate, StatusCode, redirect};
use url::{ParseError, Url};

use super::secret::{Secret, without_secrets};
use crate::failure::{Failure, Outcome};
use crate::system::files;
use crate::system::network::is_loopback;

/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of an error message that is printed, in characters.
const MAX_MESSAGE_CHARS: usize = 300;

/// Kind of a service. `Display` writes its name for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SigningService {
    CertificateAuthority,
    TimestampAuthority,
    TransparencyLog,
    /// Issuer of identity tokens for interactive logins.
    TokenIssuer,
    GitHubIssuer,
    BuildkiteIssuer,
}

impl fmt::Display for SigningService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CertificateAuthority => "the certificate authority",
            Self::TimestampAuthority => "the timestamp authority",
            Self::TransparencyLog => "the transparency log",
            Self::TokenIssuer => "the issuer of identity tokens",
            Self::GitHubIssuer => "the issuer of GitHub Actions",
            Self::BuildkiteIssuer => "the issuer of Buildkite",
        })
    }
}

impl SigningService {
    /// Returns the next step after a rejected request.
    fn next_step(self) -> &'static str {
        match self {
            Self::CertificateAuthority => {
                "check the URL of the certificate authority (--fulcio-url), and that it accepts the issuer of the token"
            }
            Self::TimestampAuthority => {
                "check the URL of the timestamp authority (--timestamp-server-url)"
            }
            Self::TransparencyLog => {
                "check the URL and the version of the log (--rekor-url, --rekor-version)"
            }
            Self::TokenIssuer => {
                "check the URL of the issuer (--oidc-issuer) and the client ID (--oidc-client-id)"
            }
            Self::GitHubIssuer => {
                "check that the job can request a token (permissions: id-token: write)"
            }
            Self::BuildkiteIssuer => "check that the job can request a token",
        }
    }
}

/// Request to a service.
pub(super) struct ServiceRequest {
    /// Service, for messages.
    pub(super) service: SigningService,
    /// URL.
    pub(super) url: Result<Url, ParseError>,
    /// Media type of the body.
    pub(super) media_type: &'static str,
    /// Body of the request. The method is GET if the body is empty, otherwise POST.
    pub(super) content: Vec<u8>,
    /// Credentials; `None` for an anonymous request.
    pub(super) bearer: Option<Credentials>,
}

/// Credentials for a service.
pub(super) enum Credentials {
    /// A bearer token.
    Bearer(Secret),
    /// Token of a Buildkite agent.
    Agent(Secret),
}

impl Credentials {
    fn secret(&self) -> &str {
        match self {
            Self::Bearer(secret) | Self::Agent(secret) => secret.expose(),
        }
    }

    /// Returns the header, marked as sensitive.
    fn header(&self) -> Option<HeaderValue> {
        let text = match self {
            Self::Bearer(secret) => format!("Bearer {}", secret.expose()),
            Self::Agent(secret) => format!("Token {}", secret.expose()),
        };
        let mut header = HeaderValue::from_str(&text).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

/// Response of a service.
struct ServiceResponse {
    service: SigningService,
    host: String,
    status: StatusCode,
    body: Vec<u8>,
    /// Error message on one line, without the credentials.
    words: String,
}

/// The HTTP clients. The client for loopback uses no proxy.
pub(super) struct HttpClients {
    proxied: reqwest::Client,
    direct: reqwest::Client,
}

impl HttpClients {
    pub(super) fn new(ca_files: &[PathBuf]) -> Outcome<Self> {
        crate::system::tls::install();
        let unusable = |error: &reqwest::Error| {
            let finding = Finding::error(codes::usage::FILE_UNREADABLE, "invalid certificates");
            Failure::caused(finding.hint("pass certificates in PEM format"), error)
        };
        let mut authorities = Vec::new();
        for path in ca_files.iter().filter(|path| path.is_file()) {
            let found = Certificate::from_pem_bundle(&files::read(path)?);
            authorities.extend(found.map_err(|error| unusable(&error))?);
        }
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("kubectl-bundle/", env!("CARGO_PKG_VERSION")))
                .timeout(REQUEST_TIMEOUT)
                .redirect(redirect::Policy::none())
                .tls_certs_merge(authorities.clone())
        };
        Ok(Self {
            proxied: builder().build().map_err(|error| unusable(&error))?,
            direct: builder()
                .no_proxy()
                .build()
                .map_err(|error| unusable(&error))?,
        })
    }

    /// Returns the client for this URL.
    pub(super) fn client(&self, url: &Url) -> &reqwest::Client {
        if is_loopback(url) {
            &self.direct
        } else {
            &self.proxied
        }
    }

    /// Sends a request and returns the body. Returns an error if the response has an error status.
    pub(super) async fn send(&self, ask: ServiceRequest) -> Outcome<Vec<u8>> {
        let answer = self.exchange(ask).await?;
        if !answer.status.is_success() {
            let why = format!("{}: {}", answer.status, answer.words);
            return Err(rejected(answer.service, &answer.host, &why).into());
        }
        Ok(answer.body)
    }

    /// Sends a request. Returns the body, and `true` if the status is a success. Unlike
    /// [`send`](Self::send), this function returns the body of an error response.
    pub(super) async fn send_with_error_body(
        &self,
        ask: ServiceRequest,
    ) -> Outcome<(bool, Vec<u8>)> {
        let answer = self.exchange(ask).await?;
        Ok((answer.status.is_success(), answer.body))
    }

    async fn exchange(&self, ask: ServiceRequest) -> Outcome<ServiceResponse> {
        let service = ask.service;
        let url = ask.url.map_err(|error| {
            let finding = Finding::error(
                codes::usage::BAD_ARGUMENT,
                format!("the URL of {service} is invalid"),
            );
            Failure::caused(finding, &error)
        })?;
        let loopback = is_loopback(&url);
        if url.scheme() != "https" && !(loopback && url.scheme() == "http") {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                format!("{service} at {url} must use TLS, as identity tokens are secret"),
            )
            .hint("use an https URL; http is allowed only for loopback")
            .into());
        }
        let client = self.client(&url);
        let mut request = if ask.content.is_empty() {
            client.get(url.clone())
        } else {
            client
                .post(url.clone())
                .header("content-type", ask.media_type)
                .body(ask.content)
        };
        if let Some(shown) = &ask.bearer {
            let header = shown.header().ok_or_else(|| {
                Finding::error(
                    codes::trust::TOKEN_REFUSED,
                    format!("the credentials for {service} contain invalid characters"),
                )
            })?;
            request = request.header("authorization", header);
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        let silent = |error: reqwest::Error| {
            let finding = Finding::error(
                codes::trust::SERVICE_UNREACHABLE,
                format!("{service} at {host} is unreachable"),
            )
            .hint("nothing was stored; try again");
            // The URL may contain secrets, so the URL is removed from the error.
            Failure::caused(finding, &error.without_url())
        };
        let mut response = request.send().await.map_err(silent)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(silent)? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(Finding::error(
                    codes::trust::SERVICE_REFUSED,
                    format!("the response of {service} at {host} is larger than 1 MiB"),
                )
                .hint(format!("nothing was stored; {}", service.next_step()))
                .into());
            }
            body.extend_from_slice(&chunk);
        }
        let words = service_message(&body, ask.bearer.as_ref());
        if status.is_server_error() || status.as_u16() == 429 {
            return Err(Finding::error(
                codes::trust::SERVICE_UNREACHABLE,
                format!("{service} at {host} is overloaded or failing ({status}): {words}"),
            )
            .hint("nothing was stored; try again")
            .into());
        }
        Ok(ServiceResponse {
            service,
            host,
            status,
            body,
            words,
        })
    }
}

fn rejected(service: SigningService, host: &str, why: &str) -> Finding {
    Finding::error(
        codes::trust::SERVICE_REFUSED,
        format!("{service} at {host} rejects the request: {why}"),
    )
    .hint(format!("nothing was stored; {}", service.next_step()))
}

/// Returns the message of a service on one line, with control characters and credentials removed.
fn service_message(body: &[u8], shown: Option<&Credentials>) -> String {
    let text: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = match text.get("message").and_then(serde_json::Value::as_str) {
        Some(message) => message.to_owned(),
        None => String::from_utf8_lossy(body).into_owned(),
    };
    let shown: Vec<&str> = shown.map(Credentials::secret).into_iter().collect();
    without_secrets(&text, &shown)
        .chars()
        .map(|one| if one.is_control() { ' ' } else { one })
        .take(MAX_MESSAGE_CHARS)
        .collect()
}
