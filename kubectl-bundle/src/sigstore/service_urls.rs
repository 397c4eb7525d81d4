//! URLs of the services. Flags override the signing config. The default is the public instance.

use bundle_core::diagnostic::{Finding, codes};
use bundle_trust::keyless::{LogVersion, SigningConfig};
use jiff::Timestamp;
use url::Url;

use super::Settings;
use super::root::SelectedRoot;
use crate::failure::{self, Failure, Outcome};
use crate::system::files;

const FULCIO: &str = "https://fulcio.sigstore.dev";
const ISSUER: &str = "https://oauth2.sigstore.dev/auth";
const REKOR: &str = "https://rekor.sigstore.dev";

/// URLs of the services.
#[derive(Debug)]
pub(super) struct ServiceUrls {
    pub(super) fulcio: Url,
    pub(super) logs: Vec<(Url, LogVersion)>,
    pub(super) timestamps: Vec<Url>,
    /// Issuer for logins; `None` for a private certificate authority if no issuer is given.
    pub(super) issuer: Option<String>,
    /// `true` if all URLs are defaults of the public instance.
    pub(super) public: bool,
}

impl ServiceUrls {
    /// Returns `true` if a public service would publish the identity of the signer.
    pub(super) fn is_public_log(&self) -> bool {
        let logs = self.logs.iter().map(|(log, _)| log);
        logs.chain([&self.fulcio]).any(is_public_service)
    }
}

impl ServiceUrls {
    /// Returns the URLs. If no flag sets a signing config, the certificate authority or the log,
    /// the signing config that belongs to the trust root is used. The services of the public
    /// instance are used only with the trust root of the public instance.
    pub(super) fn read(settings: &Settings, root: &SelectedRoot, now: Timestamp) -> Outcome<Self> {
        let located = |finding: Finding| match &settings.config {
            Some(path) => failure::in_file(finding, path),
            None => finding,
        };
        let named =
            settings.fulcio.is_some() || settings.rekor.is_some() || settings.timestamps.is_some();
        let config = match (&settings.config, &root.signing_config) {
            (Some(path), _) => Some(SigningConfig::parse(&files::read(path)?)),
            (None, Some(text)) if settings.fulcio.is_none() && settings.rekor.is_none() => {
                Some(SigningConfig::parse(text))
            }
            (None, _) => None,
        };
        let config = config.transpose().map_err(located)?;
        let config = config.as_ref();
        if config.is_none() {
            reject_unintended_public_services(settings, root)?;
        }
        let fulcio = match (&settings.fulcio, config) {
            (Some(url), _) => url,
            (None, Some(config)) => config.authority(now).map_err(located)?,
            (None, None) => FULCIO,
        };
        // A token for the public certificate authority must not be sent to another certificate
        // authority. Therefore another certificate authority has no default issuer.
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
                    "the URL of Rekor v2 is unknown",
                )
                .hint(
                    "the logs of Rekor v2 change every year: set --rekor-url, or a \
                 --signing-config that lists a log",
                )
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
                "Rekor v2 returns no signing time, and no timestamp authority is set",
            )
            .hint("set --timestamp-server-url, or add a timestamp authority to the signing config")
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

/// Returns `true` for a service of Sigstore's public instance, which publishes its entries.
fn is_public_service(service: &Url) -> bool {
    let host = service.host_str().unwrap_or_default();
    ["sigstore.dev", "sigstage.dev"].iter().any(|domain| {
        host.strip_suffix(domain)
            .is_some_and(|before| before.is_empty() || before.ends_with('.'))
    })
}

/// Returns an error if a public service would be used unintentionally. If a flag sets only one
/// service, or the trust root is private, flags must set the other services too. Otherwise an
/// identity token or an entry would be sent to the public instance.
fn reject_unintended_public_services(settings: &Settings, root: &SelectedRoot) -> Outcome {
    let missing = match (&settings.fulcio, &settings.rekor) {
        (Some(_), Some(_)) => return Ok(()),
        (None, None) if is_public(&root.text) => return Ok(()),
        (Some(_), None) => {
            "the transparency log is not set: the public log is not used with another certificate authority"
        }
        (None, Some(_)) => {
            "the certificate authority is not set: the public authority is not used with another transparency log"
        }
        (None, None) => {
            "the signing services are not set: the public services are not used with another trust root"
        }
    };
    Err(Finding::error(codes::usage::BAD_ARGUMENT, missing)
        .hint("set --fulcio-url and --rekor-url, or --signing-config")
        .into())
}

/// Returns `true` if this is a trust root of the public instance.
fn is_public(root: &str) -> bool {
    let root: serde_json::Value = serde_json::from_str(root).unwrap_or_default();
    let authorities = root["certificateAuthorities"].as_array();
    authorities.into_iter().flatten().any(|authority| {
        let url = authority["uri"].as_str().unwrap_or_default();
        url.trim_end_matches('/') == FULCIO
    })
}

fn parse(text: &str) -> Outcome<Url> {
    Url::parse(text).map_err(|error| {
        let finding = Finding::error(
            codes::usage::BAD_ARGUMENT,
            format!("`{text}` is not a valid URL of a service"),
        );
        Failure::caused(finding.hint("write https://HOST"), &error)
    })
}

/// Returns a URL with a trailing slash.
fn folder(text: &str) -> Outcome<Url> {
    parse(&format!("{}/", text.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use bundle_trust::root::Root;

    use super::*;
    use crate::sigstore::TokenSource;
    use crate::sigstore::root::{RootOrigin, TrustRootSettings};

    const OWN: &str = "https://sigstore.example.com";

    fn read(
        fulcio: Option<&str>,
        rekor: Option<&str>,
        root: &SelectedRoot,
    ) -> Outcome<ServiceUrls> {
        let settings = Settings {
            token: TokenSource::Missing,
            audience: "sigstore".to_owned(),
            issuer: None,
            config: None,
            fulcio: fulcio.map(str::to_owned),
            rekor: rekor.map(str::to_owned),
            rekor_version: None,
            timestamps: None,
            root: TrustRootSettings {
                file: None,
                offline: true,
                folders: None,
                ca_files: Vec::new(),
            },
            ca_files: Vec::new(),
        };
        ServiceUrls::read(&settings, root, Timestamp::now())
    }

    fn root(text: &str, signing_config: Option<Vec<u8>>) -> SelectedRoot {
        SelectedRoot {
            text: text.to_owned(),
            root: Root::public().unwrap(),
            origin: RootOrigin::BuiltIn,
            signing_config,
        }
    }

    /// Returns a signing config like the signing config of the public instance.
    fn config() -> Vec<u8> {
        let service = |url: &str| {
            serde_json::json!([{
                "url": url, "majorApiVersion": 1, "operator": "sigstore.dev",
                "validFor": {"start": "2024-01-01T00:00:00Z"},
            }])
        };
        let config = serde_json::json!({
            "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
            "caUrls": service(FULCIO),
            "oidcUrls": service(ISSUER),
            "rekorTlogUrls": service(REKOR),
            "rekorTlogConfig": {"selector": "ANY"},
            "tsaUrls": [],
            "tsaConfig": {"selector": "ANY"},
        });
        config.to_string().into_bytes()
    }

    #[test]
    fn private_services_are_not_completed_with_public_ones() {
        let public = Root::public_text();
        for config in [None, Some(config())] {
            let root = root(public, config);
            read(Some(OWN), None, &root).unwrap_err();
            read(None, Some(OWN), &root).unwrap_err();
            let own = read(Some(OWN), Some(OWN), &root).unwrap();
            assert_eq!(own.issuer, None);
            assert!(!own.is_public_log());
            let theirs = read(None, None, &root).unwrap();
            assert_eq!(theirs.issuer.as_deref(), Some(ISSUER));
            assert!(theirs.is_public_log());
        }
        let private = root("{}", None);
        read(None, None, &private).unwrap_err();
        read(Some(OWN), Some(OWN), &private).unwrap();
    }

    #[test]
    fn public_trust_root_is_recognized_and_no_other() {
        assert!(is_public(Root::public_text()));
        let other = Root::public_text().replace("fulcio.sigstore.dev", "fulcio.example.com");
        for root in [&other, "{}", "", "[]", r#"{"certificateAuthorities":[{}]}"#] {
            assert!(!is_public(root), "{root}");
        }
    }
}
