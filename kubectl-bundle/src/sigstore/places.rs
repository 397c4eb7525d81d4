//! Where the services are: flags before the signing config, and the public instance where neither says anything.
//! Not here: asking them.

use bundle_core::diagnostic::{Finding, codes};
use bundle_trust::keyless::{LogVersion, SigningConfig};
use jiff::Timestamp;
use url::Url;

use super::Settings;
use crate::failure::{self, Failure, Outcome};
use crate::files;

const FULCIO: &str = "https://fulcio.sigstore.dev";
const ISSUER: &str = "https://oauth2.sigstore.dev/auth";
const REKOR: &str = "https://rekor.sigstore.dev";

/// The addresses of the services.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) fulcio: Url,
    pub(super) logs: Vec<(Url, LogVersion)>,
    pub(super) timestamps: Vec<Url>,
    /// The issuer at which people log in; not known for a certificate authority of one's own unless it is said.
    pub(super) issuer: Option<String>,
    /// Whether all of them are those of the public instance.
    pub(super) public: bool,
}

impl Places {
    /// `instance` is the signing config of the Sigstore instance, which counts where nothing is said.
    pub(super) fn read(
        settings: &Settings,
        instance: Option<&[u8]>,
        now: Timestamp,
    ) -> Outcome<Self> {
        let located = |finding: Finding| match &settings.config {
            Some(path) => failure::in_file(finding, path),
            None => finding,
        };
        let named =
            settings.fulcio.is_some() || settings.rekor.is_some() || settings.timestamps.is_some();
        let config = match (&settings.config, instance) {
            (Some(path), _) => Some(SigningConfig::parse(&files::read(path)?)),
            (None, Some(text)) if !named => Some(SigningConfig::parse(text)),
            (None, _) => None,
        };
        let config = config.transpose().map_err(located)?;
        let config = config.as_ref();
        let fulcio = match (&settings.fulcio, config) {
            (Some(url), _) => url,
            (None, Some(config)) => config.authority(now).map_err(located)?,
            (None, None) => FULCIO,
        };
        // A token that the public authority takes is not for another one to see.
        let issuer = match (&settings.issuer, config) {
            (Some(url), _) => Some(url.as_str()),
            (None, Some(config)) => config.issuer(now).map_err(located)?,
            (None, None) => settings.fulcio.is_none().then_some(ISSUER),
        };
        let logs = match (&settings.rekor, config) {
            (Some(url), _) => {
                vec![(
                    url.as_str(),
                    settings.rekor_version.unwrap_or(LogVersion::One),
                )]
            }
            (None, Some(config)) => {
                let versions: &[LogVersion] = match &settings.rekor_version {
                    Some(one) => std::slice::from_ref(one),
                    None => &[LogVersion::One, LogVersion::Two],
                };
                config.logs(versions, now).map_err(located)?
            }
            (None, None) if settings.rekor_version == Some(LogVersion::Two) => {
                return Err(Finding::error(
                    codes::usage::BAD_ARGUMENT,
                    "where Rekor v2 is, is not known",
                )
                .hint("its logs change from year to year: name one with --rekor-url, or a --signing-config that does")
                .into());
            }
            (None, None) => vec![(REKOR, LogVersion::One)],
        };
        let timestamps = match (&settings.timestamps, config) {
            (Some(url), _) => vec![url.as_str()],
            (None, Some(config)) => config.timestamps(now).map_err(located)?,
            (None, None) => Vec::new(),
        };
        if timestamps.is_empty() && logs.iter().any(|(_, version)| *version == LogVersion::Two) {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                "Rekor v2 does not say when a signature was made, and there is no timestamp authority that does",
            )
            .hint("name one with --timestamp-server-url, or in the signing config")
            .into());
        }
        Ok(Self {
            fulcio: folder(fulcio)?,
            issuer: issuer.map(str::to_owned),
            logs: logs
                .into_iter()
                .map(|(url, version)| Ok((folder(url)?, version)))
                .collect::<Outcome<_>>()?,
            timestamps: timestamps.into_iter().map(parse).collect::<Outcome<_>>()?,
            public: config.is_none() && !named,
        })
    }
}

fn parse(text: &str) -> Outcome<Url> {
    Url::parse(text).map_err(|error| {
        let finding = Finding::error(
            codes::usage::BAD_ARGUMENT,
            format!("`{text}` is not the address of a service"),
        );
        Failure::caused(finding.hint("write https://HOST"), &error)
    })
}

/// An address to which paths are added.
fn folder(text: &str) -> Outcome<Url> {
    parse(&format!("{}/", text.trim_end_matches('/')))
}
