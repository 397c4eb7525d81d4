//! Server-side apply and merge patch of one object, and kubectl's word for the result.

use bundle_cluster::ByName;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::Resource;
use serde_json::Value;

use super::Cluster;
use crate::failure::Outcome;

/// Field manager of this program in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "kubectl-bundle";

/// Mode of a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DryRun {
    /// No dry run: the cluster is changed.
    None,
    /// No request is sent.
    Client,
    /// The API server validates the request, but does not store the object.
    Server,
}

impl DryRun {
    /// Returns the text that kubectl prints after a result in this mode, such as ` (server dry
    /// run)`.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// Result of an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApplyResult {
    /// The object did not exist.
    Created,
    /// The object changed.
    Configured,
    /// The object did not change.
    Unchanged,
}

impl ApplyResult {
    /// Returns kubectl's word for the result, such as `configured`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }
}

/// Returns the object without the fields that every write changes.
fn without_volatile_fields(object: &Value) -> Value {
    let mut value = object.clone();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(key);
        }
    }
    value
}

/// An object before and after an apply, as the API server returned it.
pub(crate) struct AppliedObject {
    /// Object before the apply; `None` if the object did not exist.
    pub(crate) before: Option<Value>,
    /// Object after the apply.
    pub(crate) after: Value,
}

impl AppliedObject {
    /// Returns the result of the apply.
    pub(crate) fn change(&self) -> ApplyResult {
        match &self.before {
            None => ApplyResult::Created,
            Some(before)
                if without_volatile_fields(before) == without_volatile_fields(&self.after) =>
            {
                ApplyResult::Unchanged
            }
            Some(_) => ApplyResult::Configured,
        }
    }
}

impl Cluster {
    /// Returns an object with all its fields, including unknown fields. Returns `None` if the
    /// object does not exist.
    pub(crate) async fn read<K>(&self, name: &str) -> Outcome<Option<Value>>
    where
        K: Resource<DynamicType = ()>,
    {
        let api = self.untyped::<K>();
        let found = self.send(ByName(&api).get_opt(name)).await?;
        Ok(found.map(|object| serde_json::to_value(object).unwrap_or_default()))
    }

    /// Applies `object` as field manager [`FIELD_MANAGER`] and returns the stored object.
    pub(crate) async fn apply<K>(
        &self,
        name: &str,
        object: &Value,
        dry_run: DryRun,
        force: bool,
    ) -> Outcome<Value>
    where
        K: Resource<DynamicType = ()>,
    {
        let mut parameters = PatchParams::apply(FIELD_MANAGER);
        parameters.force = force;
        parameters.dry_run = dry_run == DryRun::Server;
        let api = self.untyped::<K>();
        let after = self
            .send(ByName(&api).patch(name, &parameters, &Patch::Apply(object)))
            .await?;
        Ok(serde_json::to_value(after).unwrap_or_default())
    }

    /// Merges `patch` into an object as field manager [`FIELD_MANAGER`], and returns the object.
    /// Fields that the patch does not contain keep their values and field managers.
    pub(crate) async fn merge<K>(
        &self,
        name: &str,
        patch: &Value,
        dry_run: DryRun,
    ) -> Outcome<Value>
    where
        K: Resource<DynamicType = ()>,
    {
        let mut parameters = PatchParams::apply(FIELD_MANAGER);
        parameters.dry_run = dry_run == DryRun::Server;
        let api = self.untyped::<K>();
        let after = self
            .send(ByName(&api).patch(name, &parameters, &Patch::Merge(patch)))
            .await?;
        Ok(serde_json::to_value(after).unwrap_or_default())
    }

    fn untyped<K>(&self) -> Api<DynamicObject>
    where
        K: Resource<DynamicType = ()>,
    {
        Api::all_with(self.client.clone(), &ApiResource::erase::<K>(&()))
    }
}
