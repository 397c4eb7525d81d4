//! How registries are spoken to: flags, and the files in which docker and podman keep credentials, certificates and mirrors.
//! Not here: reading them (bundle-oci).

use std::path::Path;

use bundle_core::diagnostic::Finding;
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
    Ok(text.parse()?)
}

/// The same where, with another flag, it could have been a file.
pub(super) fn reference_or_file(text: &str) -> Outcome<Reference> {
    let read: Result<Reference, Finding> = text.parse();
    Ok(read.map_err(|finding| {
        if Path::new(text).exists() {
            finding.hint(format!(
                "this is a file: to mean it, say where its signature is: --bundle {text}.sigstore.json"
            ))
        } else {
            finding
        }
    })?)
}
