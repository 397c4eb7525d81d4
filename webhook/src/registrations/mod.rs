//! Our two webhook registrations: whether the API server asks us about every write, and since when that can be proven.
//! While one is missing or altered, no review is answered, and nothing is stamped or sealed.

mod address;
mod history;
mod identity;
mod keeper;
mod shape;

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use bundle_cluster::ByName;
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
pub(crate) use self::keeper::{Change, Keeper};

/// The two kinds of registrations. Both have the name of the setting `registration`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Registration {
    Validating,
    Mutating,
}

impl Registration {
    pub(crate) const ALL: [Self; 2] = [Self::Validating, Self::Mutating];

    /// The kind, for the client.
    fn resource(self) -> ApiResource {
        match self {
            Self::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            Self::Mutating => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        }
    }

    /// The segment before the token in the path of its webhooks.
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
    /// Why not, if not.
    faults: Vec<String>,
}

/// Since when the API server can have stored nothing without a review, by its own clock, and the states of the registrations that this was seen of.
type Enforcement = (Timestamp, [Version; 2]);

/// Whether the registrations are intact, as this process knows it. Clones share it.
#[derive(Debug, Clone)]
pub struct Integrity {
    state: Arc<ArcSwap<State>>,
    /// Outer `None`: not read yet. Inner: one is missing or altered.
    enforcement: Arc<ArcSwapOption<Option<Enforcement>>>,
}

/// Why it is not known whether a write was reviewed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnforcementError {
    #[error("the webhook registrations cannot be read")]
    Api(#[from] kube::Error),
    #[error("the webhook registrations have just been changed")]
    Changed,
    #[error("the webhook registrations have not been read yet")]
    Unread,
}

impl Default for Integrity {
    /// Nothing is known yet.
    fn default() -> Self {
        let state = State {
            since: None,
            faults: vec!["the webhook registrations have not been read yet".to_owned()],
        };
        Self {
            state: Arc::new(ArcSwap::from_pointee(state)),
            enforcement: Arc::default(),
        }
    }
}

impl Integrity {
    /// Since when both registrations have been intact without interruption, as far as this process can prove. `None` while one is missing or altered,
    /// and in the second in which somebody else changed one: times of objects have whole seconds, so a stamp of that second would be worth nothing.
    pub fn intact_since(&self) -> Option<Timestamp> {
        self.state
            .load()
            .since
            .filter(|since| *since <= Timestamp::now())
    }

    /// What is wrong, in one line; empty while they are intact.
    pub fn faults(&self) -> String {
        let state = self.state.load();
        match state.since {
            Some(since) if since > Timestamp::now() => {
                format!("they were changed just now, and count from {since}")
            }
            _ => state.faults.join("; "),
        }
    }

    /// Since when the API server can have carried out nothing without a review, by its own clock, up to now: both registrations are read, since a watch may be
    /// behind. `None` while one is missing or altered. An API server that has not learned of a registration yet is not noticed.
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

    /// Returns the same as [`Integrity::enforced_since`], as the watches last told it.
    pub(crate) fn last_enforced_since(&self) -> Option<Timestamp> {
        let known = self.enforcement.load_full()?;
        known.as_ref().as_ref().map(|(since, _)| *since)
    }

    fn set_enforcement(&self, enforcement: Option<Enforcement>) {
        self.enforcement.store(Some(Arc::new(enforcement)));
    }

    /// Takes what was observed. Returns whether something has changed.
    pub(crate) fn set(&self, since: Option<Timestamp>, faults: Vec<String>) -> bool {
        let before = self.state.load();
        let changed = before.since.is_some() != since.is_some() || before.faults != faults;
        self.state.store(Arc::new(State { since, faults }));
        changed
    }
}
