//! How registries are spoken to: flags, and the files in which docker and podman keep credentials.
//! Not here: reading them (bundle-oci).

use bundle_core::reference::Reference;

use super::{Environment, duration};
use crate::args::Registry;
use crate::failure::Outcome;
use crate::registry::RegistrySettings;

/// Reads the registry flags.
pub(super) fn settings(registry: Registry, environment: &Environment) -> Outcome<RegistrySettings> {
    Ok(RegistrySettings {
        ca_files: registry.ca,
        plain_http: registry.plain_http.into_iter().collect(),
        credential_files: environment.credential_files(),
        deadline: duration::limit("--registry-timeout", &registry.registry_timeout)?,
    })
}

/// Reads a reference.
pub(super) fn reference(text: &str) -> Outcome<Reference> {
    Ok(text.parse()?)
}
