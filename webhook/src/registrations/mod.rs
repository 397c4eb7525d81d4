//! Our two webhook registrations: whether the API server asks us about every write, and since when that can be proven.
//! While one is missing or altered, no review is answered, and nothing is stamped or sealed.

mod address;
mod history;
mod keeper;
mod shape;

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::core::ApiResource;

pub use self::keeper::RegistrationError;
pub(crate) use self::keeper::{Change, Keeper};
pub(crate) use self::shape::Identity;

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

/// Whether the registrations are intact, as this process knows it. Clones share it.
#[derive(Debug, Clone)]
pub struct Integrity(Arc<ArcSwap<State>>);

impl Default for Integrity {
    /// Nothing is known yet.
    fn default() -> Self {
        Self(Arc::new(ArcSwap::from_pointee(State {
            since: None,
            faults: vec!["the webhook registrations have not been read yet".to_owned()],
        })))
    }
}

impl Integrity {
    /// Since when both registrations have been intact without interruption, as far as this process can prove. `None` while one is missing or altered,
    /// and in the second in which somebody else changed one: times of objects have whole seconds, so a stamp of that second would be worth nothing.
    pub fn intact_since(&self) -> Option<Timestamp> {
        self.0
            .load()
            .since
            .filter(|since| *since <= Timestamp::now())
    }

    /// What is wrong, in one line; empty while they are intact.
    pub fn faults(&self) -> String {
        let state = self.0.load();
        match state.since {
            Some(since) if since > Timestamp::now() => {
                format!("they were changed just now, and count from {since}")
            }
            _ => state.faults.join("; "),
        }
    }

    /// Takes what was observed. Returns whether something has changed.
    pub(crate) fn set(&self, since: Option<Timestamp>, faults: Vec<String>) -> bool {
        let before = self.0.load();
        let changed = before.since.is_some() != since.is_some() || before.faults != faults;
        self.0.store(Arc::new(State { since, faults }));
        changed
    }
}
