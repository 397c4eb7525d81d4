//! Actors of the soak test. Each action is a random change of the cluster by a user or another
//! program.

use anyhow::{Context, Result};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::{Api, Client};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use super::model::{self, Key};

/// Change of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// A merge patch of a field that the content sets.
    Patch,
    /// A merge patch that removes a field or a label.
    Remove,
    /// A server-side apply under the field manager of the reconciler.
    ForgeManager,
    /// A deletion.
    Delete,
    /// Another number of replicas, set through the subresource `scale` as by `kubectl scale`.
    Scale,
    /// Removal or change of the reconciler's labels.
    Relabel,
    /// Patch that adds a field that the content does not set. The reconciler keeps this field.
    Extend,
}

const CHANGES: &[(Change, u32)] = &[
    (Change::Patch, 8),
    (Change::Remove, 3),
    (Change::ForgeManager, 3),
    (Change::Delete, 5),
    (Change::Scale, 3),
    (Change::Relabel, 2),
    (Change::Extend, 2),
];

/// Selects a random change by weight.
pub(super) fn choose(random: &mut StdRng) -> Change {
    CHANGES
        .choose_weighted(random, |(_, weight)| *weight)
        .map_or(Change::Patch, |(change, _)| *change)
}

/// Returns a client for the kind and namespace of `key`.
pub(super) fn api(client: &Client, key: &Key) -> Api<DynamicObject> {
    let (group, version) = match key.api_version.split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", key.api_version.as_str()),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &key.kind));
    match &key.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Applies `change` to the object `expected`. A missing object is not an error.
pub(super) async fn apply_change(
    client: &Client,
    random: &mut StdRng,
    change: Change,
    expected: &Value,
) -> Result<()> {
    let key = Key::of(expected);
    let api = api(client, &key);
    let number: u32 = random.random_range(0..1_000_000);
    let outcome = match change {
        Change::Delete => api
            .delete(&key.name, &DeleteParams::background())
            .await
            .map(drop),
        Change::Patch => merge(&api, &key, "soak-edit", &edit(&key, number)).await,
        Change::Remove => merge(&api, &key, "soak-edit", &removal(&key)).await,
        Change::Scale => {
            let parameters = PatchParams {
                field_manager: Some("kubectl".to_owned()),
                ..PatchParams::default()
            };
            let patch = json!({"spec": {"replicas": 1 + number % 3}});
            api.patch_scale(&key.name, &parameters, &Patch::Merge(&patch))
                .await
                .map(drop)
        }
        Change::Relabel => {
            let value = [Value::Null, json!("somebody-else")];
            let value = value.choose(random).cloned().unwrap_or_default();
            let labels =
                json!({"core.rukpak.io/owner-name": value, "core.rukpak.io/owner-kind": value});
            merge(
                &api,
                &key,
                "soak-label",
                &json!({"metadata": {"labels": labels}}),
            )
            .await
        }
        Change::Extend => {
            let annotations = json!({"soak.example.com/note": number.to_string()});
            merge(
                &api,
                &key,
                "soak-note",
                &json!({"metadata": {"annotations": annotations}}),
            )
            .await
        }
        Change::ForgeManager => {
            let mut object = edit(&key, number);
            object["apiVersion"] = json!(key.api_version);
            object["kind"] = json!(key.kind);
            object["metadata"]["name"] = json!(key.name);
            let parameters = PatchParams::apply("bundle-webhook").force();
            // Without this check, a missing object would be created with only these fields.
            match api.get_metadata_opt(&key.name).await {
                Ok(Some(_)) => api
                    .patch(&key.name, &parameters, &Patch::Apply(&object))
                    .await
                    .map(drop),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            }
        }
    };
    match outcome {
        Ok(()) => Ok(()),
        // The object is missing or was changed at the same time, or the change is invalid in this
        // state. These errors are expected while actors run.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404 | 409 | 422 | 500) => {
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("cannot make {change:?} to {key:?}")),
    }
}

async fn merge(
    api: &Api<DynamicObject>,
    key: &Key,
    manager: &str,
    patch: &Value,
) -> kube::Result<()> {
    let parameters = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    api.patch(&key.name, &parameters, &Patch::Merge(patch))
        .await
        .map(drop)
}

/// Returns a merge patch that changes a field that the content sets.
fn edit(key: &Key, number: u32) -> Value {
    match key.kind.as_str() {
        "ConfigMap" => json!({"data": {"revision": format!("changed to {number}")}}),
        "Secret" => json!({"data": {"value": "Y2hhbmdlZA=="}}),
        "Role" => {
            json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]})
        }
        "Deployment" => {
            json!({"spec": {"template": {"metadata": {"annotations": {"changed": number.to_string()}}}, "replicas": number % 3}})
        }
        "Service" => json!({"spec": {"selector": {"app": format!("other-{number}")}}}),
        "Soak" => json!({"spec": {"size": number}}),
        _ => json!({"metadata": {"labels": {"soak": format!("changed-{number}")}}}),
    }
}

/// Returns a merge patch that removes a field that the content sets.
fn removal(key: &Key) -> Value {
    match key.kind.as_str() {
        "ConfigMap" => json!({"data": {"index": null}}),
        "Secret" => json!({"data": {"value": null}}),
        "Soak" => json!({"spec": {"size": null}}),
        _ => json!({"metadata": {"labels": {"revision": null}}}),
    }
}

/// Creates a ConfigMap that no bundle contains, with the labels of an installed object. Returns the
/// ConfigMap for a later comparison, or `None` if the API server rejects the ConfigMap.
pub(super) async fn create_unmanaged_config_map(
    client: &Client,
    package: &str,
    number: u32,
) -> Result<Option<Value>> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("foreign-{number}"), "namespace": package, "labels": {
            "core.rukpak.io/owner-kind": "BundleDeployment", "core.rukpak.io/owner-name": package, "soak": package,
        }},
        "data": {"number": number.to_string()},
    });
    let key = Key::of(&object);
    let made: DynamicObject = serde_json::from_value(object.clone())?;
    match api(client, &key)
        .create(&kube::api::PostParams::default(), &made)
        .await
    {
        Ok(_) => Ok(Some(object)),
        Err(kube::Error::Api(_)) => Ok(None),
        Err(error) => Err(error).context("cannot create an unmanaged ConfigMap"),
    }
}

/// Returns the objects of a kind in a namespace.
pub(super) async fn list(
    client: &Client,
    namespace: &str,
    api_version: &str,
    kind: &str,
) -> Result<Vec<Value>> {
    let key = Key {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: Some(namespace.to_owned()),
        name: String::new(),
    };
    let found = match api(client, &key)
        .list(&kube::api::ListParams::default())
        .await
    {
        Ok(found) => found.items,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot list {kind} in {namespace}"));
        }
    };
    found
        .into_iter()
        .map(|mut object| {
            object.types = Some(TypeMeta {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
            });
            serde_json::to_value(object).context("cannot serialize an object")
        })
        .collect()
}

/// Returns the kinds that a package installs into its namespace, as `(apiVersion, kind)`.
pub(super) fn kinds(package: &str) -> Vec<(String, String)> {
    let mut kinds = vec![];
    for object in model::objects(package, 0) {
        let key = Key::of(&object);
        let kind = (key.api_version, key.kind);
        if key.namespace.is_some() && !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}
