//! Identity token from a login at an issuer: in a browser on this machine, or on another device.

mod browser;
mod callback;
mod claims;
mod device;
mod discovery;
mod opener;
mod pkce;

use bundle_core::diagnostic::{Finding, codes};
use serde::Deserialize;

use super::http::{HttpClients, ServiceRequest, SigningService};
use super::secret::Secret;
use crate::failure::Outcome;
use crate::ui::{Ui, safe};

pub(crate) use opener::Opener;

/// The issuer, for messages.
const ISSUER: SigningService = SigningService::TokenIssuer;
/// Requested scopes: an identity token with the email address.
const SCOPE: &str = "openid email";

/// Kind of login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoginKind {
    /// Login in a browser on this machine. The opener starts the browser. Without an opener, the
    /// user opens the URL.
    Browser(Option<Opener>),
    /// Login on any device, with a code.
    Device,
}

/// Settings of a login.
pub(super) struct Login {
    /// Issuer.
    pub(super) issuer: String,
    /// Client ID.
    pub(super) client: String,
    /// Kind of login.
    pub(super) flow: LoginKind,
}

impl Login {
    /// Runs the login and returns the token.
    pub(super) async fn token(&self, http: &HttpClients, ui: &mut Ui) -> Outcome<Secret> {
        let endpoints = discovery::discover(http, &self.issuer).await?;
        match &self.flow {
            LoginKind::Browser(opener) => {
                Box::pin(browser::token(self, opener.as_ref(), &endpoints, http, ui)).await
            }
            LoginKind::Device => Box::pin(device::token(self, &endpoints, http, ui)).await,
        }
    }
}

/// Error response of a token endpoint (RFC 6749, 5.2).
#[derive(Deserialize)]
struct ErrorResponse {
    error: String,
    #[serde(default)]
    error_description: String,
}

impl ErrorResponse {
    /// Returns the error on one line.
    fn words(&self) -> String {
        match self.error_description.as_str() {
            "" => safe(&self.error),
            more => safe(&format!("{}: {more}", self.error)),
        }
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    id_token: Secret,
}

/// Returns a request with form fields.
fn form(url: &url::Url, fields: &[(&str, &str)]) -> ServiceRequest {
    let content = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish();
    ServiceRequest {
        service: ISSUER,
        url: Ok(url.clone()),
        media_type: "application/x-www-form-urlencoded",
        content: content.into_bytes(),
        bearer: None,
    }
}

/// Returns the finding for a failed login.
fn rejected(why: &str) -> Finding {
    Finding::error(
        codes::trust::LOGIN_FAILED,
        format!("the login failed: {why}"),
    )
    .hint("nothing was signed: try again, or pass a token (--identity-token)")
}

/// Returns the finding for an invalid response of the issuer.
fn unusable(why: &str) -> Finding {
    Finding::error(
        codes::trust::SERVICE_REFUSED,
        format!("the response of {ISSUER} is invalid: {why}"),
    )
    .hint("nothing was signed; check that --oidc-issuer is an OpenID Connect issuer that knows this client (--oidc-client-id)")
}
