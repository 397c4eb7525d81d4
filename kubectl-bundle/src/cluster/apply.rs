//! Server-side apply of one object, and kubectl's word for what it did.

use bundle_cluster::ByName;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::Resource;
use serde_json::Value;

use super::Cluster;
use crate::failure::Outcome;

/// Who we are in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "kubectl-bundle";

/// `true` if the cluster is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DryRun {
    /// It is.
    None,
    /// It is not even asked.
    Client,
    /// It is asked, and decides as if it were meant.
    Server,
}

impl DryRun {
    /// What kubectl adds to its line.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// What applying did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was not there.
    Created,
    /// It is different now.
    Configured,
    /// It was like this already.
    Unchanged,
}

impl Change {
    /// kubectl's word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }
}

/// The object without the fields that every write changes.
fn essence(object: &Value) -> Value {
    let mut value = object.clone();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(key);
        }
    }
    value
}

/// An object before and after an apply, as the API server has it.
pub(crate) struct Applied {
    /// Before; `None` where it did not exist.
    pub(crate) before: Option<Value>,
    /// After.
    pub(crate) after: Value,
}

impl Applied {
    /// The effect of the apply.
    pub(crate) fn change(&self) -> Change {
        match &self.before {
            None => Change::Created,
            Some(before) if essence(before) == essence(&self.after) => Change::Unchanged,
            Some(_) => Change::Configured,
        }
    }
}

impl Cluster {
    /// Every field of an object, also those that this program does not know; `None` where it does not exist.
    pub(crate) async fn read<K>(&self, name: &str) -> Outcome<Option<Value>>
    where
        K: Resource<DynamicType = ()>,
    {
        let api = self.untyped::<K>();
        let found = self.ask(ByName(&api).get_opt(name)).await?;
        Ok(found.map(|object| serde_json::to_value(object).unwrap_or_default()))
    }

    /// Applies `object` as field manager [`FIELD_MANAGER`]; returns it as it is afterwards.
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
            .ask(ByName(&api).patch(name, &parameters, &Patch::Apply(object)))
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
