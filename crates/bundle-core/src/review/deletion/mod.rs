//! Permissions for deleting a Bundle, BundleDeployment or BundleApproval. A deletion removes
//! installed objects with permissions that the requester possibly does not have, so verb `delete`
//! on the kind is not enough. The same permissions are required for writes that cause a deletion,
//! or that change the objects that a deletion removes.

mod field_ownership;
mod observed;

use crate::names::KubeName;
use std::collections::{BTreeMap, BTreeSet};

use bundle_api::names::ANNOTATION_PROOF;
use serde_json::Value;

pub use observed::{ADMITTED_AFTER, ObservedDeletion};

use super::{
    canonical,
    facts::{AccessReviewResult, ClassFact, Kind},
    fields::Field,
    owners::owners_digest,
    requester::Requester,
    size::LAST_APPLIED,
    source::class_name,
};
use crate::diagnostic::{Finding, Findings, codes};

/// User names of the garbage collector: its ServiceAccount, or without
/// `--use-service-account-credentials` the user of the controller manager.
const GARBAGE_COLLECTORS: [&str; 2] = [
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:kube-controller-manager",
];
/// Prefixes of the labels and annotations of a BundleDeployment that decide what deployment tools do
/// with it. Some record the last apply, whose fields the next apply removes if it does not set
/// them. With others, a tool skips, deletes or recreates the object.
const TOOL_PREFIXES: [&str; 9] = [
    // If the inventory is missing, the annotation with the kinds decides whether a removal reports
    // lost objects.
    bundle_api::names::APPLYSET_PREFIX,
    "argocd.argoproj.io/",
    "helm.sh/",
    "helm.toolkit.fluxcd.io/",
    "kapp.k14s.io/",
    "kubectl.kubernetes.io/",
    "kustomize.toolkit.fluxcd.io/",
    "meta.helm.sh/",
    "objectset.rio.cattle.io/",
];
/// User name of the controller that deletes the objects in a deleted namespace.
const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";

/// Deletion that the rules of this module check.
#[derive(Debug, Clone, Copy)]
pub struct Deletion<'a> {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    pub name: &'a str,
    /// Stored object that the deletion removes.
    pub object: &'a Value,
    /// Requester of the deletion.
    pub requester: &'a Requester,
    /// `true` if the requester is the pod's own ServiceAccount.
    pub own: bool,
    /// `true` if the object has the finalizer of bundle-webhook, so that its deletion removes
    /// installed objects.
    pub is_finalized: bool,
}

/// State of the BundleDeployment of a generated Bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerFact {
    /// The owner exists and is not being deleted.
    Present,
    /// The owner does not exist, has another uid, or is being deleted.
    DeletedOrAbsent,
    /// The owner could not be read.
    Unavailable(Finding),
}

/// Results of the lookups for a deletion. A missing result counts as unknown: the deletion is
/// rejected for now, and a retry may succeed.
#[derive(Debug, Clone, Default)]
pub struct DeletionFacts {
    /// Requesters of all parts of the object, from its stamp or seal. The list is empty if the
    /// object has no valid stamp or seal.
    pub recorded: Vec<Requester>,
    /// The classes, by name.
    pub classes: BTreeMap<String, ClassFact>,
    /// Result of the access review for verb `use`, by class.
    pub may_use: BTreeMap<String, AccessReviewResult>,
    /// Result of the access review for verb `manage` on the object; `None` if there was no review.
    pub may_manage: Option<AccessReviewResult>,
    /// State of the BundleDeployment of [`Deletion::owner`]; `None` if there was no lookup.
    pub owner: Option<OwnerFact>,
    /// `true` if the stamp or seal covers the owner references; `None` without a valid stamp or
    /// seal.
    pub covers_owners: Option<bool>,
}

impl<'a> Deletion<'a> {
    /// Returns `true` if the requester is a Kubernetes controller that only executes deletions that
    /// other users requested.
    fn is_by_controller(&self) -> bool {
        let user = self.requester.user.as_str();
        GARBAGE_COLLECTORS.contains(&user) || user == NAMESPACE_CONTROLLER
    }

    /// Returns `true` if the stamp or seal records the requester of the deletion as a requester of
    /// the object.
    pub fn is_by_recorded(&self, facts: &DeletionFacts) -> bool {
        facts
            .recorded
            .iter()
            .any(|recorded| is_same(recorded, self.requester))
    }

    /// Returns `true` if no access review of the requester is necessary.
    pub fn is_trusted(&self) -> bool {
        self.own || self.is_by_controller()
    }

    /// If a controller deletes a generated Bundle, returns name and uid of the BundleDeployment in
    /// its owner references. The caller must look up this BundleDeployment. Returns `None` for all
    /// other deletions.
    pub fn owner(&self) -> Option<(&'a str, &'a str)> {
        if self.kind != Kind::Bundle || !self.is_by_controller() {
            return None;
        }
        let owners = self.object["metadata"]["ownerReferences"].as_array()?;
        owners
            .iter()
            .find(|owner| {
                owner["controller"] == true
                    && owner["kind"] == Kind::BundleDeployment.as_str()
                    && owner["apiVersion"] == "core.rukpak.io/v1alpha1"
            })
            .and_then(|owner| Some((owner["name"].as_str()?, owner["uid"].as_str()?)))
    }

    /// Returns the classes in the spec. The caller must look up these classes. The requester needs
    /// verb `use` on each class.
    pub fn classes(&self) -> BTreeSet<KubeName> {
        let spec = &self.object["spec"];
        let named = match self.kind {
            Kind::Bundle => [&spec["provisionerClassName"], &Value::Null],
            Kind::BundleDeployment => [
                &spec["provisionerClassName"],
                &spec["template"]["spec"]["provisionerClassName"],
            ],
            Kind::BundleApproval => return BTreeSet::new(),
        };
        named
            .into_iter()
            .filter_map(|name| class_name(&Field::new(name, "spec"), &mut Findings::default()))
            .collect()
    }
}

impl Deletion<'_> {
    /// Returns `true` if the object belongs to another provisioner, which has its own rules.
    /// Returns `false` if bundle-webhook has installed content for the object.
    pub fn is_foreign(&self, facts: &DeletionFacts) -> bool {
        let is_foreign = |name: &KubeName| {
            let class = facts.classes.get(name.as_str());
            matches!(class, Some(ClassFact::Known(class)) if !class.is_ours())
        };
        !self.is_finalized && self.classes().iter().any(is_foreign)
    }
}

/// Returns `true` if `object` has the finalizer `finalizer`.
pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|found| found == finalizer))
}

/// Returns `true` if an update requires the same permissions as a deletion:
/// - The update changes owner references, which the garbage collector follows.
/// - The update removes `finalizer`. A deletion would then not remove the installed objects.
/// - The update sets the annotation `admit`. The writer then becomes the requester.
/// - The update changes the spec of a BundleDeployment. The writer then becomes a requester of
///   installed content.
/// - The update changes the text of a spec of any kind, but not its meaning. Each such update
///   increments the generation, so that work on the object starts again. Other changes of the spec
///   of a Bundle or BundleApproval are always rejected, with the message of RukPak.
/// - The update changes which field managers own other fields than labels, annotations, finalizers
///   and an immutable spec, or own `finalizer`, or a label or annotation of the next rule. The next
///   server-side apply of another user or of the pod would then fail, or remove or keep fields
///   against the intent of that user.
/// - The update changes a label or annotation of a BundleDeployment that decides what deployment
///   tools do ([`TOOL_PREFIXES`]). The tool of another user would then skip the object, or remove
///   or keep fields, against the intent of that user.
/// - The update adds, changes or removes the annotation `core.rukpak.io/proof`. Without its
///   signatures, the content cannot be verified if the registry has no signatures. With a useless
///   proof, each review of the object takes longer.
pub fn is_guarded_update(
    kind: Kind,
    old: &Value,
    new: &Value,
    (finalizer, admit): (&str, &str),
) -> bool {
    let admits = |object: &Value| object["metadata"]["annotations"][admit].clone();
    let owners = |object: &Value| match &object["metadata"]["ownerReferences"] {
        Value::Null => Value::Array(Vec::new()),
        owners => owners.clone(),
    };
    let guards = |object: &Value| has_finalizer(object, finalizer);
    let is_admitted = !admits(new).is_null() && admits(new) != admits(old);
    let is_deployment = kind == Kind::BundleDeployment;
    let is_rewritten = old["spec"] != new["spec"]
        && (is_deployment || canonical::same(&old["spec"], &new["spec"]));
    let is_changed = are_names_changed(kind, old, new);
    owners(old) != owners(new)
        || (guards(old) && !guards(new))
        || is_admitted
        || is_rewritten
        || is_changed
        || !field_ownership::is_kept(kind, old, new, finalizer)
}

/// Returns `true` if an update adds, changes or removes a guarded label or annotation.
fn are_names_changed(kind: Kind, old: &Value, new: &Value) -> bool {
    let differs = |field: &str, left: &Value, right: &Value| {
        let members = left["metadata"][field].as_object();
        members.into_iter().flatten().any(|(name, value)| {
            is_guarded_name(kind, name) && right["metadata"][field][name.as_str()] != *value
        })
    };
    ["annotations", "labels"]
        .into_iter()
        .any(|field| differs(field, old, new) || differs(field, new, old))
}

/// Returns `true` for the annotation `core.rukpak.io/proof`, and for names of labels and annotations
/// of a BundleDeployment with a prefix of [`TOOL_PREFIXES`].
fn is_guarded_name(kind: Kind, name: &str) -> bool {
    name == ANNOTATION_PROOF
        || (kind == Kind::BundleDeployment
            && TOOL_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}

/// Checks whether a deletion is allowed. Every error is a reason to reject the deletion.
pub fn judge_deletion(deletion: &Deletion<'_>, facts: &DeletionFacts) -> Findings {
    let mut findings = Findings::default();
    if deletion.own {
        return findings;
    }
    if deletion.is_by_controller() {
        controller(deletion, facts, &mut findings);
        return findings;
    }
    if deletion.is_foreign(facts) {
        return findings;
    }
    let classes = deletion.classes();
    let fact = |name: &KubeName| facts.classes.get(name.as_str());
    let is_requester = deletion.is_by_recorded(facts);
    if !is_requester {
        manage(deletion, facts, &mut findings);
    }
    let manages = facts.may_manage == Some(AccessReviewResult::Allowed);
    for name in &classes {
        // If the class does not exist, verb `manage` is sufficient to delete the object.
        if !(manages && matches!(fact(name), Some(ClassFact::Unknown))) {
            may_use(name, deletion, facts, &mut findings);
        }
    }
    findings
}

/// Rules for Kubernetes controllers: a controller may only delete objects whose owner was deleted.
/// An owner reference that was set while the registrations were missing is ignored. Otherwise, the
/// user who set this reference could cause the deletion.
fn controller(deletion: &Deletion<'_>, facts: &DeletionFacts, findings: &mut Findings) {
    let has_owners = owners_digest(deletion.object).is_some();
    // An object without a valid stamp was not reconciled, unless it has the finalizer.
    if has_owners && !facts.covers_owners.unwrap_or(!deletion.is_finalized) {
        findings.push(
            Finding::error(
                codes::review::DELETE_NOT_ALLOWED,
                format!(
                    "the owner references of {} {} were not reviewed by admission, so the garbage \
                    collector has no permission to delete this object",
                    deletion.kind, deletion.name
                ),
            )
            .at_field("metadata.ownerReferences")
            .hint("remove the owner references, or delete the object itself"),
        );
    }
    if let Some((owner, _)) = deletion.owner() {
        match &facts.owner {
            Some(OwnerFact::DeletedOrAbsent) => {}
            Some(OwnerFact::Present) => findings.push(Finding::error(
                codes::review::DELETE_NOT_ALLOWED,
                format!("BundleDeployment {owner}, to which this Bundle belongs, still exists"),
            )),
            Some(OwnerFact::Unavailable(why)) => findings.push(why.clone()),
            None => findings.push(permission_unknown("the BundleDeployment still exists")),
        }
    }
}

/// Returns the error for a deletion at `now` that is too early; otherwise `None`. A deletion is too
/// early if the reconciler could not distinguish it from an unreviewed deletion. Times are
/// milliseconds since 1970. `enforced_since` is [`ObservedDeletion::enforced_since`].
pub fn too_early(
    deletion: &Deletion<'_>,
    now: i64,
    enforced_since: Option<i64>,
) -> Option<Finding> {
    let is_going = deletion.object["metadata"]["deletionTimestamp"].is_string();
    if deletion.kind != Kind::BundleDeployment || !deletion.is_finalized || is_going {
        return None;
    }
    let observed = ObservedDeletion {
        deleted: now - now.rem_euclid(1_000),
        is_recorded: false,
        enforced_since,
        admitted: None,
    };
    if observed.is_accepted() {
        return None;
    }
    let wait = enforced_since.map_or(0, |since| since.saturating_sub(now)) / 1_000 + 1;
    let message = format!(
        "BundleDeployment {} cannot be deleted yet: its objects would stay, because the webhook configurations were missing or changed a moment ago",
        deletion.name
    );
    Some(
        Finding::error(codes::review::DELETION_TOO_EARLY, message)
            .hint(format!("delete the BundleDeployment again in {wait} s")),
    )
}

fn manage(deletion: &Deletion<'_>, facts: &DeletionFacts, findings: &mut Findings) {
    let resource = format!("{}/{}", deletion.kind.plural(), deletion.name);
    match &facts.may_manage {
        Some(AccessReviewResult::Allowed) => {}
        Some(AccessReviewResult::Denied) => findings.push(
            Finding::error(
                codes::review::DELETE_NOT_ALLOWED,
                format!(
                    "user {:?} has no permission to delete or change {} {}: only the requester of the object and users with verb manage on {resource} have this permission",
                    deletion.requester.user, deletion.kind, deletion.name
                ),
            )
            .hint("ask the requester of the object, or an administrator; ClusterRole bundle-admin has verb manage"),
        ),
        Some(AccessReviewResult::Unavailable(why)) => findings.push(why.clone()),
        None => findings.push(permission_unknown("the requester has verb manage")),
    }
}

fn may_use(name: &str, deletion: &Deletion<'_>, facts: &DeletionFacts, findings: &mut Findings) {
    match facts.may_use.get(name) {
        Some(AccessReviewResult::Allowed) => {}
        Some(AccessReviewResult::Denied) => findings.push(
            Finding::error(
                codes::review::DELETE_NOT_ALLOWED,
                format!(
                    "user {:?} has no permission to delete objects of provisioner class {name:?}: verb use on provisionerclasses/{name} is required",
                    deletion.requester.user
                ),
            )
            .hint("ask a user with this permission, or an administrator"),
        ),
        Some(AccessReviewResult::Unavailable(why)) => findings.push(why.clone()),
        None => findings.push(permission_unknown("the requester has verb use on the class")),
    }
}

fn permission_unknown(what: &str) -> Finding {
    let message = format!("it is unknown if {what}");
    Finding::error(codes::review::RIGHTS_UNKNOWN, message).hint("try again")
}

/// Returns `true` if two requesters have the same user name, and their uids do not differ. A
/// missing uid is ignored, because an authenticator may omit the uid. A ServiceAccount without a
/// uid differs from a recorded ServiceAccount with a uid: the API server omits the uid only if
/// another user impersonates the ServiceAccount.
fn is_same(recorded: &Requester, requester: &Requester) -> bool {
    let omits = requester.uid.is_empty() && requester.service_account().is_none();
    recorded.user == requester.user
        && (recorded.uid.is_empty() || omits || recorded.uid == requester.uid)
}

#[cfg(test)]
mod tests;
