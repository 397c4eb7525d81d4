//! The services of a sigstore that signing by certificate needs: where they are, who asks, and what they are asked.

mod http;
mod login;
mod places;
pub(crate) mod root;
mod secret;
mod token;

use std::path::PathBuf;
use std::sync::Arc;

use bundle_trust::keyless::{
    Ephemeral, Evidence, LogVersion, Signed, Token, What, check_timestamp,
};
use bundle_trust::root::Root;
use jiff::Timestamp;

use crate::failure::Outcome;
use crate::ui::Ui;

use http::{Ask, Http};
use places::Places;
use root::Origin;
use token::Wanted;

pub(crate) use login::{Flow, Opener};
pub(crate) use token::Source as TokenSource;

/// What signing by certificate needs to know.
pub(crate) struct Settings {
    /// Where the identity token comes from.
    pub(crate) token: TokenSource,
    /// Who it has to be for: the application as which somebody logs in.
    pub(crate) audience: String,
    /// Where somebody logs in.
    pub(crate) issuer: Option<String>,
    /// A file that says where the services are.
    pub(crate) config: Option<PathBuf>,
    /// The certificate authority.
    pub(crate) fulcio: Option<String>,
    /// The transparency log.
    pub(crate) rekor: Option<String>,
    /// Which version that log is, or which is to be chosen.
    pub(crate) rekor_version: Option<LogVersion>,
    /// The timestamp authority.
    pub(crate) timestamps: Option<String>,
    /// Under which root what is made has to hold.
    pub(crate) root: root::WantedRoot,
    /// Authorities to trust beside the system's.
    pub(crate) ca_files: Vec<PathBuf>,
}

/// Services, and a token to show to them.
pub(crate) struct Services {
    http: Http,
    places: Places,
    token: Token,
    /// The root under which what they make holds; none is known for services of one's own unless it is given.
    pub(crate) root: Option<Arc<Root>>,
}

impl Services {
    /// Reads the files, and gets the token. Nothing is made yet.
    pub(crate) async fn open(settings: Settings, ui: &mut Ui) -> Outcome<Self> {
        let now = Timestamp::now();
        let chosen = settings.root.open(ui).await?;
        let places = Places::read(&settings, &chosen, now)?;
        if places.are_seen_by_all() && matches!(settings.token, TokenSource::Login(_)) {
            ui.note(
                "whoever logs in now is named in public logs for good, with the digest that is signed"
                    .to_owned(),
            );
        }
        let root = match chosen.origin {
            Origin::BuiltIn if !places.public => None,
            _ => Some(chosen.root),
        };
        let http = Http::new(&settings.ca_files)?;
        let wanted = Wanted {
            audience: &settings.audience,
            issuer: places.issuer.as_deref(),
        };
        let text = settings.token.get(&http, ui, &wanted).await?;
        // Somebody may have taken their time.
        let now = Timestamp::now();
        Ok(Self {
            token: Token::parse(text.expose(), &settings.audience, now.as_second())?,
            http,
            places,
            root,
        })
    }

    /// A signature by a key that lives no longer than this call, with a certificate for whom the token names.
    pub(crate) async fn sign(&self, what: What) -> Outcome<Signed> {
        let key = Ephemeral::new()?;
        let answer = self
            .http
            .send(Ask {
                who: "the certificate authority",
                url: self.places.fulcio.join("api/v2/signingCert"),
                media_type: "application/json",
                content: key.certificate_request(&self.token)?,
                bearer: None,
            })
            .await?;
        Ok(key.sign(what, &answer)?)
    }

    /// The evidence for a signature: timestamps where there is an authority for them, and its entries in logs.
    pub(crate) async fn evidence(&self, signed: &Signed) -> Outcome<Evidence> {
        let mut evidence = Evidence::default();
        for place in &self.places.timestamps {
            let nonce = u64::try_from(Timestamp::now().as_nanosecond() & 0x3fff_ffff_ffff_ffff)
                .unwrap_or_default();
            let answer = self
                .http
                .send(Ask {
                    who: "the timestamp authority",
                    url: Ok(place.clone()),
                    media_type: "application/timestamp-query",
                    content: signed.timestamp_request(nonce),
                    bearer: None,
                })
                .await?;
            check_timestamp(&answer)?;
            evidence.timestamps.push(answer);
        }
        // The logs last: what is entered there stays.
        for (place, version) in &self.places.logs {
            let answer = self
                .http
                .send(Ask {
                    who: "the transparency log",
                    url: place.join(version.path()),
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
