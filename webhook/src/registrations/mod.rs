//! The two webhook registrations. They determine whether the API server requests a review for every
//! write. While a registration is missing or altered, the webhook rejects all reviews, and the pod
//! writes no stamps and no seals.

mod address;
mod history;
mod identity;
mod keeper;
mod shape;

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use bundle_cluster::ByName;
use bundle_core::diagnostic::{Finding, codes};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;

use self::history::{Snapshot, Version};
pub(crate) use self::identity::Identity;
pub use self::keeper::RegistrationError;
pub(crate) use self::keeper::{Change, RegistrationRepairer};

/// The two kinds of registrations. Both registrations have the name of the flag `--registration`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Registration {
    Validating,
    Mutating,
}

impl Registration {
    pub(crate) const ALL: [Self; 2] = [Self::Validating, Self::Mutating];

    /// Returns the API resource of this registration.
    fn resource(self) -> ApiResource {
        match self {
            Self::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            Self::Mutating => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        }
    }

    /// Returns the segment before the token in the path of the webhooks of this registration.
    fn action(self) -> &'static str {
        match self {
            Self::Validating => "validate",
            Self::Mutating => "mutate",
        }
    }
}

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Mutating => "MutatingWebhookConfiguration",
        })
    }
}

#[derive(Debug)]
struct State {
    since: Option<Timestamp>,
    /// The faults of the registrations. The list is empty if they are intact.
    faults: Vec<String>,
}

/// A start time and the observed versions of the registrations. Since the start time, the API
/// server has requested a review for each write. The clock of the API server determines the start
/// time.
type Enforcement = (Timestamp, [Version; 2]);

/// The observed integrity of the registrations. Clones share one state.
#[derive(Debug, Clone)]
pub struct Integrity {
    state: Arc<ArcSwap<State>>,
    /// Outer `None`: the registrations are not read yet. Inner `None`: a registration is missing or
    /// altered.
    enforcement: Arc<ArcSwapOption<Option<Enforcement>>>,
}

/// The reason why it is unknown whether the API server requested a review for a write.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnforcementError {
    #[error("cannot read the webhook registrations")]
    Api(#[from] kube::Error),
    #[error("the webhook registrations were changed just now")]
    Changed,
    #[error("the webhook registrations were not read yet")]
    Unread,
}

/// Returns the finding for all reviews while the registrations have `faults`.
pub(crate) fn altered(faults: &str) -> Finding {
    Finding::error(
        codes::review::REGISTRATIONS_ALTERED,
        format!(
            "reviews are rejected while the registrations of bundle-webhook are missing or altered: {faults}"
        ),
    )
    .hint("try again; if the error persists, apply webhook/deploy/admission again")
}

impl Default for Integrity {
    /// Returns the state before the registrations are read.
    fn default() -> Self {
        let state = State {
            since: None,
            faults: vec!["the webhook registrations were not read yet".to_owned()],
        };
        Self {
            state: Arc::new(ArcSwap::from_pointee(state)),
            enforcement: Arc::default(),
        }
    }
}

impl Integrity {
    /// Returns the start of the period for which it is proven that both registrations have been
    /// intact without interruption. Returns `None` while a registration is missing or altered, and
    /// in the second in which another client changed a registration. Times in objects have whole
    /// seconds. Therefore a stamp with a time in this second does not prove that the registration
    /// was intact.
    pub fn intact_since(&self) -> Option<Timestamp> {
        self.state
            .load()
            .since
            .filter(|since| *since <= Timestamp::now())
    }

    /// Returns the faults in one line. The text is empty if there are no faults.
    pub fn faults(&self) -> String {
        let state = self.state.load();
        match state.since {
            Some(since) if since > Timestamp::now() => {
                format!("they were changed just now, and are valid from {since}")
            }
            _ => state.faults.join("; "),
        }
    }

    /// Returns the start of the period in which the API server has requested a review for each
    /// write. The clock of the API server determines the start. Reads both registrations, because
    /// watch events can be late. Returns `None` while a registration is missing or altered. The
    /// function does not detect an API server that has not loaded a registration yet.
    pub(crate) async fn enforced_since(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<Option<Timestamp>, EnforcementError> {
        let known = self.enforcement.load_full();
        let known = known.ok_or(EnforcementError::Unread)?;
        let Some((since, versions)) = known.as_ref() else {
            return Ok(None);
        };
        for (registration, seen) in Registration::ALL.into_iter().zip(versions) {
            let api = Api::<DynamicObject>::all_with(client.clone(), &registration.resource());
            let found = ByName(&api).get_metadata_opt(name).await?;
            if found
                .map(|found| Snapshot::read(&found.metadata).version())
                .as_ref()
                != Some(seen)
            {
                return Err(EnforcementError::Changed);
            }
        }
        Ok(Some(*since))
    }

    /// Like [`Integrity::enforced_since`], but uses the last events of the watches and sends no
    /// request.
    pub(crate) fn last_enforced_since(&self) -> Option<Timestamp> {
        let known = self.enforcement.load_full()?;
        known.as_ref().as_ref().map(|(since, _)| *since)
    }

    fn set_enforcement(&self, enforcement: Option<Enforcement>) {
        self.enforcement.store(Some(Arc::new(enforcement)));
    }

    /// Sets the observed state. Returns true if the state has changed.
    pub(crate) fn set(&self, since: Option<Timestamp>, faults: Vec<String>) -> bool {
        let before = self.state.load();
        let changed = before.since.is_some() != since.is_some() || before.faults != faults;
        self.state.store(Arc::new(State { since, faults }));
        changed
    }
}
