//! The Bundle of a template: found or made, and those of earlier templates cleared away.
//! Not here: what becomes of the Bundle (bundle), or which ones are kept (bundle_core::plan::pivot).

use std::collections::BTreeMap;

use bundle_api::bundle::BundleStatus;
use bundle_api::names::{self, reason};
use bundle_core::diagnostic::codes;
use bundle_core::plan::pivot::{Owned, Revision, to_delete};
use bundle_core::review::deployment::Template;
use bundle_core::review::{Requester, Stamp, same, seal, spec_digest};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams, Preconditions};
use serde_json::json;

use super::room::Room;
use super::trouble::{Retry, Trouble};

/// A Bundle and what became of it.
#[derive(Debug, Clone)]
pub(super) struct Child {
    pub(super) name: String,
    pub(super) object: DynamicObject,
    pub(super) status: BundleStatus,
}

impl Child {
    pub(super) fn of(object: DynamicObject) -> Self {
        Self {
            name: object.name_any(),
            status: serde_json::from_value(object.data["status"].clone()).unwrap_or_default(),
            object,
        }
    }

    /// The message of its `Unpacked` condition.
    pub(super) fn message(&self) -> &str {
        self.status
            .conditions
            .iter()
            .find(|condition| condition.type_ == names::condition::UNPACKED)
            .map_or("", |condition| condition.message.as_str())
    }
}

/// The Bundle of `template` for `deployment`; made if it is not there.
pub(super) async fn of_template(
    room: &Room,
    deployment: &DynamicObject,
    template: &Template,
    requester: &Requester,
) -> Result<Child, Trouble> {
    let name = format!("{}-{}", deployment.name_any(), template.hash);
    let failed =
        |error: kube::Error| Trouble::api("make the Bundle", reason::BUNDLE_LOAD_FAILED, &error);
    let found = if let Some(found) = room.get(&room.bundles, &name).await.map_err(failed)? {
        found
    } else {
        let api: Api<DynamicObject> = Api::all_with(room.own.clone(), &room.bundles);
        let made = child(room, deployment, template, requester, &name);
        match api.create(&PostParams::default(), &made).await {
            Ok(made) => made,
            // Made by another replica, or by ourselves before a restart.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                api.get(&name).await.map_err(failed)?
            }
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
                return Err(Trouble::new(
                    codes::install::APPLY_FAILED,
                    reason::BUNDLE_LOAD_FAILED,
                    format!("cannot make Bundle {name}: {}", status.message),
                    Retry::Slowly,
                ));
            }
            Err(error) => return Err(failed(error)),
        }
    };
    let is_ours = found
        .owner_references()
        .iter()
        .any(|owner| Some(&owner.uid) == deployment.metadata.uid.as_ref());
    if !is_ours {
        return Err(Trouble::new(
            codes::install::CHILD_TAKEN,
            reason::BUNDLE_LOAD_FAILED,
            format!(
                "Bundle {name} exists and was not made by this BundleDeployment: delete it, or change the template"
            ),
            Retry::Slowly,
        ));
    }
    if !same(&found.data["spec"], &template.spec) {
        return Err(Trouble::new(
            codes::install::CONTENT_CHANGED,
            reason::BUNDLE_LOAD_FAILED,
            format!(
                "the spec of Bundle {name} is not that of the template: delete it, and it is made again"
            ),
            Retry::Slowly,
        ));
    }
    Ok(Child::of(found))
}

fn child(
    room: &Room,
    deployment: &DynamicObject,
    template: &Template,
    requester: &Requester,
    name: &str,
) -> DynamicObject {
    let mut labels = template.labels.clone();
    for (label, text) in [
        (names::LABEL_OWNER_KIND, super::DEPLOYMENT),
        (names::LABEL_OWNER_NAME, &deployment.name_any()),
        (names::LABEL_TEMPLATE_HASH, &template.hash),
    ] {
        labels.insert(label.to_owned(), text.to_owned());
    }
    let mut annotations: BTreeMap<String, String> = template.annotations.clone();
    // Its proof is of the same content, and spares the registry a question here as well.
    if let Some(proof) = deployment.annotations().get(names::ANNOTATION_PROOF) {
        annotations.insert(names::ANNOTATION_PROOF.to_owned(), proof.clone());
    }
    // The Bundle is asked for by whoever asked for its deployment.
    let stamp = Stamp {
        kind: "Bundle".to_owned(),
        name: name.to_owned(),
        spec: spec_digest(&template.spec),
        requester: requester.clone(),
    };
    annotations.insert(
        names::ANNOTATION_STAMP.to_owned(),
        seal(room.shared.stamp_key().bytes(), &stamp),
    );
    let mut object = DynamicObject::new(name, &room.bundles);
    object.metadata.labels = Some(labels);
    object.metadata.annotations = Some(annotations);
    object.metadata.owner_references = Some(vec![
        k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            api_version: names::API_VERSION.to_owned(),
            kind: super::DEPLOYMENT.to_owned(),
            name: deployment.name_any(),
            uid: deployment.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        },
    ]);
    object.data = json!({ "spec": template.spec });
    object
}

/// Deletes the Bundles of earlier templates that nobody needs any more.
pub(super) async fn clear(
    room: &Room,
    deployment: &DynamicObject,
    wanted: &str,
    active: Option<&str>,
    revisions: &[Revision],
    wanted_is_installed: bool,
) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = Api::all_with(room.own.clone(), &room.bundles);
    let selector = format!(
        "{}={},{}={}",
        names::LABEL_OWNER_KIND,
        super::DEPLOYMENT,
        names::LABEL_OWNER_NAME,
        deployment.name_any()
    );
    let found = api.list(&ListParams::default().labels(&selector)).await?;
    let ours: Vec<&DynamicObject> = found
        .items
        .iter()
        .filter(|bundle| {
            bundle
                .owner_references()
                .iter()
                .any(|owner| Some(&owner.uid) == deployment.metadata.uid.as_ref())
        })
        .collect();
    let owned: Vec<Owned> = ours
        .iter()
        .map(|bundle| Owned {
            name: bundle.name_any(),
            created: bundle
                .creation_timestamp()
                .map(|time| time.0.to_string())
                .unwrap_or_default(),
        })
        .collect();
    for name in to_delete(&owned, wanted, active, revisions, wanted_is_installed) {
        let uid = ours
            .iter()
            .find(|bundle| bundle.name_any() == name)
            .and_then(|bundle| bundle.metadata.uid.clone());
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid,
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match api.delete(name, &parameters).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
