//! Flags for registries, and docker's and podman's files with credentials, certificates and
//! mirrors.

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Reference;
use clap::Args;

use super::{Environment, duration};
use crate::failure::Outcome;
use crate::registry::{ConfigFiles, ExplicitLogin, LoginSecret, RegistrySettings};

/// Registry flags. Credentials default to docker's and podman's files and helpers.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Registry options")]
pub(crate) struct RegistryFlags {
    /// Also trust the certificate authorities in this PEM file or folder (or a folder like docker's
    /// certs.d); may be repeated
    #[arg(
        long = "registry-ca",
        visible_alias = "ca-file",
        value_name = "FILE|DIR"
    )]
    pub(crate) ca: Vec<PathBuf>,
    /// Client certificate (PEM) for registries that require a client certificate
    #[arg(long, value_name = "FILE", requires = "registry_key")]
    pub(crate) registry_cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "registry_cert")]
    pub(crate) registry_key: Option<PathBuf>,
    /// User for the registry of the reference, with --registry-password-stdin
    #[arg(
        long,
        visible_alias = "username",
        value_name = "USER",
        requires = "registry_password_stdin"
    )]
    pub(crate) registry_username: Option<String>,
    /// Read the password for the registry from the first line of standard input
    #[arg(long, requires = "registry_username")]
    pub(crate) registry_password_stdin: bool,
    /// Read a bearer token for the registry of the reference from the first line of standard input
    #[arg(long, conflicts_with = "registry_username")]
    pub(crate) registry_token_stdin: bool,
    /// Read credentials only from this file [default: $REGISTRY_AUTH_FILE, docker's and podman's
    /// files]
    #[arg(long, value_name = "FILE")]
    pub(crate) authfile: Option<PathBuf>,
    /// Read mirrors and blocked registries only from this file [default:
    /// $CONTAINERS_REGISTRIES_CONF, podman's files]
    #[arg(long, value_name = "FILE")]
    pub(crate) registries_conf: Option<PathBuf>,
    /// Use plain HTTP for this HOST[:PORT]; may be repeated. Detected automatically for loopback
    /// addresses
    #[arg(long, value_name = "HOST")]
    pub(crate) plain_http: Vec<String>,
    /// Timeout of registry requests, such as 30s or 5m
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) registry_timeout: String,
}

impl RegistryFlags {
    /// Returns the settings for the registry flags.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<RegistrySettings> {
        let secret = match self.registry_username {
            Some(user) => Some(LoginSecret::Password { user }),
            None => self.registry_token_stdin.then_some(LoginSecret::Token),
        };
        Ok(RegistrySettings {
            ca_files: self.ca,
            host_folders: environment.certificate_folders(),
            client_certificate: self.registry_cert.zip(self.registry_key),
            plain_http: self.plain_http.into_iter().collect(),
            login: secret.map(|secret| ExplicitLogin {
                registry: None,
                secret,
            }),
            credentials: match self.authfile {
                Some(file) => ConfigFiles::Explicit(file),
                None => ConfigFiles::Defaults(environment.credential_files()),
            },
            mirrors: match self.registries_conf {
                Some(file) => ConfigFiles::Explicit(file),
                None => environment.mirror_files(),
            },
            deadline: duration::limit("--registry-timeout", &self.registry_timeout)?,
        })
    }
}

/// Parses a reference.
pub(crate) fn reference(text: &str) -> Outcome<Reference> {
    let read: Result<Reference, Finding> = text.parse();
    // If the text is an existing path, or has the form of a path, it is not used as a reference.
    if let Some(finding) = path_instead(text, read.as_ref().err()) {
        return Err(finding.into());
    }
    Ok(read?)
}

/// Returns the finding for a path that was passed instead of a reference.
fn path_instead(text: &str, error: Option<&Finding>) -> Option<Finding> {
    let exists = Path::new(text).exists();
    let is_meant = exists || text.starts_with(['.', '/', '~']);
    if !is_meant || (error.is_none() && !exists) {
        return None;
    }
    let finding = Finding::error(
        codes::reference::UNREADABLE,
        format!("`{text}` is a path on this machine, but a reference in a registry is required"),
    );
    Some(if exists {
        finding.hint(format!(
            "push it first: kubectl bundle push {text} REGISTRY/REPOSITORY:TAG"
        ))
    } else {
        finding.hint("write REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:…, such as registry.example.com/team/web:1.4.0")
    })
}

/// Parses a reference. The error for a file has a hint about the flag that accepts files.
pub(crate) fn reference_or_file(text: &str) -> Outcome<Reference> {
    let read: Result<Reference, Finding> = text.parse();
    let path = Path::new(text);
    Ok(read.map_err(|finding| {
        if path.is_dir() {
            path_instead(text, Some(&finding)).unwrap_or(finding)
        } else if path.exists() {
            finding.hint(format!(
                "this is a file; add the path of its signature: --bundle {text}.sigstore.json"
            ))
        } else {
            finding
        }
    })?)
}
