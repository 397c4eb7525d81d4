//! Messages of failed removals and of forbidden downgrades. `cargo xtask gen` copies `messages.txt`
//! to the page about diagnostics.

use std::fmt::Write as _;

use serde_json::json;

use super::RemovalFailure;
use super::progress::RemovalProgress;
use crate::diagnostic::rendered;
use crate::object::ObjectId;
use crate::plan::authorization::downgrade;
use crate::plan::consent::{ActingAccount, ConsentRule, DenialReason};
use crate::plan::decision::DecidedObjects;
use crate::review::Class;

const RECORDED: &str = include_str!("messages.txt");

fn config_map(namespace: &str) -> ObjectId {
    ObjectId {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: Some(namespace.to_owned()),
        name: "web".to_owned(),
    }
}

/// Returns the failure of a removal that could not delete a ConfigMap in `namespace`, for the
/// reason `why`.
fn failed_removal(namespace: &str, why: Option<&str>, authorization: &str) -> RemovalFailure {
    failed_removal_by(ActingAccount::Granted, namespace, why, authorization)
}

/// Like [`failed_removal`], with the ServiceAccount of the removal.
fn failed_removal_by(
    account: ActingAccount,
    namespace: &str,
    why: Option<&str>,
    authorization: &str,
) -> RemovalFailure {
    let spec = json!({
        "provisioner": "core.rukpak.io/plain",
        "authorization": authorization,
        "targets": {"namespaces": ["team-*"]},
    });
    let class = Class::parse("plain", &spec).unwrap();
    let rule = ConsentRule::new(Some(&class), account, DecidedObjects::None);
    let id = config_map(namespace);
    let kept = why.map(|why| (id.clone(), why.to_owned().into()));
    let progress = RemovalProgress::new([(id.clone(), Vec::new())], kept);
    let going: Vec<ObjectId> = why.is_none().then_some(id).into_iter().collect();
    let admit = "kubectl annotate bundledeployment web core.rukpak.io/admit=…";
    progress.removal_result(&going, &rule, admit).unwrap_err()
}

#[test]
fn messages_of_removals_are_recorded() {
    let mut text = String::new();
    let withdrawn = "ana has no permission to impersonate ServiceAccount team-a/deployer";
    for failure in [
        RemovalFailure::no_account(),
        RemovalFailure::definitions_in_use("queues.shop.example.com (3 Queues)"),
        RemovalFailure::inventory_lost("5f0c…", "bundle-system-state"),
        failed_removal("team-a", None, "Requester"),
        failed_removal(
            "team-a",
            Some("user \"ana\" has no permission to delete it"),
            "Requester",
        ),
        failed_removal(
            "other",
            Some("it is outside of spec.targets of the class"),
            "Class",
        ),
        failed_removal_by(
            ActingAccount::Withdrawn(withdrawn.to_owned()),
            "team-a",
            Some(&DenialReason::AccountWithdrawn(withdrawn.to_owned()).to_string()),
            "Requester",
        ),
        RemovalFailure::not_reviewed(),
    ] {
        let _ = writeln!(text, "error: {} [{}]", failure.message, failure.code);
    }
    let policies = ["releases".to_owned()];
    text += &rendered(&downgrade::refusal(Some("1.4.0"), Some("1.3.9"), &policies));
    assert_eq!(text, RECORDED, "copy the left side to messages.txt");
}
