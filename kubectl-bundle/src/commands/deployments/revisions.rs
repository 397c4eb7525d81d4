//! Revisions of a BundleDeployment: their numbers, their Bundles, and the choice of one.

use bundle_api::deployment::status::{Revision, RevisionState};
use bundle_api::{Bundle, BundleDeployment, names};
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::plan::revisions::numbers;
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

/// Returns the Bundles that were created for a BundleDeployment, by label and owner reference.
pub(super) async fn bundles(cluster: &Cluster, item: &BundleDeployment) -> Outcome<Vec<Bundle>> {
    let name = item.metadata.name.as_deref().unwrap_or_default();
    let parameters = ListParams::default().labels(&format!(
        "{}=BundleDeployment,{}={name}",
        names::LABEL_OWNER_KIND,
        names::LABEL_OWNER_NAME
    ));
    let api: Api<Bundle> = Api::all(cluster.client.clone());
    let list = cluster.ask(api.list(&parameters)).await?;
    let bundles = list.items.into_iter();
    Ok(bundles.filter(|bundle| is_owned(bundle, item)).collect())
}

/// Returns `true` if the Bundle was created for this BundleDeployment.
pub(super) fn is_owned(bundle: &Bundle, item: &BundleDeployment) -> bool {
    let owners = bundle.metadata.owner_references.iter().flatten();
    item.metadata.uid.is_some()
        && owners
            .map(|owner| &owner.uid)
            .any(|uid| item.metadata.uid.as_ref() == Some(uid))
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

/// Returns the revision before the current template: the active one, if other content is to be
/// installed and is not yet, else the newest superseded one. `is_wanted` returns `true` for the
/// revision of the current template.
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
    fn first_revision_has_no_previous_one() {
        let item = item(&[("web-a", "Active")]);
        assert!(previous(&item, |_| true).is_err());
    }
}
