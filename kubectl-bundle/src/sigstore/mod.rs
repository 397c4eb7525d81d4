//! Sigstore services for signing with a certificate: their URLs, the identity token, and the
//! requests.

mod http;
mod login;
pub(crate) mod root;
mod secret;
mod service_urls;
mod token;

use std::path::PathBuf;
use std::sync::Arc;

use bundle_trust::keyless::{
    Ephemeral, Evidence, KeylessSignature, LogVersion, SigningInput, Token, check_timestamp,
};
use bundle_trust::root::Root;
use jiff::Timestamp;

use crate::failure::Outcome;
use crate::ui::Ui;

use http::{HttpClients, ServiceRequest, SigningService};
use root::RootOrigin;
use service_urls::ServiceUrls;
use token::TokenRequirements;

pub(crate) use login::{LoginKind, Opener};
pub(crate) use token::TokenSource;

/// Settings for signing with a certificate.
pub(crate) struct Settings {
    /// Source of the identity token.
    pub(crate) token: TokenSource,
    /// Audience of the token: the client ID of the login.
    pub(crate) audience: String,
    /// Issuer for the login. `None` means the issuer in the signing config or of the public
    /// instance.
    pub(crate) issuer: Option<String>,
    /// File of the signing config.
    pub(crate) config: Option<PathBuf>,
    /// URL of the certificate authority.
    pub(crate) fulcio: Option<String>,
    /// URL of the transparency log.
    pub(crate) rekor: Option<String>,
    /// Version of the log at `rekor`, or of the log to select from the signing config.
    pub(crate) rekor_version: Option<LogVersion>,
    /// URL of the timestamp authority.
    pub(crate) timestamps: Option<String>,
    /// Trust root under which the signature must verify.
    pub(crate) root: root::TrustRootSettings,
    /// Additional certificate authorities.
    pub(crate) ca_files: Vec<PathBuf>,
}

/// Services and the identity token.
pub(crate) struct Services {
    http: HttpClients,
    urls: ServiceUrls,
    token: Token,
    /// Trust root for the result; `None` for private services if no trust root is given.
    pub(crate) root: Option<Arc<Root>>,
}

impl Services {
    /// Reads the files and gets the token. No request for a certificate is sent yet.
    pub(crate) async fn open(settings: Settings, ui: &mut Ui) -> Outcome<Self> {
        let now = Timestamp::now();
        let chosen = settings.root.open(ui).await?;
        let urls = ServiceUrls::read(&settings, &chosen, now)?;
        if urls.is_public_log() && matches!(settings.token, TokenSource::Login(_)) {
            ui.note(
                "the identity of the signer and the signed digest will be public permanently in transparency logs"
                    .to_owned(),
            );
        }
        let root = match chosen.origin {
            RootOrigin::BuiltIn if !urls.public => None,
            _ => Some(chosen.root),
        };
        let http = HttpClients::new(&settings.ca_files)?;
        let wanted = TokenRequirements {
            audience: &settings.audience,
            issuer: urls.issuer.as_deref(),
        };
        let text = settings.token.get(&http, ui, &wanted).await?;
        // The login may have lasted for minutes, so the current time is read again.
        let now = Timestamp::now();
        Ok(Self {
            token: Token::parse(text.expose(), &settings.audience, now.as_second())?,
            http,
            urls,
            root,
        })
    }

    /// Signs with an ephemeral key and a certificate for the identity of the token.
    pub(crate) async fn sign(&self, what: SigningInput) -> Outcome<KeylessSignature> {
        let key = Ephemeral::new()?;
        let answer = self
            .http
            .send(ServiceRequest {
                service: SigningService::CertificateAuthority,
                url: self.urls.fulcio.join("api/v2/signingCert"),
                media_type: "application/json",
                content: key.certificate_request(&self.token)?,
                bearer: None,
            })
            .await?;
        Ok(key.sign(what, &answer)?)
    }

    /// Returns the evidence for a signature: log entries, and timestamps if a timestamp authority
    /// is configured.
    pub(crate) async fn evidence(&self, signed: &KeylessSignature) -> Outcome<Evidence> {
        let mut evidence = Evidence::default();
        for url in &self.urls.timestamps {
            let nonce = u64::try_from(Timestamp::now().as_nanosecond() & 0x3fff_ffff_ffff_ffff)
                .unwrap_or_default();
            let answer = self
                .http
                .send(ServiceRequest {
                    service: SigningService::TimestampAuthority,
                    url: Ok(url.clone()),
                    media_type: "application/timestamp-query",
                    content: signed.timestamp_request(nonce),
                    bearer: None,
                })
                .await?;
            check_timestamp(&answer)?;
            evidence.timestamps.push(answer);
        }
        // Log entries are permanent, so they are created last.
        for (url, version) in &self.urls.logs {
            let answer = self
                .http
                .send(ServiceRequest {
                    service: SigningService::TransparencyLog,
                    url: url.join(version.path()),
                    media_type: "application/json",
                    content: signed.entry_request(*version),
                    bearer: None,
                })
                .await?;
            evidence.entries.push(signed.entered(*version, &answer)?);
        }
        Ok(evidence)
    }
}
