//! The names of the content service: Service, URL, paths, ClusterRoles, and the Secret with its
//! certificate authorities. With other values of the flags, the content service can have RukPak's
//! names.

use bundle_core::names::KubeName;
use bundle_core::object::is_dns_label;

use crate::config::args::ContentArgs;

/// The names of the content service.
#[derive(Debug, Clone)]
pub struct ContentSettings {
    /// Name of the Service of the content service.
    pub service: String,
    /// Base URL of all content URLs, without a slash at its end.
    pub url: String,
    /// Host of the base URL. The serving certificate contains this name.
    pub host: String,
    /// Paths of downloads and uploads.
    pub paths: ContentPaths,
    /// Secret of the system namespace for the trusted certificate authorities.
    pub ca_secret: Option<String>,
}

/// The paths of the content service.
#[derive(Debug, Clone)]
pub struct ContentPaths {
    /// Path of downloads.
    pub downloads: ContentPath,
    /// Path of uploads.
    pub uploads: ContentPath,
}

/// One path of the content service.
#[derive(Debug, Clone)]
pub struct ContentPath {
    /// Path before the name of a Bundle, with a slash at both ends.
    pub prefix: String,
    /// Name of the ClusterRole that grants the permission on this path for all Bundles.
    pub role: String,
}

/// A name or a path of the content service is invalid.
#[derive(Debug, thiserror::Error)]
#[error("--{flag} {given:?} {reason}")]
pub struct ContentSettingsError {
    /// Name of the flag, without dashes.
    flag: &'static str,
    /// The value of the flag.
    given: String,
    /// The reason why the value is invalid.
    reason: &'static str,
}

impl ContentSettings {
    /// Validates the flags. `admission` is the name of the admission Service.
    pub(super) fn from_args(
        given: ContentArgs,
        admission: &str,
        namespace: &str,
    ) -> Result<Self, ContentSettingsError> {
        let rejected = |flag, given: &str, reason| ContentSettingsError {
            flag,
            given: given.to_owned(),
            reason,
        };
        let service = given
            .content_service
            .unwrap_or_else(|| format!("{admission}-content"));
        if !is_dns_label(&service) {
            let reason = "is not a valid name of a Service";
            return Err(rejected("content-service", &service, reason));
        }
        let downloads = prefix("download-path", given.download_path)?;
        let uploads = prefix("upload-path", given.upload_path)?;
        if downloads == uploads {
            let reason = "is also the path of downloads";
            return Err(rejected("upload-path", &uploads, reason));
        }
        let ca_secret = given.ca_secret;
        let is_name = |name: &String| name.parse::<KubeName>().is_ok();
        if let Some(name) = ca_secret.as_ref().filter(|name| !is_name(name)) {
            let reason = "is not a valid name of a Secret";
            return Err(rejected("ca-secret", name, reason));
        }
        let default_url = || format!("https://{service}.{namespace}.svc");
        let url = given.content_url.unwrap_or_else(default_url);
        let Some(host) = host(&url) else {
            return Err(rejected("content-url", &url, "is not an https URL"));
        };
        let paths = ContentPaths {
            downloads: ContentPath {
                prefix: downloads,
                role: given.reader_role,
            },
            uploads: ContentPath {
                prefix: uploads,
                role: given.uploader_role,
            },
        };
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            host,
            service,
            paths,
            ca_secret,
        })
    }
}

/// Returns the host of an https URL without login, query and fragment.
fn host(url: &str) -> Option<String> {
    if url.contains(['?', '#', '@']) {
        return None;
    }
    let uri: http::Uri = url.parse().ok()?;
    let is_https = uri.scheme() == Some(&http::uri::Scheme::HTTPS);
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    (is_https && !host.is_empty()).then(|| host.to_owned())
}

/// Validates and returns the path before the name of a Bundle. The path consists of segments of
/// letters, digits, `-`, `_` and `.`, with a slash at both ends.
fn prefix(flag: &'static str, given: String) -> Result<String, ContentSettingsError> {
    let is_segment = |segment: &str| {
        let mut bytes = segment.bytes();
        !matches!(segment, "" | "." | "..")
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let inner = given
        .strip_prefix('/')
        .and_then(|rest| rest.strip_suffix('/'));
    if inner.is_some_and(|inner| inner.split('/').all(is_segment)) {
        return Ok(given);
    }
    Err(ContentSettingsError {
        flag,
        given,
        reason: "is not a path such as /bundles/",
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::config::args::Args;

    fn content(flags: &[&str]) -> Result<ContentSettings, ContentSettingsError> {
        let line = std::iter::once("bundle-webhook").chain(flags.iter().copied());
        let args = Args::try_parse_from(line).unwrap();
        ContentSettings::from_args(args.content, &args.service, &args.namespace)
    }

    #[test]
    fn names_of_rukpak_are_settings() {
        let settings = content(&[
            "--namespace",
            "rukpak-system",
            "--content-service",
            "core",
            "--ca-secret",
            "rukpak-ca",
        ])
        .unwrap();
        assert_eq!(settings.service, "core");
        assert_eq!(settings.url, "https://core.rukpak-system.svc");
        assert_eq!(settings.host, "core.rukpak-system.svc");
        assert_eq!(settings.ca_secret.as_deref(), Some("rukpak-ca"));
        assert_eq!(settings.paths.downloads.prefix, "/bundles/");
        assert_eq!(settings.paths.uploads.role, "bundle-uploader");
    }

    #[test]
    fn rejects_invalid_names_and_paths_of_the_content_service() {
        for (flags, message) in [
            (
                ["--content-service", "a.b"],
                r#"--content-service "a.b" is not a valid name of a Service"#,
            ),
            (
                ["--content-url", "http://a.example.com"],
                r#"--content-url "http://a.example.com" is not an https URL"#,
            ),
            (
                ["--ca-secret", "../tls"],
                r#"--ca-secret "../tls" is not a valid name of a Secret"#,
            ),
            (
                ["--download-path", "/a/../"],
                r#"--download-path "/a/../" is not a path such as /bundles/"#,
            ),
            (
                ["--download-path", "bundles"],
                r#"--download-path "bundles" is not a path such as /bundles/"#,
            ),
            (
                ["--upload-path", "/bundles/"],
                r#"--upload-path "/bundles/" is also the path of downloads"#,
            ),
        ] {
            assert_eq!(content(&flags).unwrap_err().to_string(), message);
        }
    }
}
