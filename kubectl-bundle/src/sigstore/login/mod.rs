//! An identity token for a person, who logs in at an issuer: in a browser on this machine, or on another device.

mod browser;
mod callback;
mod claims;
mod device;
mod discovery;
mod opener;
mod pkce;

use bundle_core::diagnostic::{Finding, codes};
use serde::Deserialize;

use super::http::{Ask, Http};
use super::secret::Secret;
use crate::failure::Outcome;
use crate::ui::{Ui, safe};

pub(crate) use opener::Opener;

/// Who issues tokens, in a person's words.
const ISSUER: &str = "the issuer of identity tokens";
/// What is asked of an issuer: a token, and whose address it is.
const SCOPE: &str = "openid email";

/// How somebody logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flow {
    /// In a browser on this machine, which this program opens; without it somebody has to open it.
    Browser(Option<Opener>),
    /// On any device, with a code.
    Device,
}

/// Where and how to log in.
pub(super) struct Login {
    /// The issuer.
    pub(super) issuer: String,
    /// As which application.
    pub(super) client: String,
    /// How.
    pub(super) flow: Flow,
}

impl Login {
    /// The token, once somebody has logged in.
    pub(super) async fn token(&self, http: &Http, ui: &mut Ui) -> Outcome<Secret> {
        let endpoints = discovery::discover(http, &self.issuer).await?;
        match &self.flow {
            Flow::Browser(opener) => {
                Box::pin(browser::token(self, opener.as_ref(), &endpoints, http, ui)).await
            }
            Flow::Device => Box::pin(device::token(self, &endpoints, http, ui)).await,
        }
    }
}

/// What an issuer answers instead of a token (RFC 6749, 5.2).
#[derive(Deserialize)]
struct Refusal {
    error: String,
    #[serde(default)]
    error_description: String,
}

impl Refusal {
    /// In one line.
    fn words(&self) -> String {
        match self.error_description.as_str() {
            "" => safe(&self.error),
            more => safe(&format!("{}: {more}", self.error)),
        }
    }
}

#[derive(Deserialize)]
struct Granted {
    id_token: Secret,
}

/// A question in the form that issuers take, which only they can read.
fn form(url: &url::Url, fields: &[(&str, &str)]) -> Ask {
    let content = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish();
    Ask {
        who: ISSUER,
        url: Ok(url.clone()),
        media_type: "application/x-www-form-urlencoded",
        content: content.into_bytes(),
        bearer: None,
    }
}

/// The login did not come about.
fn refused(why: &str) -> Finding {
    Finding::error(
        codes::trust::LOGIN_FAILED,
        format!("nobody logged in: {why}"),
    )
    .hint("nothing was signed: try again, or give a token (--identity-token)")
}

/// The issuer's answer is none.
fn unusable(why: &str) -> Finding {
    Finding::error(
        codes::trust::SERVICE_REFUSED,
        format!("the answer of {ISSUER} cannot be used: {why}"),
    )
    .hint("nothing was signed; is --oidc-issuer the address of an OpenID Connect issuer that knows this client (--oidc-client-id)?")
}
