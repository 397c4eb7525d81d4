//! What has to be found out before a write can be judged: nothing for a write that leaves a checked spec alone.
//! Not here: finding it out (the webhook, `kubectl bundle check`) and judging (judge).

use std::collections::BTreeSet;

use super::{
    canonical,
    deployment::{CheckedDeploymentSpec, ServiceAccount},
    facts::{Kind, Standing, Subject},
    fields::{self, Field},
    source::{CheckedBundleSpec, Source},
};
use crate::{
    diagnostic::{Finding, Findings},
    names::{KubeName, NameKind},
    reference::{Digest, Reference},
};

/// What has to be found out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Classes, by name: what each says, and whether the requester has verb `use` on it.
    pub classes: BTreeSet<KubeName>,
    /// Whether the requester may impersonate this ServiceAccount.
    pub impersonate: Option<ServiceAccount>,
    /// The BundleDeployment of this name, and whether the requester has verb `approve` on its class.
    pub deployment: Option<KubeName>,
    /// What the registry holds for this image: its manifest's annotations, and its signatures where a policy matches it.
    pub image: Option<Image>,
    /// Whether the requester has verb `get` on each of these ConfigMaps of the system namespace, and whether it is immutable.
    pub config_maps: BTreeSet<KubeName>,
}

/// An image to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its reference.
    pub reference: Reference,
    /// Secret with credentials, in the system namespace.
    pub pull_secret: Option<KubeName>,
}

/// A spec that was read, of any kind.
#[derive(Debug, Clone)]
pub(super) enum Spec {
    Bundle(CheckedBundleSpec),
    Deployment(Box<CheckedDeploymentSpec>),
    Approval(CheckedApprovalSpec),
}

/// A BundleApproval's spec that can be acted on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedApprovalSpec {
    /// Name of the BundleDeployment.
    pub deployment: KubeName,
    /// Its uid.
    pub uid: String,
    /// Its generation that the author of the approval has read.
    pub generation: Option<i64>,
    /// The content.
    pub digest: Digest,
    /// Why.
    pub reason: Option<String>,
}

impl CheckedApprovalSpec {
    /// Reads `spec` of a BundleApproval.
    pub fn parse(spec: &serde_json::Value) -> Result<Self, Findings> {
        let mut findings = Findings::default();
        let field = Field::new(spec, "spec");
        let deployment = field.get("bundleDeployment");
        let name = deployment
            .get("name")
            .required_name(NameKind::Subdomain, &mut findings);
        let uid = deployment.get("uid").required(&mut findings);
        let generation = deployment.get("generation").generation(&mut findings);
        let reason = field.get("reason").text(&mut findings);
        let digest = field.get("digest");
        let digest = digest.required(&mut findings).and_then(|text| {
            text.parse()
                .map_err(|finding: Finding| {
                    fields::push(&mut findings, finding.at_field(digest.path.clone()));
                })
                .ok()
        });
        match (name, uid, digest) {
            (Some(name), Some(uid), Some(digest)) if !findings.has_errors() => Ok(Self {
                deployment: name,
                uid: uid.to_owned(),
                generation,
                digest,
                reason: reason.map(str::to_owned),
            }),
            _ => Err(findings),
        }
    }
}

pub(super) fn read(subject: &Subject<'_>) -> Result<Spec, Findings> {
    let spec = subject.spec();
    match subject.kind {
        Kind::Bundle => CheckedBundleSpec::parse(spec).map(Spec::Bundle),
        Kind::BundleDeployment => {
            CheckedDeploymentSpec::parse(spec).map(|spec| Spec::Deployment(Box::new(spec)))
        }
        Kind::BundleApproval => CheckedApprovalSpec::parse(spec).map(Spec::Approval),
    }
}

/// Whether the rules about people and content are asked at all.
pub(super) fn is_checked(subject: &Subject<'_>) -> bool {
    if subject.is_leaving() || subject.standing == Standing::Inherited {
        return false;
    }
    if subject.spec_is_kept() {
        return subject.admits && !subject.own;
    }
    // A change of what cannot change is refused without asking anybody.
    subject.old.is_none() || subject.kind == Kind::BundleDeployment
}

/// Whether the content has to be looked at: not if a checked BundleDeployment keeps its class and template, and with them its content, and not where
/// somebody takes over what is being deleted.
pub(super) fn content_is_checked(subject: &Subject<'_>) -> bool {
    if subject.is_removed_unchanged() {
        return false;
    }
    let Some(old) = subject
        .old_spec()
        .filter(|_| subject.standing == Standing::Stamped && !subject.admits)
    else {
        return true;
    };
    ["provisionerClassName", "template", "kubernetes"]
        .iter()
        .any(|member| !canonical::same(&old[member], &subject.spec()[member]))
}

/// What has to be found out about this write. Nothing where it cannot be read: the judge says why.
pub fn needs(subject: &Subject<'_>) -> Needs {
    let mut needs = Needs::default();
    if !is_checked(subject) {
        return needs;
    }
    let Ok(spec) = read(subject) else {
        return needs;
    };
    let bundle = match &spec {
        Spec::Approval(approval) => {
            needs.deployment = Some(approval.deployment.clone());
            return needs;
        }
        Spec::Bundle(bundle) => bundle,
        Spec::Deployment(deployment) => {
            needs.classes.insert(deployment.class.clone());
            if subject.changed_parts().any_of_content() {
                needs.impersonate.clone_from(&deployment.service_account);
            }
            &deployment.template.bundle
        }
    };
    needs.classes.insert(bundle.class.clone());
    if content_is_checked(subject) {
        match &bundle.source {
            Source::Image {
                reference,
                pull_secret,
            } => {
                needs.image = Some(Image {
                    reference: reference.clone(),
                    pull_secret: pull_secret.clone(),
                });
            }
            Source::ConfigMaps(files) => {
                needs.config_maps = files.iter().map(|file| file.name.clone()).collect();
            }
            _ => {}
        }
    }
    needs
}
