//! What the conditions of a BundleDeployment say, from what was found.
//! Not here: finding it (deployment, place, keep), or how conditions are kept (said).

use bundle_api::deployment_status::DriftedObject;
use bundle_api::names::{self, condition, reason};
use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::{State, some_of};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::child::Child;
use super::deployment::{LISTED, Turn};
use super::trouble::{self, Retry, Trouble};

impl Turn<'_> {
    pub(super) fn warn_of_unused(&mut self) {
        let spec = &self.object.data["spec"];
        for (pointer, field) in [
            ("/rollout/deadline", "spec.rollout.deadline"),
            ("/rollout/onFailure", "spec.rollout.onFailure"),
            ("/rollout/allowDowngrade", "spec.rollout.allowDowngrade"),
            ("/crdUpgrades/exceptions", "spec.crdUpgrades"),
            ("/config", "spec.config"),
        ] {
            let set = spec.pointer(pointer).is_some_and(|value| {
                !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
            });
            if set {
                self.warnings.insert(format!(
                    "{field} is set and has no effect yet ({})",
                    codes::install::NOT_IMPLEMENTED
                ));
            }
        }
    }

    /// Says how the Bundle is; whether its content can be installed.
    pub(super) fn tell_bundle(&mut self, child: &Child) -> bool {
        let name = &child.name;
        let (state, found, message) = match child.status.phase.as_deref() {
            _ if child.content.is_some() => (
                State::True,
                reason::UNPACK_SUCCESSFUL,
                format!("Successfully unpacked the {name} Bundle"),
            ),
            Some(names::PHASE_FAILING) => (
                State::False,
                reason::UNPACK_FAILED,
                format!("Failed to unpack the {name} Bundle: {}", child.message()),
            ),
            Some(names::PHASE_UNPACKING) => (
                State::False,
                reason::UNPACKING,
                format!("Waiting for the {name} Bundle to be unpacked"),
            ),
            _ => (
                State::False,
                reason::UNPACK_PENDING,
                format!("Waiting for the {name} Bundle to be unpacked"),
            ),
        };
        self.said
            .set(condition::HAS_VALID_BUNDLE, state, found, &message);
        state == State::True
    }

    pub(super) fn tell_installed(&mut self, child: &Child, in_place: bool) {
        if in_place && self.status.active_bundle.as_deref() == Some(&child.name) {
            self.said.set(
                condition::INSTALLED,
                State::True,
                reason::INSTALLATION_SUCCEEDED,
                &format!("Instantiated bundle {} successfully", child.name),
            );
        } else if self.status.active_bundle.is_none() {
            let failed = child.status.phase.as_deref() == Some(names::PHASE_FAILING);
            let (state, found) = if failed {
                (State::False, reason::UNPACK_FAILED)
            } else {
                (State::Unknown, reason::UNPACK_PENDING)
            };
            self.said.set(
                condition::INSTALLED,
                state,
                found,
                "nothing is installed yet",
            );
        }
    }

    pub(super) fn tell_trouble(&mut self, trouble: &Trouble) {
        // What is installed stays so.
        if trouble.reason == reason::RIGHTS_WITHDRAWN {
            return;
        }
        let state = if trouble.cannot_tell() && self.status.active_bundle.is_none() {
            State::False
        } else if trouble.cannot_tell() {
            State::Unknown
        } else {
            State::False
        };
        if self.said.is_true(condition::HAS_VALID_BUNDLE) || self.status.active_bundle.is_none() {
            self.said.set(
                condition::INSTALLED,
                state,
                trouble.reason,
                &trouble.message,
            );
        }
    }

    pub(super) fn add_drift(&mut self) {
        let drifted = self.room.books.drifted(&self.name);
        self.status.drift = drifted
            .iter()
            .take(LISTED)
            .map(|(key, since)| DriftedObject {
                object: key.clone(),
                since: jiff::Timestamp::from_second(since.as_second())
                    .ok()
                    .map(Time),
            })
            .collect();
        let objects: Vec<&String> = drifted.keys().collect();
        let list = some_of(&objects, LISTED);
        if !objects.is_empty() {
            let message = if self.spec.paused {
                format!("not restored, since spec.paused is true: {list}")
            } else if self.rights_are_withdrawn() {
                format!("not restored, since the requester has lost rights: {list}")
            } else if self.spec.correct_drift {
                format!("being restored: {list}")
            } else {
                format!("not restored, since spec.drift.mode is Report: {list}")
            };
            self.said
                .set(condition::DRIFTED, State::True, "OutOfLine", &message);
        } else if let Some(why) = self.room.watches.blind(&self.name) {
            self.said.set(
                condition::DRIFTED,
                State::Unknown,
                reason::CREATE_DYNAMIC_WATCH_FAILED,
                &why,
            );
        } else if self.room.books.content(&self.name).is_some() {
            self.said.set(
                condition::DRIFTED,
                State::False,
                "InPlace",
                "every object is as it was applied",
            );
        } else {
            self.said.set_if_new(
                condition::DRIFTED,
                State::Unknown,
                "NotInstalled",
                "nothing is installed yet",
            );
        }
    }

    pub(super) fn add_health(&mut self) {
        let unhealthy = self.room.books.unhealthy(&self.name);
        if !unhealthy.is_empty() {
            let list: Vec<String> = unhealthy
                .iter()
                .map(|(key, why)| format!("{key}: {why}"))
                .collect();
            let message = trouble::list(list, LISTED);
            self.said
                .set(condition::HEALTHY, State::False, "Unhealthy", &message);
        } else if self.room.books.content(&self.name).is_some() {
            self.said.set(
                condition::HEALTHY,
                State::True,
                "Healthy",
                "every object is healthy",
            );
        } else {
            self.said.set_if_new(
                condition::HEALTHY,
                State::Unknown,
                "NotInstalled",
                "nothing is installed yet",
            );
        }
    }

    pub(super) fn tell_progress(&mut self, trouble: Option<&Trouble>) {
        let installed_now = self
            .said
            .get(condition::INSTALLED)
            .is_some_and(|condition| {
                condition.status == State::True
                    && Some(condition.observed_generation) == self.object.metadata.generation
            });
        let bundle = self.said.get(condition::HAS_VALID_BUNDLE).map(|condition| {
            (
                condition.status,
                condition.reason.clone(),
                condition.message.clone(),
            )
        });
        let (progressing, ready, found, message) = match (trouble, bundle) {
            _ if self.spec.paused => (
                State::False,
                if installed_now {
                    State::True
                } else {
                    State::False
                },
                reason::PAUSED.to_owned(),
                "spec.paused is true: nothing is changed".to_owned(),
            ),
            (Some(trouble), _) => (
                if trouble.retry == Retry::OnChange {
                    State::False
                } else {
                    State::True
                },
                State::False,
                trouble.reason.to_owned(),
                trouble.message.clone(),
            ),
            (None, Some((State::False, found, message))) => (
                if found == reason::UNPACK_FAILED {
                    State::False
                } else {
                    State::True
                },
                State::False,
                found,
                message,
            ),
            (None, _) if !installed_now => (
                State::True,
                State::False,
                "Installing".to_owned(),
                "the content is not in place yet".to_owned(),
            ),
            (None, _) => {
                let unhealthy = self
                    .said
                    .get(condition::HEALTHY)
                    .filter(|condition| condition.status != State::True)
                    .map(|condition| condition.message.clone());
                match unhealthy {
                    Some(why) => (State::False, State::False, "Unhealthy".to_owned(), why),
                    None => (
                        State::False,
                        State::True,
                        reason::INSTALLATION_SUCCEEDED.to_owned(),
                        "the content is installed and healthy".to_owned(),
                    ),
                }
            }
        };
        self.said
            .set(condition::PROGRESSING, progressing, &found, &message);
        self.said.set(condition::READY, ready, &found, &message);
    }
}
