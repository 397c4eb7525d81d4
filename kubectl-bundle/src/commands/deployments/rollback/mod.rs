//! `rollback`: writes template and configuration of a former revision into a BundleDeployment.

mod arguments;

use bundle_api::deployment::status::Revision;
use bundle_api::{Bundle, BundleDeployment, names};
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::plan::revisions::{RecordedConfig, config_digest, recorded_config};
use bundle_core::reference::Reference;
use bundle_core::review::{same, template_hash};
use serde_json::{Map, Value, json};

use super::revisions::{self, NumberedRevision};
use super::state::prediction::Goal;
use super::write::WriteSettings;
use crate::cluster::Cluster;
use crate::cluster::apply::{DryRun, FIELD_MANAGER};
use crate::cluster::managed_fields::{self, differences};
use crate::failure::Outcome;
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Labels that bundle-webhook adds to the Bundle of a template.
const OWNER_LABELS: [&str; 3] = [
    names::LABEL_OWNER_KIND,
    names::LABEL_OWNER_NAME,
    names::LABEL_TEMPLATE_HASH,
];
/// Annotations of a Bundle that are not part of the template.
const OWN_ANNOTATIONS: [&str; 3] = [
    names::ANNOTATION_PROOF,
    names::ANNOTATION_STAMP,
    names::ANNOTATION_ADMIT,
];

/// Settings of `rollback`.
pub(crate) struct Rollback {
    /// Name of the BundleDeployment.
    pub(crate) name: String,
    /// Number or Bundle of the revision; `None` means the previous revision.
    pub(crate) to: Option<String>,
    /// `true` if the current configuration is kept.
    pub(crate) keep_config: bool,
    /// State to wait for.
    pub(crate) goal: Goal,
    /// Settings of the write.
    pub(crate) write: WriteSettings,
}

/// Values that a rollback writes.
#[derive(Debug, Clone, PartialEq)]
struct FormerSpec {
    /// Template of the Bundle.
    template: Value,
    /// Configuration. `null` if the revision has no configuration. `None` if the current
    /// configuration is kept.
    config: Option<Value>,
    /// Annotation with manifest and signatures of the content.
    proof: Option<Value>,
}

impl Rollback {
    /// Finds the revision, writes its template, prints the result, and waits if requested.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.write.cluster).await?;
        let Some(object) = cluster.read::<BundleDeployment>(&self.name).await? else {
            return Err(revisions::not_found(&self.name));
        };
        let item: BundleDeployment = serde_json::from_value(object.clone()).unwrap_or_default();
        let target = self.target(&cluster, &item, &object).await?;
        let bundle = self.bundle(&cluster, &item, target).await?;
        let former = FormerSpec {
            config: self.config(target, &object["spec"]["config"])?,
            template: template(&bundle),
            proof: bundle
                .pointer("/metadata/annotations")
                .and_then(|annotations| annotations.get(names::ANNOTATION_PROOF))
                .cloned(),
        };
        if former.is_in(&object["spec"]) {
            return Err(self.active(target));
        }
        if self.write.dry_run != DryRun::Client {
            self.check_result(&cluster, &object, &former, target)
                .await?;
        }
        ui.note(format!(
            "{} rolls back to revision {}",
            self.name,
            label(target)
        ));
        let compose = async |_: &mut Ui, before: Option<&Value>| {
            compose(&self.name, before.unwrap_or(&object), &former)
        };
        let word = Some("rolled back");
        let written = self
            .write
            .apply_as::<BundleDeployment>(ui, &self.name, word, compose)
            .await?;
        match written {
            Some(written) if self.write.dry_run == DryRun::None => {
                let (goal, wait) = (self.goal, self.write.wait);
                written.wait_until(ui, &self.name, goal, wait).await
            }
            _ => Ok(()),
        }
    }

    /// Returns the revision that `--to` names. Without `--to`, returns the previous revision.
    async fn target<'a>(
        &self,
        cluster: &Cluster,
        item: &'a BundleDeployment,
        object: &Value,
    ) -> Outcome<NumberedRevision<'a>> {
        if let Some(selector) = &self.to {
            return revisions::find(item, selector);
        }
        let bundles = revisions::bundles(cluster, item).await?;
        let wanted = &object["spec"]["template"];
        let of_template = bundles.iter().find(|bundle| {
            let bundle = serde_json::to_value(bundle).unwrap_or_default();
            same(&template(&bundle), wanted)
        });
        let wanted = of_template.and_then(|bundle| bundle.metadata.name.as_ref());
        revisions::previous(item, |revision| Some(&revision.bundle) == wanted)
    }

    /// Returns the Bundle of a revision. Fails if the Bundle no longer exists or has other content.
    async fn bundle(
        &self,
        cluster: &Cluster,
        item: &BundleDeployment,
        target: NumberedRevision<'_>,
    ) -> Outcome<Value> {
        let name = &target.revision.bundle;
        let lost = |why: &str| {
            Finding::error(
                codes::cluster::REVISION_NOT_KEPT,
                format!("revision {} cannot be installed: {why}", label(target)),
            )
            .hint(format!(
                "install its content by its digest: kubectl bundle deploy {} REPOSITORY@{}",
                self.name, target.revision.digest
            ))
        };
        let Some(found) = cluster.read::<Bundle>(name).await? else {
            return Err(lost(&format!("Bundle {name} does not exist any more")).into());
        };
        let typed: Bundle = serde_json::from_value(found.clone()).unwrap_or_default();
        let Some(hash) = revisions::generated_hash(&typed, item) else {
            let why = format!(
                "bundle-webhook did not create Bundle {name} for bundledeployment {}",
                self.name
            );
            return Err(lost(&why).into());
        };
        if template_hash(&template(&found)) != hash {
            let why = format!("labels or annotations of Bundle {name} were changed");
            return Err(lost(&why).into());
        }
        // Other users can write the status. The Bundle must therefore have the digest of the
        // revision.
        let digest = &target.revision.digest;
        let image = typed.spec.source.image.as_ref();
        let pinned = image.and_then(|image| image.reference.parse::<Reference>().ok());
        let pinned = pinned.as_ref().and_then(Reference::digest);
        let content = typed.status.and_then(|status| status.content);
        if content.is_none_or(|content| content.digest != *digest)
            || pinned.is_some_and(|pinned| pinned.as_str() != digest)
        {
            let why = format!("Bundle {name} was created again with other content");
            return Err(lost(&why).into());
        }
        Ok(found)
    }

    /// Returns the configuration to write; `None` if the current configuration is kept.
    fn config(&self, target: NumberedRevision<'_>, current: &Value) -> Outcome<Option<Value>> {
        if self.keep_config {
            return Ok(None);
        }
        match recorded_config(target.revision) {
            RecordedConfig::Known(config) => Ok(Some(config.clone())),
            RecordedConfig::Omitted { digest } if digest == config_digest(current).to_string() => {
                Ok(None)
            }
            RecordedConfig::Unknown if current.is_null() => Ok(None),
            unknown => {
                let why = match unknown {
                    RecordedConfig::Omitted { .. } => "it was too large",
                    _ => "an earlier version of bundle-webhook installed it",
                };
                Err(Finding::error(
                    codes::cluster::CONFIG_NOT_RECORDED,
                    format!("the configuration of revision {} is not recorded: {why}", label(target)),
                )
                .hint("--keep-config keeps the current spec.config; if the content needs another configuration, correct spec.config afterwards")
                .into())
            }
        }
    }

    /// Sends the write as a server-side dry run. Returns an error if the result differs from the
    /// former spec. This is possible, because an apply does not remove fields that another field
    /// manager owns.
    async fn check_result(
        &self,
        cluster: &Cluster,
        before: &Value,
        former: &FormerSpec,
        target: NumberedRevision<'_>,
    ) -> Outcome {
        let object = compose(&self.name, before, former);
        let after = cluster
            .apply::<BundleDeployment>(&self.name, &object, DryRun::Server, self.write.force)
            .await?;
        if former.is_in(&after["spec"]) {
            return Ok(());
        }
        let mut wanted = json!({"template": former.template});
        let mut actual = json!({"template": after["spec"]["template"]});
        if let Some(config) = &former.config {
            wanted["config"] = config.clone();
            actual["config"] = after["spec"]["config"].clone();
        }
        let fields = differences("spec", &wanted, &actual);
        Err(Finding::error(
            codes::cluster::ROLLBACK_INCOMPLETE,
            format!(
                "other field managers set fields that revision {} does not have: {}",
                label(target),
                fields.join("; ")
            ),
        )
        .hint(format!(
            "remove these fields with `kubectl edit bundledeployment {}` or in the repository of the GitOps tool; nothing was changed",
            self.name
        ))
        .into())
    }

    fn active(&self, target: NumberedRevision<'_>) -> crate::failure::Failure {
        Finding::error(
            codes::cluster::REVISION_ACTIVE,
            format!(
                "bundledeployment {} already has template and configuration of revision {}",
                self.name,
                label(target)
            ),
        )
        .hint(format!(
            "select another revision with --to; `kubectl bundle history {}` lists the revisions",
            self.name
        ))
        .into()
    }
}

/// Returns number and version of a revision: `2 (1.4.0)`.
fn label(target: NumberedRevision<'_>) -> String {
    let Revision {
        version, bundle, ..
    } = target.revision;
    let name = version.as_ref().unwrap_or(bundle);
    format!("{} ({name})", target.number)
}

impl FormerSpec {
    /// Returns `true` if `spec` has this template and configuration.
    fn is_in(&self, spec: &Value) -> bool {
        let config = self.config.as_ref();
        same(&self.template, &spec["template"])
            && config.is_none_or(|config| *config == spec["config"])
    }
}

/// Returns the template from which a Bundle was created.
fn template(bundle: &Value) -> Value {
    let part = |field: &str, own: &[&str]| -> Map<String, Value> {
        let members = bundle["metadata"][field].as_object().cloned();
        let members = members.unwrap_or_default().into_iter();
        members
            .filter(|(name, _)| !own.contains(&name.as_str()))
            .collect()
    };
    let mut template = json!({"spec": bundle["spec"]});
    for (field, own) in [("labels", &OWNER_LABELS), ("annotations", &OWN_ANNOTATIONS)] {
        let part = part(field, own);
        if !part.is_empty() {
            template["metadata"][field] = part.into();
        }
    }
    template
}

/// Returns the object to apply: all fields that the field manager of this program owns, with the
/// template and configuration of the former revision. If the BundleDeployment and its template had
/// the same class, the class changes in both.
fn compose(name: &str, before: &Value, former: &FormerSpec) -> Value {
    let kept = managed_fields::spec(before, FIELD_MANAGER);
    let mut spec = kept.filter(Value::is_object).unwrap_or_else(|| json!({}));
    let class = "provisionerClassName";
    let old = &before["spec"];
    let is_shared = old[class] == old["template"]["spec"][class];
    let former_class = &former.template["spec"][class];
    if is_shared && old[class] != *former_class {
        spec[class] = former_class.clone();
    }
    spec["template"] = former.template.clone();
    match &former.config {
        Some(Value::Null) => {
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("config");
            }
        }
        Some(config) => spec["config"] = config.clone(),
        None => {}
    }
    let mut metadata = json!({"name": name});
    if let Some(proof) = &former.proof {
        metadata["annotations"][names::ANNOTATION_PROOF] = proof.clone();
    }
    json!({
        "apiVersion": names::API_VERSION,
        "kind": "BundleDeployment",
        "metadata": metadata,
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_of_a_bundle_has_no_labels_and_annotations_of_the_webhook() {
        let bundle = json!({
            "metadata": {
                "labels": {"app": "web", names::LABEL_OWNER_NAME: "web", names::LABEL_TEMPLATE_HASH: "abc123"},
                "annotations": {names::ANNOTATION_PROOF: "x"},
            },
            "spec": {"provisionerClassName": "c"},
        });
        assert_eq!(
            template(&bundle),
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"provisionerClassName": "c"}})
        );
    }

    #[test]
    fn shared_class_changes_in_deployment_and_template() {
        let spec = |class: &str| json!({"provisionerClassName": class});
        let former = |class: &str| FormerSpec {
            template: json!({"spec": spec(class)}),
            config: Some(Value::Null),
            proof: None,
        };
        let before = |own: &str, template: &str| {
            let mut object = json!({"spec": spec(own)});
            object["spec"]["template"]["spec"] = spec(template);
            object
        };
        for (own, template, expected) in [("a", "a", json!("b")), ("x", "a", Value::Null)] {
            let object = compose("web", &before(own, template), &former("b"));
            assert_eq!(object["spec"]["provisionerClassName"], expected);
        }
    }
}
