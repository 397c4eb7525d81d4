//! Lookups that the decision on a write requires. A write that does not change a checked spec
//! requires no lookup.

use std::collections::BTreeSet;

use super::{Kind, StampState, Subject};
use crate::{
    diagnostic::{Finding, Findings},
    names::{KubeName, NameKind},
    reference::{Digest, Reference},
    review::{
        canonical,
        deployment::CheckedDeploymentSpec,
        fields::{self, Field},
        source::{CheckedBundleSpec, PullCredentials, Source},
    },
    service_account::ServiceAccount,
};

/// Lookups that a review requires.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredLookups {
    /// Classes, by name. For each class: the spec, and an access review for verb `use`.
    pub classes: BTreeSet<KubeName>,
    /// Access review for verb `impersonate` on this ServiceAccount; `None` if no review is
    /// required.
    pub impersonate: Option<ServiceAccount>,
    /// BundleDeployment of this name, and an access review for verb `approve` on its class; `None`
    /// if no lookup is required.
    pub deployment: Option<KubeName>,
    /// Image in the registry: annotations of its manifest, and its signatures if a policy matches.
    /// `None` if no lookup is required.
    pub image: Option<Image>,
    /// ConfigMaps in the system namespace. For each ConfigMap: an access review for verb `get`, and
    /// the field `immutable`.
    pub config_maps: BTreeSet<KubeName>,
    /// Secret in the system namespace with the credentials of the source: an access review for verb
    /// `get`. `None` if no review is required.
    pub secret: Option<KubeName>,
}

/// Image to look up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Reference of the image.
    pub reference: Reference,
    /// Class of the Bundle. The class determines whether connections without verified TLS are
    /// allowed.
    pub class: KubeName,
    /// Credentials for the registry.
    pub credentials: PullCredentials,
}

/// Parsed spec of an object of one of the reviewed kinds.
#[derive(Debug, Clone)]
pub(in crate::review) enum Spec {
    Bundle(CheckedBundleSpec),
    Deployment(Box<CheckedDeploymentSpec>),
    Approval(CheckedApprovalSpec),
}

/// Validated spec of a BundleApproval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedApprovalSpec {
    /// Name of the BundleDeployment.
    pub deployment: KubeName,
    /// Uid of the BundleDeployment.
    pub uid: String,
    /// Generation of the BundleDeployment that the author of the approval reviewed; `None` if the
    /// approval names no generation.
    pub generation: Option<i64>,
    /// Digest of the content.
    pub digest: Digest,
    /// Reason of the approval; `None` if the author gave no reason.
    pub reason: Option<String>,
}

impl CheckedApprovalSpec {
    /// Parses `spec` of a BundleApproval.
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

pub(in crate::review) fn read(subject: &Subject<'_>) -> Result<Spec, Findings> {
    let spec = subject.spec();
    match subject.kind {
        Kind::Bundle => CheckedBundleSpec::parse(spec).map(Spec::Bundle),
        Kind::BundleDeployment => {
            CheckedDeploymentSpec::parse(spec).map(|spec| Spec::Deployment(Box::new(spec)))
        }
        Kind::BundleApproval => CheckedApprovalSpec::parse(spec).map(Spec::Approval),
    }
}

/// Returns `true` if the rules about permissions and content apply to the write.
pub(in crate::review) fn is_checked(subject: &Subject<'_>) -> bool {
    if subject.is_deleted_unconfirmed() || subject.stamp_state == StampState::Inherited {
        return false;
    }
    if subject.spec_meaning_unchanged() {
        return subject.admits && !subject.own;
    }
    // A change of an immutable field is rejected without any lookup.
    subject.old.is_none() || subject.kind == Kind::BundleDeployment
}

/// Returns `true` if the content must be looked up. The lookup is not necessary in two cases:
/// - An update of a checked BundleDeployment keeps class, template, configuration and `kubernetes`,
///   so that the installed objects stay the same.
/// - The object is being deleted and its spec is unchanged.
pub(in crate::review) fn content_is_checked(subject: &Subject<'_>) -> bool {
    if subject.is_removed_unchanged() {
        return false;
    }
    let Some(old) = subject
        .old_spec()
        .filter(|_| subject.stamp_state == StampState::Stamped && !subject.admits)
    else {
        return true;
    };
    ["provisionerClassName", "template", "config", "kubernetes"]
        .iter()
        .any(|member| !canonical::same(&old[member], &subject.spec()[member]))
}

/// Returns the lookups that the decision on this write requires. For an invalid spec there are no
/// lookups, and the judge reports the errors.
pub fn needs(subject: &Subject<'_>) -> RequiredLookups {
    let mut needs = RequiredLookups::default();
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
        needs.secret = bundle.source.credentials().cloned();
        match &bundle.source {
            Source::Image {
                reference,
                credentials,
            } => {
                needs.image = Some(Image {
                    reference: reference.clone(),
                    class: bundle.class.clone(),
                    credentials: credentials.clone(),
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
