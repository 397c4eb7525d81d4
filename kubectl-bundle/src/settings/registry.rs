//! How registries are spoken to: flags, and the files in which docker and podman keep credentials, certificates and mirrors.

use std::path::Path;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Reference;

use super::{Environment, duration};
use crate::args::Registry;
use crate::failure::Outcome;
use crate::registry::{Files, GivenLogin, RegistrySettings, Secret};

/// Reads the registry flags.
pub(super) fn settings(registry: Registry, environment: &Environment) -> Outcome<RegistrySettings> {
    let secret = match registry.registry_username {
        Some(user) => Some(Secret::Password { user }),
        None => registry.registry_token_stdin.then_some(Secret::Token),
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
            Some(file) => Files::Named(file),
            None => Files::Usual(environment.credential_files()),
        },
        mirrors: match registry.registries_conf {
            Some(file) => Files::Named(file),
            None => environment.mirror_files(),
        },
        deadline: duration::limit("--registry-timeout", &registry.registry_timeout)?,
    })
}

/// Reads a reference.
pub(super) fn reference(text: &str) -> Outcome<Reference> {
    let read: Result<Reference, Finding> = text.parse();
    // What exists here, or can only be a path, is not looked for in a registry.
    if let Some(finding) = path_instead(text, read.as_ref().err()) {
        return Err(finding.into());
    }
    Ok(read?)
}

/// The finding for a path that stands where a reference belongs.
fn path_instead(text: &str, error: Option<&Finding>) -> Option<Finding> {
    let exists = Path::new(text).exists();
    let is_meant = exists || text.starts_with(['.', '/', '~']);
    if !is_meant || (error.is_none() && !exists) {
        return None;
    }
    let finding = Finding::error(
        codes::reference::UNREADABLE,
        format!("`{text}` is a path on this machine, and a reference to a registry is needed"),
    );
    Some(if exists {
        finding.hint(format!(
            "push it first: kubectl bundle push {text} REGISTRY/REPOSITORY:TAG"
        ))
    } else {
        finding.hint("write REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:…, such as registry.example.com/team/web:1.4.0")
    })
}

/// The same where, with another flag, it could have been a file.
pub(super) fn reference_or_file(text: &str) -> Outcome<Reference> {
    let read: Result<Reference, Finding> = text.parse();
    let path = Path::new(text);
    Ok(read.map_err(|finding| {
        if path.is_dir() {
            path_instead(text, Some(&finding)).unwrap_or(finding)
        } else if path.exists() {
            finding.hint(format!(
                "this is a file: to mean it, say where its signature is: --bundle {text}.sigstore.json"
            ))
        } else {
            finding
        }
    })?)
}
