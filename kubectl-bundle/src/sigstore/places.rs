//! Where the services are: flags before the signing config, and the public instance where neither says anything.
//! Not here: asking them.

use bundle_core::diagnostic::{Finding, codes};
use jiff::Timestamp;
use serde::Deserialize;
use url::Url;

use super::Settings;
use crate::failure::{self, Failure, Outcome};
use crate::files;

const FULCIO: &str = "https://fulcio.sigstore.dev";
const REKOR: &str = "https://rekor.sigstore.dev";
/// What a signing config calls itself, before its version.
const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.signingconfig.v0.2";

/// The addresses of the services.
pub(super) struct Places {
    pub(super) fulcio: Url,
    pub(super) rekor: Url,
    pub(super) timestamps: Option<Url>,
    /// Whether all of them are those of the public instance.
    pub(super) public: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    media_type: String,
    #[serde(default)]
    ca_urls: Vec<Service>,
    #[serde(default)]
    rekor_tlog_urls: Vec<Service>,
    #[serde(default)]
    tsa_urls: Vec<Service>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Service {
    url: String,
    major_api_version: u32,
    #[serde(default)]
    valid_for: Window,
}

#[derive(Default, Deserialize)]
struct Window {
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

impl Places {
    pub(super) fn read(settings: &Settings, now: Timestamp) -> Outcome<Self> {
        let config = match &settings.config {
            None => None,
            Some(path) => {
                let config: Config =
                    serde_json::from_slice(&files::read(path)?).map_err(|error| {
                        let finding = unusable("it is not the JSON of one");
                        Failure::caused(failure::in_file(finding, path), &error)
                    })?;
                if !config.media_type.starts_with(MEDIA_TYPE) {
                    let finding = unusable("its media type is another one than v0.2");
                    return Err(failure::in_file(finding, path).into());
                }
                Some(config)
            }
        };
        let public = config.is_none()
            && settings.fulcio.is_none()
            && settings.rekor.is_none()
            && settings.timestamps.is_none();
        let chosen = |services: fn(&Config) -> &[Service], what| {
            config
                .as_ref()
                .map(|config| choose(services(config), what, now))
                .transpose()
        };
        let fulcio = match &settings.fulcio {
            Some(url) => url.clone(),
            None => chosen(|config| &config.ca_urls, "certificate authority")?
                .unwrap_or_else(|| FULCIO.to_owned()),
        };
        let rekor = match &settings.rekor {
            Some(url) => url.clone(),
            None => chosen(
                |config| &config.rekor_tlog_urls,
                "transparency log (Rekor v1)",
            )?
            .unwrap_or_else(|| REKOR.to_owned()),
        };
        let listed = config
            .as_ref()
            .is_some_and(|config| !config.tsa_urls.is_empty());
        let timestamps = match &settings.timestamps {
            Some(url) => Some(url.clone()),
            None if listed => chosen(|config| &config.tsa_urls, "timestamp authority")?,
            None => None,
        };
        Ok(Self {
            fulcio: folder(&fulcio)?,
            rekor: folder(&rekor)?,
            timestamps: timestamps.as_deref().map(parse).transpose()?,
            public,
        })
    }
}

/// The first of them that is in use and speaks the version that we speak.
fn choose(services: &[Service], what: &str, now: Timestamp) -> Outcome<String> {
    services
        .iter()
        .find(|service| {
            let Window { start, end } = &service.valid_for;
            service.major_api_version == 1
                && start.is_none_or(|start| start <= now)
                && end.is_none_or(|end| now < end)
        })
        .map(|service| service.url.clone())
        .ok_or_else(|| unusable(&format!("it names no {what} that is in use")).into())
}

fn unusable(why: &str) -> Finding {
    Finding::error(
        codes::usage::BAD_ARGUMENT,
        format!("the signing config cannot be used: {why}"),
    )
    .hint("`cosign signing-config create` makes one; the addresses can be given as flags as well")
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
