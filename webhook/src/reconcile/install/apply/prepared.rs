//! An apply as it will be sent: the values, and the state that the object has to be in.

use std::sync::Arc;

use bundle_api::names;
use bundle_core::plan::drift::FieldsEntry;
use bundle_core::plan::ignore::{self, Rule};
use bundle_core::plan::inventory::{CreationMark, Inventory};
use bundle_core::plan::ownership::OwnershipChange;
use bundle_core::plan::scaling;
use kube::Client;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::ApplyError;
use crate::reconcile::api::object;
use crate::reconcile::content::items::Item;
use crate::reconcile::content::scalers::Scalers;

/// A resource version that no object has: the first write of a store has a later one. The API server creates an object of this version if none exists under
/// the name, and answers 409 otherwise, whatever the values.
const NO_VERSION: &str = "1";

/// Which object an apply may touch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::reconcile) enum Target {
    /// The one with this uid, and none that took its name. Fields that others took are taken back.
    Uid(String),
    /// None that exists: it is created, or nothing happens.
    Absent,
}

/// An apply of one item, worked out from one look at the object. Its bytes do not change any more.
#[derive(Debug, Clone)]
pub(in crate::reconcile) struct PreparedApply<'i> {
    item: &'i Item,
    target: Target,
    /// The values where some are left to others; else those of the item.
    values: Option<Value>,
    /// The version that such values were taken from.
    version: Option<String>,
    mark: Option<CreationMark>,
    /// Fields of the object have become ours since it was looked at, so that the apply does more than an equal one before.
    has_new_fields: bool,
    /// It was checked too long ago, so that remembered answers do not count.
    is_asked_anew: bool,
}

impl<'i> PreparedApply<'i> {
    pub(in crate::reconcile) fn item(&self) -> &'i Item {
        self.item
    }

    /// Returns whether its values are those of one version of the object.
    pub(super) fn is_of_a_version(&self) -> bool {
        self.version.is_some()
    }

    pub(in crate::reconcile) fn target(&self) -> &Target {
        &self.target
    }

    /// Whether it creates the object.
    pub(in crate::reconcile) fn creates(&self) -> bool {
        self.target == Target::Absent
    }

    /// The only version of the object that it changes, if it names one.
    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// What is applied, but for our mark and what identifies the object.
    pub(in crate::reconcile) fn values(&self) -> &Value {
        self.values.as_ref().unwrap_or(&self.item.value)
    }

    /// Returns `true` if fields of the object have become ours since it was looked at.
    pub(super) fn has_new_fields(&self) -> bool {
        self.has_new_fields
    }

    /// The same after fields of the object have become ours.
    pub(super) fn with_new_fields(self) -> Self {
        Self {
            has_new_fields: true,
            ..self
        }
    }

    /// Returns `true` if remembered answers do not count.
    pub(super) fn is_asked_anew(&self) -> bool {
        self.is_asked_anew
    }

    /// The same after a check that is too old to count.
    pub(super) fn asked_anew(self) -> Self {
        Self {
            is_asked_anew: true,
            ..self
        }
    }

    /// The body of the request, the same at each call.
    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = self.values().clone();
        let metadata = &mut body["metadata"];
        if let Some(mark) = self.mark {
            if !metadata["annotations"].is_object() {
                metadata["annotations"] = json!({});
            }
            metadata["annotations"][names::ANNOTATION_CREATION_MARK] = mark.to_string().into();
        }
        match &self.target {
            Target::Uid(uid) => metadata["uid"] = uid.as_str().into(),
            Target::Absent => metadata["resourceVersion"] = NO_VERSION.into(),
        }
        if let Some(version) = &self.version {
            metadata["resourceVersion"] = version.as_str().into();
        }
        body.to_string().into_bytes()
    }
}

/// Works applies out. Reads live objects where the values depend on them.
pub(in crate::reconcile) struct Preparer {
    /// Acts as the installing identity.
    pub(in crate::reconcile) client: Client,
    /// Fields that are left to others.
    pub(in crate::reconcile) ignore: Vec<Rule>,
    /// What belongs to the BundleDeployment.
    pub(in crate::reconcile) inventory: Arc<Inventory>,
    /// Objects that belong to nobody are taken over.
    pub(in crate::reconcile) adopt: bool,
    /// Replicas that are left to autoscalers.
    pub(in crate::reconcile) scalers: Arc<Scalers>,
}

impl Preparer {
    /// Works out the apply of `item` to `target`. Only what others were given has to be read first, and nothing is read from an object with another uid.
    pub(in crate::reconcile) async fn prepare<'i>(
        &self,
        item: &'i Item,
        target: Target,
    ) -> Result<PreparedApply<'i>, ApplyError> {
        let mut prepared = PreparedApply {
            item,
            target,
            values: None,
            version: None,
            mark: self.inventory.mark(&item.key),
            has_new_fields: false,
            is_asked_anew: false,
        };
        let rules: Vec<&Rule> = self
            .ignore
            .iter()
            .filter(|rule| rule.fits(&item.id))
            .collect();
        let Target::Uid(uid) = &prepared.target else {
            return Ok(prepared);
        };
        let scales = scaling::sets_replicas(&item.value);
        if rules.is_empty() && !scales {
            return Ok(prepared);
        }
        let namespace = item.id.namespace.as_deref();
        let live = object::read(&self.client, &item.kind, namespace, &item.id.name).await;
        let live = live.map_err(ApplyError::Api)?.ok_or(ApplyError::Moved)?;
        if live.metadata.uid.as_deref() != Some(uid.as_str()) {
            return Err(ApplyError::Moved);
        }
        let leaves_replicas = scales && self.scalers.leave(&self.client, item, &live, &rules).await;
        if rules.is_empty() && !leaves_replicas {
            return Ok(prepared);
        }
        let mut values = item.value.clone();
        leave_to_others(&mut values, &live, &rules)?;
        if leaves_replicas {
            scaling::remove_replicas(&mut values);
        }
        prepared.values = Some(values);
        prepared.version = live.metadata.resource_version;
        Ok(prepared)
    }

    /// Returns the change of ownership that has to come before the apply.
    pub(super) fn ownership_change(&self, prepared: &PreparedApply<'_>) -> OwnershipChange {
        let Target::Uid(uid) = &prepared.target else {
            return OwnershipChange::default();
        };
        let id = &prepared.item.id;
        OwnershipChange {
            takes_over: self.adopt && !self.inventory.owns(&prepared.item.key, uid),
            folds_string_data: id.group.is_empty() && id.kind == "Secret",
            lists: Vec::new(),
        }
    }

    /// Looks at the object again after a conflict or an unknown outcome. Returns the apply for the state that it finds, or [`ApplyError::Moved`] if the object
    /// is not the one that was meant. What did not exist before and carries our mark now was created by a request of ours, if the outcome of one is not known
    /// (`is_uncertain`).
    pub(super) async fn again<'i>(
        &self,
        prepared: &PreparedApply<'i>,
        is_uncertain: bool,
    ) -> Result<PreparedApply<'i>, ApplyError> {
        let item = prepared.item;
        let live = object::look(&self.client, &item.kind, &item.id).await;
        let live = live.map_err(ApplyError::Api)?;
        match (&prepared.target, live) {
            (Target::Uid(uid), Some(live)) if live.uid == *uid => {
                if prepared.version.is_none() {
                    return Ok(prepared.clone());
                }
                let now = self.prepare(item, prepared.target.clone()).await?;
                Ok(PreparedApply {
                    has_new_fields: prepared.has_new_fields,
                    ..now
                })
            }
            (Target::Absent, None) => Ok(prepared.clone()),
            (Target::Absent, Some(live))
                if is_uncertain && live.mark.is_some() && live.mark == prepared.mark =>
            {
                self.prepare(item, Target::Uid(live.uid)).await
            }
            _ => Err(ApplyError::Moved),
        }
    }
}

fn leave_to_others(
    values: &mut Value,
    live: &DynamicObject,
    rules: &[&Rule],
) -> Result<(), ApplyError> {
    let entries: Vec<FieldsEntry<'_>> = object::entries(&live.metadata).collect();
    let live = serde_json::to_value(live)
        .map_err(|error| ApplyError::Api(kube::Error::SerdeError(error)))?;
    ignore::leave(values, &live, &entries, rules);
    Ok(())
}
