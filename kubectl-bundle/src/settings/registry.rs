//! Registry settings: flags, and docker's and podman's files with credentials, certificates and
//! mirrors.

use std::path::Path;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Reference;

use super::{Environment, duration};
use crate::args::Registry;
use crate::failure::Outcome;
use crate::registry::{ConfigFiles, GivenLogin, LoginSecret, RegistrySettings};

/// Returns the settings for the registry flags.
pub(super) fn settings(registry: Registry, environment: &Environment) -> Outcome<RegistrySettings> {
    let secret = match registry.registry_username {
        Some(user) => Some(LoginSecret::Password { user }),
        None => registry.registry_token_stdin.then_some(LoginSecret::Token),
    };
    Ok(RegistrySettings {
        ca_files: registry.ca,
        host_folders: environment.certificate_folders(),
        client_certificate: registry.registry_cert.zip(registry.registry_key),
        plain_http: registry.plain_http.into_iter().collect(),
        login: secret.map(|secret| GivenLogin {
            registry: None,
            secret,
        }),
        credentials: match registry.authfile {
            Some(file) => ConfigFiles::Explicit(file),
            None => ConfigFiles::Defaults(environment.credential_files()),
        },
        mirrors: match registry.registries_conf {
            Some(file) => ConfigFiles::Explicit(file),
            None => environment.mirror_files(),
        },
        deadline: duration::limit("--registry-timeout", &registry.registry_timeout)?,
    })
}

/// Parses a reference.
pub(super) fn reference(text: &str) -> Outcome<Reference> {
    let read: Result<Reference, Finding> = text.parse();
    // An existing path, or a text that can only be a path, is not looked up in a registry.
    if let Some(finding) = path_instead(text, read.as_ref().err()) {
        return Err(finding.into());
    }
    Ok(read?)
}

/// Returns the finding for a path in place of a reference.
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

/// Parses a reference, with a hint for a file, which another flag accepts.
pub(super) fn reference_or_file(text: &str) -> Outcome<Reference> {
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
