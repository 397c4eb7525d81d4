//! Server-side apply of one object, and kubectl's word for what it did.
//! Not here: what the object is.

use kube::api::{Api, Patch, PatchParams};
use kube::core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Cluster;
use crate::failure::Outcome;

/// Who we are in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "kubectl-bundle";

/// Whether the cluster is changed.
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

/// The object without what every write changes.
fn essence(object: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(key);
        }
    }
    value
}

impl Cluster {
    /// Applies `object` and says what that did.
    pub(crate) async fn apply<K>(
        &self,
        api: &Api<K>,
        name: &str,
        object: &K,
        dry_run: DryRun,
        force: bool,
    ) -> Outcome<(K, Change)>
    where
        K: Resource + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        let before = self.ask(api.get_opt(name)).await?;
        let mut parameters = PatchParams::apply(FIELD_MANAGER);
        parameters.force = force;
        parameters.dry_run = dry_run == DryRun::Server;
        let after = self
            .ask(api.patch(name, &parameters, &Patch::Apply(object)))
            .await?;
        let change = match &before {
            None => Change::Created,
            Some(before) if essence(before) == essence(&after) => Change::Unchanged,
            Some(_) => Change::Configured,
        };
        Ok((after, change))
    }
}
