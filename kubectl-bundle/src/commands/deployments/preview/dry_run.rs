//! Sends each apply as a server-side dry run, and compares the object before and after the apply.

use std::collections::BTreeSet;

use bundle_api::names;
use bundle_cluster::object::entries;
use bundle_cluster::{ByName, error, namespaced};
use bundle_core::plan::ignore::{self, Rule};
use bundle_core::plan::jobs;
use bundle_core::plan::ownership;
use bundle_core::plan::replace::{self, ReplacePolicy, Replacement};
use bundle_core::plan::scaling::{self, ReplicasOwner};
use bundle_core::review::deployment::CheckedDeploymentSpec;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::Value;

use super::objects::WantedObject;
use super::origin::ObjectOrigin;
use super::{ChangeKind, ChangeNote, NoteEffect, ObjectChange, PreviewFailure, certificates};
use crate::cluster::Cluster;
use crate::cluster::definitions::{self, UpgradeProblem};
use crate::failure::exit::Exit;
use crate::failure::{Failure, api_server};

/// Maximum number of autoscalers that are read in one namespace.
const MAX_AUTOSCALERS: u32 = 100;
/// Fields of `metadata` that every write changes, or that differ in each dry run.
const VOLATILE: [&str; 6] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];
/// Annotations that a diff does not show, because the content does not contain them. The annotation
/// of kubectl repeats the whole object.
const HIDDEN_ANNOTATIONS: [&str; 2] = [
    names::ANNOTATION_CREATION_MARK,
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// Sends server-side dry runs for the objects of the previewed content.
pub(super) struct DryRuns<'a> {
    cluster: &'a Cluster,
    spec: &'a CheckedDeploymentSpec,
    applyset: &'a str,
    /// `true` if the content is installed. In this case, a missing Job with a TTL has expired, and
    /// is not created again.
    is_installed: bool,
    /// `true` if the BundleDeployment has installed any content. In this case, an object that
    /// bundle-webhook applied belongs to the BundleDeployment even if its labels are missing.
    has_content: bool,
    /// Namespaces that the content creates.
    created: BTreeSet<&'a str>,
}

impl<'a> DryRuns<'a> {
    /// Prepares the dry runs for the objects `wanted`. No request is sent.
    pub(super) fn new(
        cluster: &'a Cluster,
        spec: &'a CheckedDeploymentSpec,
        applyset: &'a str,
        (is_installed, has_content): (bool, bool),
        wanted: &'a [WantedObject],
    ) -> Self {
        let namespaces = wanted
            .iter()
            .filter(|object| object.id.group.is_empty() && object.id.kind == "Namespace");
        Self {
            cluster,
            spec,
            applyset,
            is_installed,
            has_content,
            created: namespaces.map(|object| object.id.name.as_str()).collect(),
        }
    }

    /// Returns the change of one object; `None` if the object does not change.
    pub(super) async fn change(
        &self,
        object: &WantedObject,
    ) -> Result<Option<ObjectChange>, PreviewFailure> {
        let failed = |failure: &Failure| PreviewFailure {
            key: object.key.clone(),
            message: message(failure),
            is_retryable: failure.exit() == Exit::Unknown,
            is_forbidden: matches!(failure, Failure::Server(status) if status.code == 403),
        };
        // The kind is defined by the content, so the API server serves it only after the first
        // phases of the installation. Therefore no dry run is possible.
        if !object.is_served {
            return Ok(Some(created(object, object.value.clone())));
        }
        let namespace = object.id.namespace.as_deref();
        let namespace = namespace.filter(|_| object.kind.namespaced);
        let resource = &object.kind.resource;
        let api = namespaced::<DynamicObject>(&self.cluster.client, resource, namespace);
        let api = self.cluster.send(async { api }).await;
        let api = api.map_err(|failure| failed(&failure))?;
        let live = self
            .cluster
            .send(ByName(&api).get_opt(&object.id.name))
            .await;
        let Some(live) = live.map_err(|failure| failed(&failure))? else {
            if self.is_installed && jobs::ttl(&object.id, &object.value).is_some() {
                return Ok(None);
            }
            return match self.apply(&api, object, object.value.clone(), false).await {
                Ok(after) => Ok(Some(created(object, after))),
                // The namespace exists only after the first phases of the installation.
                Err(Failure::Server(status))
                    if status.code == 404
                        && namespace.is_some_and(|name| self.created.contains(name)) =>
                {
                    Ok(Some(created(object, object.value.clone())))
                }
                Err(failure) => Err(failed(&failure)),
            };
        };
        let before = serde_json::to_value(&live).unwrap_or_default();
        let mut values = self.values(object, &live, &before).await;
        values["metadata"]["uid"] = before["metadata"]["uid"].clone();
        let mut note = self.collision(&live);
        if note.is_none() && object.id.is_definition() {
            note = self.definition_upgrade(&before, &object.value).await;
        }
        let is_adopted = note
            .as_ref()
            .is_some_and(|note| note.effect == NoteEffect::Adoption);
        let origin = ObjectOrigin::of(&live.metadata).filter(|_| is_adopted);
        match self.apply(&api, object, values.clone(), true).await {
            Ok(mut after) => {
                if is_adopted {
                    after = self.result_of_adoption(&api, object, after).await;
                }
                let (before, after) = (cleaned(before), cleaned(after));
                if before == after && note.is_none() {
                    return Ok(None);
                }
                Ok(Some(ObjectChange {
                    key: object.key.clone(),
                    api_version: object.id.api_version(),
                    kind: ChangeKind::Configured,
                    before: Some(before),
                    after: Some(after),
                    note,
                    origin,
                }))
            }
            Err(Failure::Server(status)) if error::immutable(&status).is_some() => {
                let fields = error::immutable(&status).unwrap_or_default();
                Ok(Some(ObjectChange {
                    key: object.key.clone(),
                    api_version: object.id.api_version(),
                    kind: ChangeKind::Replaced,
                    note: Some(if is_adopted {
                        let text = format!(
                            "{} immutable, and an object that is being adopted is never replaced",
                            fields_with_verb(&fields)
                        );
                        ChangeNote::new(text, NoteEffect::Failure)
                    } else {
                        self.replacement(object, &before, &fields)
                    }),
                    before: Some(cleaned(before)),
                    after: Some(cleaned(values)),
                    origin: None,
                }))
            }
            Err(failure) => Err(failed(&failure)),
        }
    }

    /// Sends the apply as a dry run.
    async fn apply(
        &self,
        api: &Api<DynamicObject>,
        object: &WantedObject,
        values: Value,
        exists: bool,
    ) -> Result<Value, Failure> {
        let parameters = PatchParams {
            dry_run: true,
            force: exists,
            ..PatchParams::apply(names::FIELD_MANAGER)
        };
        let patch = Patch::Apply(values);
        let api = ByName(api);
        let request = api.patch(&object.id.name, &parameters, &patch);
        let after = self.cluster.send(request).await?;
        Ok(serde_json::to_value(after).unwrap_or_default())
    }

    /// Returns the object after its adoption. `after` is the result of the dry run of the apply.
    /// The fields that only former field managers own are removed. A second dry run then sets the
    /// removed fields to their defaults. If the API server rejects the second dry run, the removed
    /// fields are missing in the result.
    async fn result_of_adoption(
        &self,
        api: &Api<DynamicObject>,
        object: &WantedObject,
        after: Value,
    ) -> Value {
        let mut left = after.clone();
        ownership::remove_former_fields(&mut left);
        if left == after {
            return after;
        }
        let Ok(value) = serde_json::from_value(left.clone()) else {
            return left;
        };
        let api = ByName(api);
        let request = api.dry_run_replace(&object.id.name, &value);
        match self.cluster.send(request).await {
            Ok(defaulted) => serde_json::to_value(defaulted).unwrap_or(left),
            Err(_) => left,
        }
    }

    /// Returns the values that bundle-webhook applies: the object without fields that a drift rule
    /// leaves to other field managers, and without replicas that another field manager sets.
    async fn values(&self, object: &WantedObject, live: &DynamicObject, before: &Value) -> Value {
        let mut values = object.value.clone();
        if object.has_certificate {
            certificates::copy_certificates(&mut values, before);
        }
        let rules: Vec<&Rule> = self
            .spec
            .drift_ignore
            .iter()
            .filter(|rule| rule.fits(&object.id))
            .collect();
        if !rules.is_empty() {
            let entries: Vec<_> = entries(&live.metadata).collect();
            ignore::apply_rules(&mut values, before, &entries, &rules);
        }
        if scaling::sets_replicas(&object.value) && self.is_scaled_by_other(object, live).await {
            scaling::remove_replicas(&mut values);
        }
        values
    }

    /// Returns `true` if an autoscaler or another field manager sets `spec.replicas`. Also returns
    /// `true` if the autoscalers cannot be read.
    async fn is_scaled_by_other(&self, object: &WantedObject, live: &DynamicObject) -> bool {
        match scaling::replicas_owner(entries(&live.metadata)) {
            None => return false,
            Some(ReplicasOwner::Manager(_)) => return true,
            Some(ReplicasOwner::Autoscaler) => {}
        }
        let resource = ApiResource::erase::<HorizontalPodAutoscaler>(&());
        let namespace = object.id.namespace.as_deref();
        let api = namespaced::<DynamicObject>(&self.cluster.client, &resource, namespace);
        let parameters = ListParams::default().limit(MAX_AUTOSCALERS);
        let list = self.cluster.send(async { api?.list(&parameters).await });
        let Ok(list) = list.await else {
            return true;
        };
        let scalers: Vec<Value> = list
            .items
            .iter()
            .filter_map(|scaler| serde_json::to_value(scaler).ok())
            .collect();
        scaling::scaler_of(&scalers, &object.id).is_some()
            || scalers.len() >= MAX_AUTOSCALERS as usize
    }

    /// Returns a note if the existing object does not belong to the BundleDeployment.
    fn collision(&self, live: &DynamicObject) -> Option<ChangeNote> {
        let labels = live.metadata.labels.as_ref();
        let label = |name: &str| labels.and_then(|labels| labels.get(name));
        let is_applied = entries(&live.metadata)
            .any(|entry| entry.manager == names::FIELD_MANAGER && entry.operation == "Apply");
        match label(names::LABEL_APPLYSET_PART_OF) {
            Some(part_of) if part_of == self.applyset => None,
            Some(_) if is_applied => {
                let owner = label(names::LABEL_OWNER_NAME).map_or("?", String::as_str);
                Some(ChangeNote::new(
                    format!(
                        "the object belongs to bundledeployment {owner}, so the installation would fail"
                    ),
                    NoteEffect::Failure,
                ))
            }
            // bundle-webhook applied the object, and another client removed its labels.
            None if is_applied && self.has_content => None,
            _ if self.spec.adopt => Some(ChangeNote::new(
                "the object exists and no bundle manages it; it is adopted",
                NoteEffect::Adoption,
            )),
            _ => Some(ChangeNote::new(
                "the object exists and no bundle manages it, so the installation would fail without spec.collision: Adopt",
                NoteEffect::Failure,
            )),
        }
    }

    /// Returns a note if the upgrade of a CustomResourceDefinition fails or may fail.
    async fn definition_upgrade(&self, live: &Value, new: &Value) -> Option<ChangeNote> {
        let (client, exceptions) = (&self.cluster.client, &self.spec.crd_exceptions);
        let problem = definitions::upgrade_problem(client, (live, new), exceptions).await?;
        let message = match problem {
            UpgradeProblem::Unsafe(message) => format!(
                "the upgrade fails without exceptions in spec.crdUpgrades.exceptions: {message}"
            ),
            UpgradeProblem::Invalid(message) => format!("the upgrade fails: {message}"),
            UpgradeProblem::Unvalidated(why) => format!(
                "the existing custom objects were not validated, and the upgrade may fail: {why}"
            ),
        };
        Some(ChangeNote::new(message, NoteEffect::UnsafeDefinition))
    }

    /// Returns a note about the replacement of an object with changed immutable fields.
    fn replacement(&self, object: &WantedObject, before: &Value, fields: &[&str]) -> ChangeNote {
        let annotation = object.value["metadata"]["annotations"][replace::ANNOTATION].as_str();
        let policy = annotation.and_then(ReplacePolicy::parse);
        let policy = policy.unwrap_or(self.spec.rollout.replace);
        match policy.decide(&object.id, jobs::has_ended(&before["status"])) {
            Replacement::Replace => ChangeNote::new(
                format!(
                    "{} immutable; the object is deleted and created again",
                    fields_with_verb(fields)
                ),
                NoteEffect::None,
            ),
            Replacement::Keep(reason) => ChangeNote::new(
                format!("{}; the upgrade fails", replace::sentence(fields, reason)),
                NoteEffect::Failure,
            ),
        }
    }
}

/// Returns `spec.selector is`, or `spec.selector, spec.template are`.
fn fields_with_verb(fields: &[&str]) -> String {
    let verb = if fields.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", fields.join(", "))
}

fn created(object: &WantedObject, after: Value) -> ObjectChange {
    ObjectChange {
        key: object.key.clone(),
        api_version: object.id.api_version(),
        kind: ChangeKind::Created,
        before: None,
        after: Some(cleaned(after)),
        note: None,
        origin: None,
    }
}

/// Returns the message of a failure in one line.
fn message(failure: &Failure) -> String {
    match failure {
        Failure::Server(status) => api_server::message(status),
        Failure::Findings { findings, .. } => findings.to_string(),
        Failure::Reported(_) | Failure::BrokenPipe => String::new(),
    }
}

/// Returns the object without `status`, and without metadata that every write changes.
pub(super) fn cleaned(mut object: Value) -> Value {
    let Some(fields) = object.as_object_mut() else {
        return object;
    };
    fields.remove("status");
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in VOLATILE {
            metadata.remove(field);
        }
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            for annotation in HIDDEN_ANNOTATIONS {
                annotations.remove(annotation);
            }
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_every_write_changes_are_hidden() {
        let object = json!({
            "metadata": {
                "name": "web", "uid": "1", "resourceVersion": "2", "generation": 3, "managedFields": [],
                "annotations": {names::ANNOTATION_CREATION_MARK: "x"},
            },
            "data": {"a": "b"},
            "status": {"ready": true},
        });
        assert_eq!(
            cleaned(object),
            json!({"metadata": {"name": "web"}, "data": {"a": "b"}})
        );
    }
}
