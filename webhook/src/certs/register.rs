//! Maintains the webhook registrations: sets the authority and the current path in both
//! registrations, and rotates the path. The module `registrations` detects faults.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::time::Instant;

use super::material::CertificateMaterial;
use super::path::{self, Rotation};
use super::{CertificateTaskError, secret};
use crate::caller::Tokens;
use crate::config::settings::Settings;
use crate::registrations::{Change, Identity, RegistrationRepairer};
use crate::shared::Shared;

/// Maintains the registrations of one process.
pub(super) struct Registrar {
    keeper: RegistrationRepairer,
    /// The certificates that were read last.
    material: Option<CertificateMaterial>,
    /// True until the first successful check of this process.
    at_start: bool,
}

impl Registrar {
    pub(super) fn new(shared: &Shared) -> Self {
        let (name, integrity) = (&shared.settings.registration, shared.registrations.clone());
        Self {
            keeper: RegistrationRepairer::new(shared.client(), name, integrity),
            material: None,
            at_start: true,
        }
    }

    /// Waits for the next change of a registration, and returns the change. This function is
    /// cancel-safe.
    pub(super) async fn changed(&mut self) -> Change {
        self.keeper.changed().await
    }

    /// Evaluates a change. Returns true if [`Registrar::check`] must run.
    pub(super) async fn observe(&mut self, shared: &Shared, change: Change) -> bool {
        let settings = &shared.settings;
        let Some(tokens) = shared.paths.tokens() else {
            return true;
        };
        let identity = identity(settings, trusted(self.material.as_ref()), &tokens);
        if !change.may_be_own_write(&settings.registration, &identity) {
            return self.keeper.observe(&change, &identity, Timestamp::now());
        }
        // Another replica may have renewed the tokens or the authority.
        if let Err(error) = self.refresh(shared).await {
            let error = crate::chain(&error);
            tracing::warn!(error, "cannot read the Secrets of tokens and certificates");
        }
        let tokens = shared.paths.tokens().unwrap_or(tokens);
        let identity = self::identity(settings, trusted(self.material.as_ref()), &tokens);
        self.keeper.observe(&change, &identity, Timestamp::now())
    }

    /// Reads the certificates, and renews them if they are due.
    pub(super) async fn read_material(
        &mut self,
        shared: &Shared,
        secrets: &Api<Secret>,
    ) -> Result<CertificateMaterial, CertificateTaskError> {
        let (names, now) = (&shared.settings.names, Timestamp::now());
        let material = secret::tls(secrets, names, now, self.material.as_ref()).await?;
        self.material = Some(material.clone());
        Ok(material)
    }

    async fn refresh(&mut self, shared: &Shared) -> Result<(), CertificateTaskError> {
        let settings = &shared.settings;
        let secrets: Api<Secret> = Api::namespaced(shared.client(), &settings.state_namespace);
        self.read_material(shared, &secrets).await?;
        let tokens = path::tokens(&secrets, Rotation::default()).await?;
        shared.paths.set(tokens);
        Ok(())
    }

    /// Reads both registrations, and repairs `caBundle` and the path in them. If other fields are
    /// wrong, the function changes no field and does not rotate the path.
    pub(super) async fn check(
        &mut self,
        shared: &Shared,
        secrets: &Api<Secret>,
    ) -> Result<(), CertificateTaskError> {
        let settings = &shared.settings;
        let tokens = path::tokens(secrets, Rotation::default()).await?;
        shared.paths.set(tokens.clone());
        for change in self.keeper.read().await? {
            self.observe(shared, change).await;
        }
        if !self.keeper.is_repairable() {
            return Ok(());
        }
        let mut tokens = shared.paths.tokens().unwrap_or(tokens);
        let rotation = Rotation {
            at_start: self.at_start,
            interval: settings.path_rotation_interval,
            gap: self.keeper.gap(),
        };
        if rotation.is_due(tokens.rotated, Timestamp::now()) {
            tokens = path::tokens(secrets, rotation).await?;
            shared.paths.set(tokens.clone());
            tracing::info!("rotated the path of the registrations");
        }
        let identity = identity(settings, trusted(self.material.as_ref()), &tokens);
        self.keeper.repair(&identity).await?;
        shared.paths.set_in_use(Instant::now());
        self.keeper.end_gap();
        self.at_start = false;
        Ok(())
    }

    /// Returns the time until the next rotation of the path. Returns `None` if rotation is
    /// disabled, or if the registrations have faults that the webhook does not repair.
    pub(super) fn rotates_in(&self, shared: &Shared) -> Option<Duration> {
        let interval = shared.settings.path_rotation_interval;
        let interval = interval.filter(|_| self.keeper.is_repairable())?;
        let rotated = shared.paths.tokens()?.rotated;
        let age = Duration::try_from(Timestamp::now().duration_since(rotated)).unwrap_or_default();
        Some(interval.saturating_sub(age))
    }
}

/// Returns the trusted certificate authorities (PEM).
fn trusted(material: Option<&CertificateMaterial>) -> &str {
    material.map_or("", |material| &material.trusted)
}

fn identity<'a>(settings: &'a Settings, trusted: &'a str, tokens: &'a Tokens) -> Identity<'a> {
    Identity {
        namespace: &settings.namespace,
        service: &settings.service,
        trusted,
        current: &tokens.current,
        previous: tokens.previous.as_ref(),
    }
}
