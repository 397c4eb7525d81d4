//! Revisions of a BundleDeployment: their numbers, their Bundles, and the selection of a revision.

use bundle_api::deployment::status::{Revision, RevisionState};
use bundle_api::{Bundle, BundleDeployment, names};
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::plan::revisions::numbers;
use bundle_core::review::Stamp;
use kube::api::{Api, ListParams};
use kube::core::Status;

use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};

/// A revision with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NumberedRevision<'a> {
    /// Number.
    pub(super) number: i64,
    /// Revision.
    pub(super) revision: &'a Revision,
}

/// Returns the revisions, newest first.
pub(super) fn numbered(item: &BundleDeployment) -> Vec<NumberedRevision<'_>> {
    let revisions = item.status.as_ref().map(|status| &status.revisions);
    let revisions = revisions.map_or(&[][..], Vec::as_slice);
    let numbers = numbers(revisions);
    numbers
        .into_iter()
        .zip(revisions)
        .map(|(number, revision)| NumberedRevision { number, revision })
        .collect()
}

/// Returns the error of the API server for a missing BundleDeployment.
pub(super) fn not_found(name: &str) -> Failure {
    Failure::Server(Box::new(Status {
        code: 404,
        reason: "NotFound".to_owned(),
        message: format!("bundledeployments.{} \"{name}\" not found", names::GROUP),
        ..Status::default()
    }))
}

/// Returns the Bundles that were created for a BundleDeployment. The Bundles are listed by label,
/// but other users can change labels. Therefore the Bundle of a revision that is not in the list is
/// read by its name.
pub(super) async fn bundles(cluster: &Cluster, item: &BundleDeployment) -> Outcome<Vec<Bundle>> {
    let name = item.metadata.name.as_deref().unwrap_or_default();
    let parameters = ListParams::default().labels(&format!(
        "{}=BundleDeployment,{}={name}",
        names::LABEL_OWNER_KIND,
        names::LABEL_OWNER_NAME
    ));
    let api: Api<Bundle> = Api::all(cluster.client.clone());
    let list = cluster.send(api.list(&parameters)).await?;
    let mut bundles = list.items;
    for one in numbered(item) {
        let name = Some(&one.revision.bundle);
        if bundles
            .iter()
            .all(|bundle| bundle.metadata.name.as_ref() != name)
        {
            let found = cluster.read::<Bundle>(&one.revision.bundle).await?;
            bundles.extend(found.and_then(|found| serde_json::from_value(found).ok()));
        }
    }
    bundles.retain(|bundle| generated_hash(bundle, item).is_some());
    Ok(bundles)
}

/// Returns the template hash of a Bundle that bundle-webhook created for this BundleDeployment,
/// from the stamp of the Bundle. Every user who can create Bundles can write labels and owner
/// references, so both are ignored.
pub(super) fn generated_hash(bundle: &Bundle, item: &BundleDeployment) -> Option<String> {
    let annotations = bundle.metadata.annotations.as_ref()?;
    let stamp = annotations.get(names::ANNOTATION_STAMP)?;
    let generated = Stamp::unverified_generated_for(stamp)?;
    (Some(&generated.uid) == item.metadata.uid.as_ref()).then_some(generated.hash)
}

/// Returns the revision that `selector` names by its number or its Bundle.
pub(super) fn find<'a>(
    item: &'a BundleDeployment,
    selector: &str,
) -> Outcome<NumberedRevision<'a>> {
    let revisions = numbered(item);
    let number = selector.parse::<i64>().ok();
    let found = revisions
        .iter()
        .find(|one| Some(one.number) == number || one.revision.bundle == selector);
    Ok(*found.ok_or_else(|| unknown(item, selector, &revisions))?)
}

/// Returns the revision before the current template. If the content of the current template is not
/// installed yet, returns the active revision. Otherwise returns the newest superseded revision.
/// `is_wanted` returns `true` for the revision of the current template.
pub(super) fn previous(
    item: &BundleDeployment,
    is_wanted: impl Fn(&Revision) -> bool,
) -> Outcome<NumberedRevision<'_>> {
    let revisions = numbered(item);
    let active = revisions
        .iter()
        .find(|one| one.revision.state == RevisionState::Active);
    let superseded = revisions
        .iter()
        .find(|one| one.revision.state == RevisionState::Superseded);
    let found = active
        .filter(|active| !is_wanted(active.revision))
        .or(superseded);
    Ok(*found.ok_or_else(|| {
        let name = item.metadata.name.as_deref().unwrap_or_default();
        Finding::error(
            codes::cluster::NO_REVISION,
            format!("bundledeployment {name} has no former revision"),
        )
        .hint(format!(
            "`kubectl bundle history {name}` lists the revisions; spec.rollout.history is the \
            number of former revisions that are kept"
        ))
    })?)
}

fn unknown(item: &BundleDeployment, selector: &str, known: &[NumberedRevision<'_>]) -> Finding {
    let name = item.metadata.name.as_deref().unwrap_or_default();
    let known: Vec<String> = known.iter().map(|one| one.number.to_string()).collect();
    let finding = Finding::error(
        codes::cluster::NO_REVISION,
        format!("bundledeployment {name} has no revision {selector}"),
    );
    if known.is_empty() {
        return finding.hint("nothing was installed yet");
    }
    finding.hint(format!(
        "its revisions are {}; `kubectl bundle history {name}` describes them",
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(states: &[(&str, &str)]) -> BundleDeployment {
        let revisions: Vec<_> = states
            .iter()
            .map(|(bundle, state)| json!({"bundle": bundle, "digest": "d", "state": state}))
            .collect();
        serde_json::from_value(json!({
            "apiVersion": names::API_VERSION, "kind": "BundleDeployment", "metadata": {"name": "web"},
            "spec": {"provisionerClassName": "c", "template": {"spec": {"provisionerClassName": "c", "source": {"type": "git"}}}},
            "status": {"revisions": revisions},
        }))
        .unwrap()
    }

    #[test]
    fn revision_is_found_by_number_and_by_bundle() {
        let item = item(&[
            ("web-c", "Active"),
            ("web-b", "Superseded"),
            ("web-a", "Superseded"),
        ]);
        assert_eq!(find(&item, "1").unwrap().revision.bundle, "web-a");
        assert_eq!(find(&item, "web-b").unwrap().number, 2);
        assert!(find(&item, "4").is_err());
    }

    #[test]
    fn previous_revision_is_the_active_one_while_other_content_is_wanted() {
        let item = item(&[("web-b", "Active"), ("web-a", "Superseded")]);
        let previous = |wanted: &str| {
            let found = previous(&item, |revision| revision.bundle == wanted);
            found.unwrap().revision.bundle.clone()
        };
        assert_eq!(previous("web-b"), "web-a");
        assert_eq!(previous("web-c"), "web-b");
    }

    #[test]
    fn only_bundles_of_the_pod_belong_to_a_deployment() {
        let mut item = item(&[]);
        item.metadata.uid = Some("u-1".to_owned());
        let bundle = |annotations: serde_json::Value| -> Bundle {
            serde_json::from_value(json!({
                "metadata": {
                    "name": "web-a",
                    "labels": {names::LABEL_OWNER_KIND: "BundleDeployment", names::LABEL_OWNER_NAME: "web"},
                    "annotations": annotations,
                    "ownerReferences": [{"apiVersion": names::API_VERSION, "kind": "BundleDeployment", "name": "web", "uid": "u-1"}],
                },
                "spec": {"provisionerClassName": "c", "source": {"type": "git"}},
            }))
            .unwrap()
        };
        let stamp =
            |uid: &str| json!({"generated_for": {"uid": uid, "hash": "abcdef"}}).to_string();
        for (annotations, expected) in [
            (
                json!({names::ANNOTATION_STAMP: stamp("u-1")}),
                Some("abcdef"),
            ),
            (json!({names::ANNOTATION_STAMP: stamp("u-2")}), None),
            // The stamp of a Bundle that a user created.
            (
                json!({names::ANNOTATION_STAMP: r#"{"kind": "Bundle"}"#}),
                None,
            ),
            (json!({names::ANNOTATION_STAMP: "text"}), None),
            (json!({}), None),
        ] {
            let found = generated_hash(&bundle(annotations.clone()), &item);
            assert_eq!(found.as_deref(), expected, "{annotations}");
        }
    }

    #[test]
    fn first_revision_has_no_previous_one() {
        let item = item(&[("web-a", "Active")]);
        assert!(previous(&item, |_| true).is_err());
    }
}
