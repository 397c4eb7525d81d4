//! A prepared apply: the values, and the expected state of the object.

use std::sync::Arc;

use bundle_api::names;
use bundle_core::json;
use bundle_core::plan::drift::FieldsEntry;
use bundle_core::plan::ignore::{self, Rule};
use bundle_core::plan::inventory::{CreationMark, Inventory};
use bundle_core::plan::ownership::OwnershipChange;
use bundle_core::plan::scaling;
use bundle_core::plan::unchanged::RequestHash;
use kube::Client;
use kube::api::DynamicObject;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};

use super::ApplyError;
use crate::blocking;
use crate::budget::requests::RequestMemory;
use crate::clients::cluster::ServiceAccount;
use crate::dry_run::ApplyBody;
use crate::reconcile::api::object;
use crate::reconcile::apply::scalers::ScaledObjects;
use crate::reconcile::content::objects::PreparedObject;

/// A resourceVersion that no object has, because even the first write to the data store (etcd) gets
/// a higher resourceVersion. If an apply has this resourceVersion and no object with the name
/// exists, the API server creates the object. If an object exists, the API server responds with a
/// conflict (409).
const NO_VERSION: &str = "1";

/// The expected state of the object of an apply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::reconcile) enum Target {
    /// The object with this uid. The apply overrides other field managers, and does not change
    /// another object of the same name.
    Uid(String),
    /// No object exists, and the apply creates the object. If another actor has created an object
    /// with this name, the apply has no effect.
    Absent,
}

/// The expected state of an object, and the resourceVersion in which it was observed. `None` if the
/// object was not observed.
#[derive(Debug, Clone)]
pub(in crate::reconcile) struct ObservedTarget {
    pub(in crate::reconcile) target: Target,
    pub(in crate::reconcile) version: Option<u64>,
}

impl From<Target> for ObservedTarget {
    fn from(target: Target) -> Self {
        Self {
            target,
            version: None,
        }
    }
}

/// An apply of one item. The object was read at most once to prepare the apply. The bytes of the
/// request do not change afterwards.
#[derive(Debug, Clone)]
pub(in crate::reconcile) struct PreparedApply<'i> {
    item: &'i PreparedObject,
    target: Target,
    /// The values of the request if some fields of the item are not applied. `None` if all values
    /// of the item are applied.
    values: Option<Value>,
    /// The resourceVersion of the object from which `values` were computed.
    version: Option<String>,
    /// The resourceVersion of the object that the dry runs as the requesters are sent for. Without
    /// it, another write between the dry runs and the apply could change the effect of the apply,
    /// for example if it gives up the ownership of a field. `None` until the dry runs, and if the
    /// API server returned no number.
    checked_version: Option<String>,
    /// The resourceVersion in which the object was observed. The next dry runs name this version
    /// without another read.
    observed_version: Option<u64>,
    mark: Option<CreationMark>,
    /// User name of the installing ServiceAccount.
    installer: String,
    /// True if the ownership of fields was changed since the object was read. Then the apply
    /// changes more fields than the dry run of an earlier check, so cached results of this dry run
    /// are not used.
    has_moved_fields: bool,
    /// True if an earlier check has expired, so that cached results are not used.
    bypasses_cache: bool,
    /// Memory of large requests, for the body.
    memory: RequestMemory,
}

impl<'i> PreparedApply<'i> {
    pub(in crate::reconcile) fn item(&self) -> &'i PreparedObject {
        self.item
    }

    /// Returns true if the values were computed from one version of the object.
    pub(super) fn is_of_a_version(&self) -> bool {
        self.version.is_some()
    }

    pub(in crate::reconcile) fn target(&self) -> &Target {
        &self.target
    }

    /// Returns true if the apply creates the object.
    pub(in crate::reconcile) fn creates(&self) -> bool {
        self.target == Target::Absent
    }

    /// Returns the resourceVersion in the request, if the request contains one. Then the apply
    /// changes only this version of the object.
    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns true if the next dry runs must name the current version of the object.
    pub(super) fn needs_checked_version(&self) -> bool {
        let is_update = matches!(self.target, Target::Uid(_));
        is_update && self.version.is_none() && self.checked_version.is_none()
    }

    /// Returns the resourceVersion in which the object was observed.
    pub(super) fn observed_version(&self) -> Option<u64> {
        self.observed_version
    }

    /// Returns the apply with the resourceVersion in which the object was observed.
    pub(super) fn observed_in(self, version: Option<u64>) -> Self {
        Self {
            observed_version: version,
            ..self
        }
    }

    /// Returns the apply for this version of the object.
    pub(super) fn with_checked_version(self, version: u64) -> Self {
        Self {
            checked_version: (version > 0).then(|| version.to_string()),
            ..self
        }
    }

    /// Returns the applied values, without the creation mark, the uid and the resourceVersion.
    pub(in crate::reconcile) fn values(&self) -> &Value {
        self.values.as_ref().unwrap_or(&self.item.value)
    }

    /// Computes the hash of the request.
    pub(in crate::reconcile) fn request_hash(&self) -> RequestHash {
        RequestHash::of(self.values(), self.mark, &self.installer)
    }

    /// Returns true if the ownership of fields was changed since the object was read.
    pub(in crate::reconcile) fn has_moved_fields(&self) -> bool {
        self.has_moved_fields
    }

    /// Returns the apply, and marks that the ownership of fields was changed.
    pub(super) fn with_moved_fields(self) -> Self {
        Self {
            has_moved_fields: true,
            checked_version: None,
            observed_version: None,
            ..self
        }
    }

    /// Returns true if cached results must not be used.
    pub(super) fn bypasses_cache(&self) -> bool {
        self.bypasses_cache
    }

    /// Returns the apply, and marks that the next check must not use cached results, and must check
    /// the current version of the object.
    pub(super) fn bypassing_cache(self) -> Self {
        Self {
            bypasses_cache: true,
            checked_version: None,
            observed_version: None,
            ..self
        }
    }

    /// Returns the user name of the installing ServiceAccount.
    pub(super) fn installer(&self) -> &str {
        &self.installer
    }

    /// Waits for the memory of a request that impersonates `user`, and then builds the body of the
    /// request. Each call returns the same bytes.
    pub(super) async fn body(&self, user: &str) -> ApplyBody {
        let mark = self.mark.map(|mark| mark.to_string());
        let length = json::length(&self.object(mark.as_deref()));
        let extensions = self.memory.reserve(length as u64, user).await;
        let mut json = Vec::with_capacity(length);
        // Writing to a vector cannot fail.
        serde_json::to_writer(&mut json, &self.object(mark.as_deref())).ok();
        ApplyBody { json, extensions }
    }

    /// Returns true if both requests have the same body.
    pub(super) fn has_same_body(&self, other: &PreparedApply<'_>) -> bool {
        let is_same_state = self.target == other.target
            && self.version == other.version
            && self.checked_version == other.checked_version;
        is_same_state && self.mark == other.mark && self.values() == other.values()
    }

    /// Returns the object in the request: the applied values with the creation mark, the uid and
    /// the resourceVersion.
    fn object<'a>(&'a self, mark: Option<&'a str>) -> ChangedMap<'a> {
        let values = self.values();
        let metadata = values.get("metadata").and_then(Value::as_object);
        let mut changes = Vec::new();
        if let Some(mark) = mark {
            let annotations = metadata.and_then(|metadata| metadata.get("annotations"));
            let annotations = ChangedMap {
                entries: annotations.and_then(Value::as_object),
                changes: vec![(names::ANNOTATION_CREATION_MARK, NewEntry::Text(mark))],
            };
            changes.push(("annotations", NewEntry::Map(annotations)));
        }
        if let Target::Uid(uid) = &self.target {
            changes.push(("uid", NewEntry::Text(uid)));
        }
        let version = self.version().or(self.checked_version.as_deref());
        let version = version.or(self.creates().then_some(NO_VERSION));
        if let Some(version) = version {
            changes.push(("resourceVersion", NewEntry::Text(version)));
        }
        let metadata = ChangedMap {
            entries: metadata,
            changes,
        };
        ChangedMap {
            entries: values.as_object(),
            changes: vec![("metadata", NewEntry::Map(metadata))],
        }
    }
}

/// A map in which some entries are replaced or added. The other entries are not copied, because no
/// memory is reserved for a copy of the object.
struct ChangedMap<'a> {
    /// All entries of the unchanged map. `None` if there is no such map.
    entries: Option<&'a Map<String, Value>>,
    /// The replaced and the added entries.
    changes: Vec<(&'static str, NewEntry<'a>)>,
}

/// The value of a replaced or an added entry.
enum NewEntry<'a> {
    Text(&'a str),
    Map(ChangedMap<'a>),
}

impl Serialize for ChangedMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.entries.into_iter().flatten() {
            if !self.changes.iter().any(|(changed, _)| changed == name) {
                map.serialize_entry(name, value)?;
            }
        }
        for (name, value) in &self.changes {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Serialize for NewEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Map(map) => map.serialize(serializer),
        }
    }
}

/// Prepares applies. Reads an object only if the values in its apply depend on the current object.
pub(in crate::reconcile) struct Preparer {
    /// Client of the installing ServiceAccount.
    pub(in crate::reconcile) client: Client,
    /// The installing ServiceAccount.
    pub(in crate::reconcile) account: ServiceAccount,
    /// Rules for fields that are not applied.
    pub(in crate::reconcile) ignore: Vec<Rule>,
    /// The inventory of the BundleDeployment. The inventory records the installed objects.
    pub(in crate::reconcile) inventory: Arc<Inventory>,
    /// True if objects without an owner are adopted.
    pub(in crate::reconcile) adopt: bool,
    /// Objects whose `spec.replicas` is not applied.
    pub(in crate::reconcile) scaled_objects: Arc<ScaledObjects>,
    /// Memory of large requests to the API server.
    pub(in crate::reconcile) memory: RequestMemory,
}

impl Preparer {
    /// Prepares the apply of `item` to `target`. Reads the target object only if an ignore rule
    /// matches the item, or if the item sets `spec.replicas`. Returns [`ApplyError::Moved`] if this
    /// object does not exist, or if another object with the same name exists.
    pub(in crate::reconcile) async fn prepare<'i>(
        &self,
        item: &'i PreparedObject,
        target: Target,
    ) -> Result<PreparedApply<'i>, ApplyError> {
        let mut prepared = PreparedApply {
            item,
            target,
            values: None,
            version: None,
            checked_version: None,
            observed_version: None,
            mark: self.inventory.mark(&item.key),
            installer: self.account.user_name(),
            has_moved_fields: false,
            bypasses_cache: false,
            memory: self.memory.clone(),
        };
        // All rules are compared with all objects of the content, often without a request for each
        // object.
        tokio::task::coop::consume_budget().await;
        let rules = self.rules(item);
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
        let leaves_replicas = scales
            && self
                .scaled_objects
                .is_scaled_by_other(&self.client, item, &live, &rules)
                .await;
        if rules.is_empty() && !leaves_replicas {
            return Ok(prepared);
        }
        let mut values = item.value.clone();
        blocking::run(|| leave_to_others(&mut values, &live, &rules))?;
        if leaves_replicas {
            scaling::remove_replicas(&mut values);
        }
        prepared.values = Some(values);
        prepared.version = live.metadata.resource_version;
        Ok(prepared)
    }

    /// Returns the ignore rules that match `item`.
    fn rules(&self, item: &PreparedObject) -> Vec<&Rule> {
        let rules = self.ignore.iter();
        rules.filter(|rule| rule.fits(&item.id)).collect()
    }

    /// Returns the change of field ownership that must precede the apply.
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

    /// Reads the object again after a conflict or an unknown outcome, and prepares the apply for
    /// its current state. Fails with [`ApplyError::Moved`] if the object was deleted, or if another
    /// object with the same name exists now. `is_uncertain` is true if the outcome of an earlier
    /// request is unknown. If the object was missing before that request and now has the creation
    /// mark, that request created the object.
    pub(super) async fn prepare_again<'i>(
        &self,
        prepared: &PreparedApply<'i>,
        is_uncertain: bool,
    ) -> Result<PreparedApply<'i>, ApplyError> {
        let item = prepared.item;
        let live = object::observe(&self.client, &item.kind, &item.id).await;
        let live = live.map_err(ApplyError::Api)?;
        match (&prepared.target, live) {
            (Target::Uid(uid), Some(live)) if live.uid == *uid => {
                if prepared.version.is_none() {
                    let now = prepared.clone();
                    return Ok(if prepared.checked_version.is_some() {
                        now.with_checked_version(live.version)
                    } else {
                        now
                    });
                }
                let now = self.prepare(item, prepared.target.clone()).await?;
                Ok(PreparedApply {
                    has_moved_fields: prepared.has_moved_fields,
                    ..now
                })
            }
            (Target::Absent, None) => Ok(prepared.clone()),
            (Target::Absent, Some(live))
                if is_uncertain && live.mark.is_some() && live.mark == prepared.mark =>
            {
                let now = self.prepare(item, Target::Uid(live.uid)).await?;
                Ok(now.observed_in(Some(live.version)))
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
    ignore::apply_rules(values, &live, &entries, rules);
    Ok(())
}
