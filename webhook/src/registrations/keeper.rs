//! Watches the webhook registrations, repairs `caBundle` and path, and reports all other faults.
//! The module `certs` rotates the path and renews certificate authorities.

use std::fmt::Write as _;

use bundle_cluster::ByName;
use futures::StreamExt as _;
use futures::stream::{BoxStream, select_all};
use jiff::{SignedDuration, Timestamp};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::Value;

use super::history::{History, MANAGER, Observation, Snapshot};
use super::identity::Identity;
use super::shape::{self, Fault};
use super::{Integrity, Registration, address};
use crate::clients::cluster::watch_events;

/// Maximum number of faults in logs and on `/readyz`.
const FAULTS_SHOWN: usize = 8;

/// Maximum clock difference between the API server and the pod.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(5);

/// The reason why a registration cannot be maintained.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// A request to the API server failed.
    #[error("cannot {action} {kind}/{name}")]
    Api {
        /// The failed action: `read` or `patch`.
        action: &'static str,
        /// The kind of the registration.
        kind: String,
        /// The name of the registration.
        name: String,
        /// The error of the request.
        source: kube::Error,
    },
    /// The patch of this webhook cannot be encoded.
    #[error("cannot encode the patch of a registration")]
    Patch {
        /// The error of the encoder.
        source: serde_json::Error,
    },
}

/// A change that a watch or a read reports.
pub(crate) struct Change {
    registration: Registration,
    event: Event,
}

enum Event {
    Listed(Option<DynamicObject>),
    Applied(DynamicObject),
    Deleted(DynamicObject),
}

impl Change {
    /// Returns the current object, or `None` if it does not exist.
    fn object(&self) -> Option<&Value> {
        match &self.event {
            Event::Listed(object) => object.as_ref().map(|object| &object.data),
            Event::Applied(object) => Some(&object.data),
            Event::Deleted(_) => None,
        }
    }

    /// Returns true if the only faults are a token or a certificate authority that differ from
    /// `identity`. Another replica may have renewed them, so the caller reads the Secrets again
    /// before it evaluates the change.
    pub(crate) fn may_be_own_write(&self, name: &str, identity: &Identity<'_>) -> bool {
        let faults = shape::faults(self.registration, name, self.object(), identity);
        !faults.is_empty() && faults.iter().all(|fault| fault.is_repaired)
    }
}

/// Maintains the registrations in one process.
pub(crate) struct RegistrationRepairer {
    client: Client,
    name: String,
    integrity: Integrity,
    events: BoxStream<'static, Change>,
    history: History,
    /// The history without the faults that the webhook repairs itself: during such a fault the API
    /// server cannot call the webhook, and rejects writes. All times are later than in `history` by
    /// [`CLOCK_SKEW`], because the clock of the API server can differ.
    enforcement: History,
    faults: [Vec<Fault>; 2],
    /// The registrations that the last read returned. `None` if a registration does not exist.
    read: [Option<DynamicObject>; 2],
    /// Start of the last period in which the registrations were not intact. `None` after the path
    /// was rotated.
    gap: Option<Timestamp>,
}

impl RegistrationRepairer {
    /// Watches the registrations with this name, and publishes their state in `integrity`.
    pub(crate) fn new(client: Client, name: &str, integrity: Integrity) -> Self {
        let watches = Registration::ALL.map(|registration| watch(&client, name, registration));
        Self {
            events: select_all(watches).boxed(),
            client,
            name: name.to_owned(),
            integrity,
            history: History::default(),
            enforcement: History::default(),
            faults: [Vec::new(), Vec::new()],
            read: [None, None],
            gap: None,
        }
    }

    /// Waits for the next change, and returns the change. This function is cancel-safe.
    pub(crate) async fn changed(&mut self) -> Change {
        match self.events.next().await {
            Some(change) => change,
            // Watches with a backoff never end, so this case does not occur.
            None => std::future::pending().await,
        }
    }

    /// Evaluates a change, and publishes the result. Returns true if
    /// [`RegistrationRepairer::repair`] must run.
    pub(crate) fn observe(
        &mut self,
        change: &Change,
        identity: &Identity<'_>,
        now: Timestamp,
    ) -> bool {
        let faults = shape::faults(change.registration, &self.name, change.object(), identity);
        let found = |object: &DynamicObject| Snapshot::read(&object.metadata);
        let (observation, current) = match &change.event {
            Event::Listed(None) => (Observation::Absent, None),
            Event::Listed(Some(object)) => (Observation::Read(found(object)), Some(object)),
            Event::Applied(object) => (Observation::Event(found(object)), Some(object)),
            Event::Deleted(object) => {
                let uid = object.metadata.uid.clone().unwrap_or_default();
                (Observation::Deleted(uid), None)
            }
        };
        let corrections = current
            .is_some_and(|object| !corrections(change.registration, object, identity).is_empty());
        self.take(change.registration, observation, faults, now);
        corrections || self.gap.is_some()
    }

    fn take(
        &mut self,
        registration: Registration,
        observation: Observation,
        faults: Vec<Fault>,
        now: Timestamp,
    ) {
        let before = self.history.intact_since();
        let is_enforced = faults.iter().all(|fault| fault.is_repaired);
        let later = now.saturating_add(CLOCK_SKEW).unwrap_or(Timestamp::MAX);
        self.enforcement.observe(
            registration,
            observation.clone(),
            (is_enforced, is_enforced),
            later,
        );
        let is_news = self.history.observe(
            registration,
            observation,
            (faults.is_empty(), is_enforced),
            now,
        );
        if is_news {
            self.faults[registration as usize] = faults;
        }
        let since = self.history.intact_since();
        if since.is_none() || since > before {
            self.gap = self.gap.or(before.map(|_| now));
        }
        self.publish();
    }

    /// Returns true if the registrations have no faults, or only faults that the webhook repairs.
    pub(crate) fn is_repairable(&self) -> bool {
        self.faults.iter().flatten().all(|fault| fault.is_repaired)
    }

    /// Returns the start of the last period in which the registrations were not intact, if the path
    /// was not rotated after this period.
    pub(crate) fn gap(&self) -> Option<Timestamp> {
        self.gap
    }

    /// Records that the path was rotated after the period in [`Self::gap`].
    pub(crate) fn end_gap(&mut self) {
        self.gap = None;
    }

    /// Reads both registrations. The caller must observe the returned changes.
    /// [`RegistrationRepairer::repair`] uses the read objects.
    pub(crate) async fn read(&mut self) -> Result<Vec<Change>, RegistrationError> {
        let mut changes = Vec::new();
        for registration in Registration::ALL {
            let api = api(&self.client, registration);
            let found = ByName(&api).get_opt(&self.name).await;
            let found = found.map_err(|source| self.error("read", registration, source))?;
            self.read[registration as usize].clone_from(&found);
            let event = Event::Listed(found);
            changes.push(Change {
                registration,
                event,
            });
        }
        Ok(changes)
    }

    /// Repairs `caBundle` and path in the objects of the last read. Fails if a registration has
    /// changed since that read.
    pub(crate) async fn repair(
        &mut self,
        identity: &Identity<'_>,
    ) -> Result<(), RegistrationError> {
        for registration in Registration::ALL {
            let Some(object) = self.read[registration as usize].take() else {
                continue;
            };
            let operations = corrections(registration, &object, identity);
            if operations.is_empty() {
                continue;
            }
            let patch: json_patch::Patch = serde_json::from_value(Value::Array(operations))
                .map_err(|source| RegistrationError::Patch { source })?;
            let params = PatchParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PatchParams::default()
            };
            let api = api(&self.client, registration);
            let patched = ByName(&api)
                .patch(&self.name, &params, &Patch::<()>::Json(patch))
                .await;
            let patched = patched.map_err(|source| self.error("patch", registration, source))?;
            tracing::info!(kind = %registration, name = self.name, "set caBundle and path of a registration");
            let event = Event::Applied(patched);
            let change = Change {
                registration,
                event,
            };
            self.observe(&change, identity, Timestamp::now());
        }
        Ok(())
    }

    fn publish(&self) {
        let all = || self.faults.iter().flatten();
        let mut faults: Vec<String> = all().take(FAULTS_SHOWN).map(ToString::to_string).collect();
        let left = all().count().saturating_sub(FAULTS_SHOWN);
        if let (true, Some(last)) = (left > 0, faults.last_mut()) {
            // Writing to a String cannot fail.
            let _ = write!(last, "; and {left} more");
        }
        let since = self.history.intact_since();
        if since.is_none() && faults.is_empty() {
            faults.push("the webhook registrations were not read yet".to_owned());
        }
        if self.enforcement.is_complete() {
            let enforced = self.enforcement.intact_since();
            let enforcement = enforced.zip(self.enforcement.versions());
            self.integrity.set_enforcement(enforcement);
        }
        if self.integrity.set(since, faults) {
            if let Some(since) = since {
                tracing::info!(%since, "the webhook registrations are intact");
            } else {
                tracing::error!(
                    faults = self.integrity.faults(),
                    "the webhook registrations are missing or altered; reviews are rejected until they match webhook/deploy/admission"
                );
            }
        }
    }

    fn error(
        &self,
        action: &'static str,
        registration: Registration,
        source: kube::Error,
    ) -> RegistrationError {
        RegistrationError::Api {
            action,
            kind: registration.to_string(),
            name: self.name.clone(),
            source,
        }
    }
}

fn api(client: &Client, registration: Registration) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &registration.resource())
}

fn corrections(
    registration: Registration,
    object: &DynamicObject,
    identity: &Identity<'_>,
) -> Vec<Value> {
    let version = object.metadata.resource_version.as_deref();
    let action = registration.action();
    address::corrections(&object.data, version.unwrap_or_default(), action, identity)
}

fn watch(client: &Client, name: &str, registration: Registration) -> BoxStream<'static, Change> {
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut listing = None;
    watch_events(api(client, registration), only)
        .filter_map(move |event| {
            let event = match event {
                Ok(watcher::Event::Init) => {
                    listing = None;
                    None
                }
                Ok(watcher::Event::InitApply(object)) => {
                    listing = Some(object);
                    None
                }
                Ok(watcher::Event::InitDone) => Some(Event::Listed(listing.take())),
                Ok(watcher::Event::Apply(object)) => Some(Event::Applied(object)),
                Ok(watcher::Event::Delete(object)) => Some(Event::Deleted(object)),
                Err(error) => {
                    let error = crate::chain(&error);
                    tracing::warn!(kind = %registration, error, "the watch of a registration was interrupted; the registration is read periodically");
                    None
                }
            };
            let change = event.map(|event| Change {
                registration,
                event,
            });
            std::future::ready(change)
        })
        .boxed()
}
