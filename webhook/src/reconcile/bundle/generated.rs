//! Finds or creates the Bundle that a BundleDeployment generates from its template. Deletes Bundles
//! of earlier templates. `bundle_core::plan::revisions` decides which of these Bundles are kept.

use std::sync::Arc;

use bundle_api::bundle::BundleStatus;
use bundle_api::deployment::status::Revision;
use bundle_api::names::{self, reason};
use bundle_cluster::ByName;
use bundle_core::diagnostic::codes;
use bundle_core::plan::revisions::{OwnedBundle, RetainedBundles, to_delete};
use bundle_core::review::deployment::Template;
use bundle_core::review::seal::deployment_name;
use bundle_core::review::stamp::alternative_hash;
use bundle_core::review::{Kind, SealedContent, same, spec_digest};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams, Preconditions};
use rand::Rng as _;
use serde_json::{Value, json};

use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::seal;
use crate::reconcile::status::status_of;
use crate::reconcile::watched::WatchedObject;

/// A Bundle that a BundleDeployment generated from its template.
#[derive(Debug, Clone)]
pub(in crate::reconcile) struct GeneratedBundle {
    pub(in crate::reconcile) name: String,
    pub(in crate::reconcile) object: DynamicObject,
    /// The status of the Bundle. It is used only in messages, because other clients can write the
    /// status.
    pub(in crate::reconcile) status: BundleStatus,
    /// The sealed record of the unpacked content. `None` if no record for the current spec exists.
    pub(in crate::reconcile) content: Option<SealedContent>,
}

impl GeneratedBundle {
    pub(in crate::reconcile) fn from_object(ctx: &Context, object: DynamicObject) -> Self {
        Self {
            name: object.name_any(),
            content: seal::content(ctx, &object)
                .filter(|content| content.spec == spec_digest(&object.data["spec"])),
            status: status_of(&object),
            object,
        }
    }

    /// Returns the message of the `Unpacked` condition.
    pub(in crate::reconcile) fn message(&self) -> &str {
        self.status
            .conditions
            .iter()
            .find(|condition| condition.type_ == names::condition::UNPACKED)
            .map_or("", |condition| condition.message.as_str())
    }
}

/// Returns the Bundle spec of the template, unchanged.
fn bundle_spec(deployment: &DynamicObject) -> &Value {
    &deployment.data["spec"]["template"]["spec"]
}

/// Number of alternative names. They are tried if another client has created a Bundle with the
/// usual name.
const ALTERNATIVE_NAMES: u8 = 3;

/// Returns the template hash from the seal of `bundle`, if the pod created this Bundle for
/// `deployment`. Returns `None` for every other Bundle. Labels and owner references are ignored,
/// because every user who can create Bundles can write them.
pub(in crate::reconcile) fn generated_hash(
    ctx: &Context,
    deployment: &DynamicObject,
    bundle: &DynamicObject,
) -> Option<String> {
    let vouched = seal::confirmed_facts(ctx, bundle, Kind::Bundle).ok()?;
    let created_for = vouched.generated_for?;
    (Some(&created_for.uid) == deployment.metadata.uid.as_ref()).then_some(created_for.hash)
}

/// Returns the Bundle of `template` for `deployment`. Creates the Bundle if it does not exist.
/// `is_new` is true in the first reconcile of a BundleDeployment. Then the Bundle usually does not
/// exist, so it is not read first. The creation detects an existing Bundle.
pub(in crate::reconcile) async fn find_or_create(
    ctx: &Context,
    deployment: &DynamicObject,
    template: &Template,
    revisions: &[Revision],
    is_new: bool,
) -> Result<GeneratedBundle, ReconcileError> {
    let mut taken = Vec::new();
    // While the registrations are missing, no Bundle is created, and an existing Bundle is used.
    let creates_first = is_new && ctx.shared.registrations.intact_since().is_some();
    for name in candidate_names(ctx, deployment, &template.hash, revisions) {
        let found = if creates_first {
            None
        } else {
            let found = ctx.get(&ctx.bundles, &name).await;
            found.map_err(|error| failed(&error))?
        };
        let found = match found {
            Some(found) => found,
            None => create(ctx, deployment, template, &name).await?,
        };
        let found = with_seal(ctx, deployment, found).await?;
        if generated_hash(ctx, deployment, &found).as_ref() != Some(&template.hash) {
            taken.push(name);
            continue;
        }
        if !same(&found.data["spec"], bundle_spec(deployment)) {
            return Err(bundle_differs(&name));
        }
        return Ok(GeneratedBundle::from_object(ctx, found));
    }
    Err(no_free_name_error(&taken))
}

/// Returns the error for a generated Bundle with a spec that another client has changed.
pub(in crate::reconcile) fn bundle_differs(name: &str) -> ReconcileError {
    ReconcileError::new(
        codes::install::CONTENT_CHANGED,
        reason::BUNDLE_LOAD_FAILED,
        format!(
            "the spec of Bundle {name} differs from the template: delete the Bundle, and the controller creates it again"
        ),
        RetryPolicy::Slowly,
    )
}

/// Returns the error if other Bundles already have all possible names of the generated Bundle.
pub(in crate::reconcile) fn no_free_name_error(names: &[String]) -> ReconcileError {
    ReconcileError::new(
        codes::install::CHILD_TAKEN,
        reason::BUNDLE_LOAD_FAILED,
        format!(
            "cannot create the Bundle of the template: its possible names belong to Bundles that were not created for this BundleDeployment: {}; delete one of these Bundles, or change the template",
            names.join(", ")
        ),
        RetryPolicy::Slowly,
    )
}

/// Returns the names that the generated Bundle can have: the usual name, and then names that other
/// users cannot predict. Names in `revisions` come first. Therefore an existing Bundle keeps its
/// name when another name becomes free.
pub(in crate::reconcile) fn candidate_names(
    ctx: &Context,
    deployment: &DynamicObject,
    hash: &str,
    revisions: &[Revision],
) -> Vec<String> {
    let owner = deployment.name_any();
    let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
    let key = ctx.shared.stamp_key();
    let mut names = vec![format!("{owner}-{hash}")];
    names.extend((1..=ALTERNATIVE_NAMES).map(|attempt| {
        let hash = alternative_hash(key.bytes(), uid, hash, attempt);
        format!("{owner}-{hash}")
    }));
    names.sort_by_key(|name| !revisions.iter().any(|revision| revision.bundle == *name));
    names
}

/// Returns `bundle` with its seal. If another client removed the seal from the status, restores the
/// seal from the inventory. Without its seal, the reconcile would create a new Bundle instead. The
/// new Bundle would get other content if a tag has moved.
async fn with_seal(
    ctx: &Context,
    deployment: &DynamicObject,
    bundle: DynamicObject,
) -> Result<DynamicObject, ReconcileError> {
    if generated_hash(ctx, deployment, &bundle).is_some()
        || !seal::ensure(ctx, &ctx.bundles, &bundle, Kind::Bundle)
            .await
            .map_err(|error| failed(&error))?
    {
        return Ok(bundle);
    }
    let stored = ctx.get(&ctx.bundles, &bundle.name_any()).await;
    Ok(stored.map_err(|error| failed(&error))?.unwrap_or(bundle))
}

fn failed(error: &kube::Error) -> ReconcileError {
    ReconcileError::api("create the Bundle", reason::BUNDLE_LOAD_FAILED, error)
}

/// Creates the Bundle. The mutating webhook adds an admission stamp to the Bundle. If the created
/// Bundle has no stamp, deletes the Bundle and fails. If a Bundle with this name already exists,
/// returns the existing Bundle.
async fn create(
    ctx: &Context,
    deployment: &DynamicObject,
    template: &Template,
    name: &str,
) -> Result<DynamicObject, ReconcileError> {
    let unstamped = |why: &str| {
        ReconcileError::new(
            codes::review::NOT_ADMITTED,
            reason::BUNDLE_LOAD_FAILED,
            format!("cannot create Bundle {name}: {why}"),
            RetryPolicy::Soon,
        )
    };
    if ctx.shared.registrations.intact_since().is_none() {
        return Err(unstamped(
            "the webhook registrations are missing or altered",
        ));
    }
    let api: Api<DynamicObject> = Api::all_with(ctx.own.clone(), &ctx.bundles);
    let created = generated(ctx, deployment, template, name);
    match api.create(&PostParams::default(), &created).await {
        Ok(created) if generated_hash(ctx, deployment, &created).is_some() => Ok(created),
        Ok(created) => {
            delete(&api, name, created.metadata.uid)
                .await
                .map_err(|error| failed(&error))?;
            Err(unstamped("the created object has no admission stamp"))
        }
        // Another replica created the Bundle, or this pod created it before a restart.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            ByName(&api).get(name).await.map_err(|error| failed(&error))
        }
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
            Err(ReconcileError::new(
                codes::install::APPLY_FAILED,
                reason::BUNDLE_LOAD_FAILED,
                format!("cannot create Bundle {name}: {}", status.message),
                RetryPolicy::Slowly,
            ))
        }
        Err(error) => Err(failed(&error)),
    }
}

fn generated(
    ctx: &Context,
    deployment: &DynamicObject,
    template: &Template,
    name: &str,
) -> DynamicObject {
    let (mut labels, mut annotations) = Template::metadata(&deployment.data["spec"]);
    for (label, text) in [
        (names::LABEL_OWNER_KIND, crate::reconcile::DEPLOYMENT),
        (names::LABEL_OWNER_NAME, &deployment.name_any()),
        (names::LABEL_TEMPLATE_HASH, &template.hash),
    ] {
        labels.insert(label.to_owned(), text.to_owned());
    }
    // The proof annotation of the BundleDeployment contains the signatures of the same content.
    // With a copy of this annotation, the signatures need not be read from the registry.
    if let Some(proof) = deployment.annotations().get(names::ANNOTATION_PROOF) {
        annotations.insert(names::ANNOTATION_PROOF.to_owned(), proof.clone());
    }
    let mut object = DynamicObject::new(name, &ctx.bundles);
    object.metadata.labels = Some(labels);
    object.metadata.annotations = Some(annotations);
    object.metadata.owner_references = Some(vec![
        k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            api_version: names::API_VERSION.to_owned(),
            kind: crate::reconcile::DEPLOYMENT.to_owned(),
            name: deployment.name_any(),
            uid: deployment.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        },
    ]);
    object.data = json!({ "spec": bundle_spec(deployment) });
    object
}

/// Maximum number of Bundles that one reconcile reads to find the Bundles of earlier templates.
const EARLIER_LIMIT: usize = 16;

/// Deletes Bundles of earlier templates that are no longer needed. Only a valid seal identifies
/// such a Bundle. Labels, owner references and names are not sufficient, because other clients can
/// write them. If more than [`EARLIER_LIMIT`] Bundles have a suitable name, each reconcile reads a
/// random selection. Therefore Bundles of other users can delay the deletion, but cannot prevent
/// it.
pub(in crate::reconcile) async fn delete_old(
    ctx: &Context,
    deployment: &DynamicObject,
    retained: &RetainedBundles<'_>,
) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = Api::all_with(ctx.own.clone(), &ctx.bundles);
    let all = match ctx.bundle_cache.get() {
        Some(cache) => cache.state(),
        None => Vec::new(),
    };
    let mut owned = Vec::new();
    let names = earlier_names(&all, &deployment.name_any(), retained);
    for name in random_selection(names) {
        let _read = ctx.bundle_slots.acquire_read().await;
        let bundle = ctx.get(&ctx.bundles, &name).await;
        let Some(bundle) = bundle? else { continue };
        if generated_hash(ctx, deployment, &bundle).is_some() {
            let created = bundle.creation_timestamp();
            owned.push(OwnedBundle {
                name,
                created: created.map(|time| time.0.to_string()).unwrap_or_default(),
                uid: bundle.metadata.uid,
            });
        }
    }
    for gone in to_delete(&owned, retained) {
        delete(&api, &gone.name, gone.uid.clone()).await?;
    }
    Ok(())
}

/// Returns the sorted names of the Bundles that the pod may have created for `deployment` and that
/// are not in `retained`.
fn earlier_names(
    all: &[Arc<WatchedObject>],
    deployment: &str,
    retained: &RetainedBundles<'_>,
) -> Vec<String> {
    let names = all.iter().map(|bundle| bundle.name_any());
    let mut found: Vec<String> = names
        .filter(|name| deployment_name(name) == Some(deployment) && !retained.contains(name))
        .collect();
    found.sort_unstable();
    found
}

/// Returns a random selection of at most [`EARLIER_LIMIT`] names.
fn random_selection(names: Vec<String>) -> Vec<String> {
    selected_names(names, |count| rand::rng().random_range(0..count))
}

/// Returns at most [`EARLIER_LIMIT`] consecutive names. After the last name, the selection
/// continues with the first name. `start` receives the number of names and returns the index of the
/// first selected name. It is called only if there are more names than the limit.
fn selected_names(mut names: Vec<String>, start: impl FnOnce(usize) -> usize) -> Vec<String> {
    let count = names.len();
    if count > EARLIER_LIMIT {
        names.rotate_left(start(count));
        names.truncate(EARLIER_LIMIT);
    }
    names
}

/// Deletes the Bundle with this name if it has this uid. Does nothing if no Bundle with this name
/// exists, or if its uid differs.
async fn delete(
    api: &Api<DynamicObject>,
    name: &str,
    uid: Option<String>,
) -> Result<(), kube::Error> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    match ByName(api).delete(name, &parameters).await {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn bundle(name: &str) -> Arc<WatchedObject> {
        let object = json!({"metadata": {"name": name}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn retained(wanted: &str) -> RetainedBundles<'_> {
        RetainedBundles {
            wanted,
            wanted_is_installed: true,
            active: Some(wanted),
            healthy: None,
            revisions: &[],
        }
    }

    #[test]
    fn only_bundles_with_a_generated_name_that_are_not_retained_are_read() {
        let all = [
            "web-0000ff",
            "web-abcdef",
            "web-123456",
            "web",
            "web-abcde",
            "web-abcdeg",
            "web-api-123456",
            "api-123456",
        ];
        let all: Vec<_> = all.into_iter().map(bundle).collect();
        let found = earlier_names(&all, "web", &retained("web-abcdef"));
        assert_eq!(found, ["web-0000ff", "web-123456"]);
        assert_eq!(selected_names(found.clone(), |_| unreachable!()), found);
    }

    #[test]
    fn bundles_of_other_users_do_not_hide_a_bundle_of_an_earlier_template() {
        for foreign in [EARLIER_LIMIT, 100] {
            let mut all: Vec<_> = (0..foreign)
                .map(|n| bundle(&format!("web-{n:06x}")))
                .collect();
            all.push(bundle("web-ffffff"));
            let found = earlier_names(&all, "web", &retained("web-abcdef"));
            let count = found.len();
            assert_eq!(count, foreign + 1);
            let selections = (0..count).map(|start| selected_names(found.clone(), |_| start));
            let with_own = selections.filter(|names| {
                assert_eq!(names.len(), EARLIER_LIMIT);
                names.iter().any(|name| name == "web-ffffff")
            });
            // `EARLIER_LIMIT` of `count` possible selections contain the Bundle.
            assert_eq!(with_own.count(), EARLIER_LIMIT, "of {count}");
        }
    }

    #[test]
    fn repeated_selections_contain_each_name() {
        let names: Vec<String> = (0..100).map(|n| format!("web-{n:06x}")).collect();
        // The probability that a name is missing in all these selections is below 10⁻⁷⁰.
        let selections = (0..1_000).flat_map(|_| random_selection(names.clone()));
        let selected: BTreeSet<String> = selections.collect();
        assert_eq!(selected.len(), names.len());
    }
}
