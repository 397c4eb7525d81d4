//! Removals and prunes, from the first observation to the result.

use serde_json::json;

use super::*;
use crate::plan::consent::ActingAccount;
use crate::plan::decision::DecidedObjects;
use crate::review::Class;

const ADMIT: &str = "`kubectl annotate …`";

fn id(kind: &str, namespace: Option<&str>, name: &str) -> ObjectId {
    ObjectId {
        group: String::new(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    }
}

fn namespace() -> ObjectId {
    id("Namespace", None, "team-a")
}

fn config(name: &str) -> ObjectId {
    id("ConfigMap", Some("team-a"), name)
}

fn held(id: &ObjectId) -> (ObjectId, Vec<String>) {
    (id.clone(), vec!["example.com/hold".to_owned()])
}

fn free(id: &ObjectId) -> (ObjectId, Vec<String>) {
    (id.clone(), Vec::new())
}

fn kept(id: &ObjectId, why: &str) -> (ObjectId, NoDeletionReason) {
    (id.clone(), NoDeletionReason::Other(why.to_owned()))
}

fn rule(account: ActingAccount, authorization: &str) -> ConsentRule {
    let spec = json!({
        "provisioner": "core.rukpak.io/plain",
        "authorization": authorization,
        "targets": {"namespaces": ["team-*"], "clusterScoped": "Deny"},
    });
    let class = Class::parse("plain", &spec).unwrap();
    ConsentRule::new(Some(&class), account, DecidedObjects::None)
}

#[test]
fn each_step_waits_until_the_objects_of_the_previous_step_are_gone() {
    let mut progress = RemovalProgress::new([free(&namespace()), free(&config("a"))], []);
    assert_eq!(progress.next(), NextRemoval::Delete(vec![config("a")]));
    assert_eq!(progress.in_deletion(&[config("a")]), [config("a")]);
    // A finalizer blocks the deletion of the ConfigMap. The Namespace waits, and the ConfigMap is
    // not deleted again.
    let finalizers = BTreeMap::from([held(&config("a"))]);
    progress.observe(&BTreeSet::new(), finalizers);
    assert_eq!(progress.next(), NextRemoval::Await(vec![config("a")]));
    assert_eq!(progress.in_deletion(&[config("a")]), []);
    progress.observe(&[config("a")].into(), BTreeMap::new());
    assert_eq!(progress.next(), NextRemoval::Delete(vec![namespace()]));
    progress.observe(&[namespace()].into(), BTreeMap::new());
    assert_eq!(progress.next(), NextRemoval::End);
    assert!(progress.remaining().is_empty());
}

#[test]
fn reasons_are_joined_and_finalizers_override_them() {
    let (first, second) = (config("a"), config("b"));
    let progress = RemovalProgress::new(
        [free(&first), held(&second)],
        [
            kept(&first, "ana may not"),
            kept(&first, "bob may not"),
            kept(&second, "x"),
        ],
    );
    assert_eq!(
        progress.obstacles[&first],
        Obstacle::NotAllowed("ana may not, bob may not".to_owned())
    );
    assert!(progress.is_blocked_by_finalizer(&second));
}

#[test]
fn result_of_a_removal_depends_on_remaining_objects() {
    use ActingAccount::{Former, Granted, Withdrawn};
    let inside = config("a");
    let outside = id("ConfigMap", Some("other"), "a");
    let withdrawn = || Withdrawn("ana may not impersonate it".to_owned());
    let refused =
        |id: &ObjectId| RemovalProgress::new([free(id)], [kept(id, "ana may not delete it")]);
    let both = || {
        RemovalProgress::new(
            [free(&inside), held(&config("b"))],
            [kept(&inside, "ana may not delete it")],
        )
    };
    let failed = codes::install::REMOVAL_FAILED;
    let not_allowed = codes::install::REMOVAL_NOT_ALLOWED;
    let no_account = codes::install::ACCOUNT_WITHDRAWN;
    let beyond = codes::install::OUTSIDE_DELEGATION;
    #[rustfmt::skip]
    let table = [
        // Columns: remaining objects, objects that are being deleted, account, authorization of the
        // class; then the expected code, reason and retry policy.
        (RemovalProgress::default(), vec![], Granted, "Requester", None),
        (RemovalProgress::new([free(&inside)], []), vec![inside.clone()], Granted, "Requester", Some((failed, REMOVING, RetryPolicy::Soon))),
        (RemovalProgress::new([held(&inside)], []), vec![], Granted, "Requester", Some((failed, REMOVING, RetryPolicy::Soon))),
        (RemovalProgress::new([held(&inside)], []), vec![], withdrawn(), "Requester", Some((failed, REMOVING, RetryPolicy::Soon))),
        (refused(&inside), vec![], Granted, "Requester", Some((not_allowed, REFUSED, RetryPolicy::Slowly))),
        (refused(&inside), vec![], Granted, "Class", Some((not_allowed, REFUSED, RetryPolicy::Slowly))),
        (refused(&inside), vec![], withdrawn(), "Requester", Some((no_account, REFUSED, RetryPolicy::Slowly))),
        (refused(&outside), vec![], Granted, "Requester", Some((not_allowed, REFUSED, RetryPolicy::Slowly))),
        (refused(&outside), vec![], Granted, "Class", Some((beyond, REFUSED, RetryPolicy::Slowly))),
        (refused(&outside), vec![], Former, "Class", Some((not_allowed, REFUSED, RetryPolicy::Slowly))),
        (both(), vec![], Granted, "Requester", Some((not_allowed, REFUSED, RetryPolicy::Soon))),
        (both(), vec![], withdrawn(), "Requester", Some((no_account, REFUSED, RetryPolicy::Soon))),
    ];
    for (progress, in_deletion, account, authorization, expected) in table {
        let rule = rule(account, authorization);
        let result = progress.removal_result(&in_deletion, &rule, ADMIT);
        let found = result.err().map(|error| {
            assert!(error.message.contains("left"), "{}", error.message);
            (error.code, error.reason, error.retry)
        });
        assert_eq!(found, expected, "{progress:?} {rule:?}");
    }
}

#[test]
fn namespace_of_the_webhook_is_kept_and_named_by_removals_and_prunes() {
    let all = [free(&namespace()), free(&config("a"))];
    let mut progress = RemovalProgress::new(all, [(namespace(), NoDeletionReason::Reserved)]);
    assert_eq!(progress.next(), NextRemoval::Delete(vec![config("a")]));
    progress.observe(&[config("a")].into(), BTreeMap::new());
    assert_eq!(progress.next(), NextRemoval::End);
    let granted = rule(ActingAccount::Granted, "Requester");
    let failure = progress.removal_result(&[], &granted, ADMIT).unwrap_err();
    assert_eq!(
        (failure.code, failure.reason, failure.retry),
        (
            codes::install::RESERVED_NAMESPACE,
            REFUSED,
            RetryPolicy::Slowly
        )
    );
    assert_eq!(
        failure.message,
        "1 object is left; namespaces of bundle-webhook are not deleted: Namespace/team-a (set spec.deletion.objects: Orphan to complete the deletion without them)"
    );
    assert_eq!(
        progress.prune_warnings(&[]),
        [
            "Namespace/team-a is no longer part of the content and stays: it is a namespace of bundle-webhook"
        ]
    );
    // A missing permission for another object has a separate code, which has priority.
    let both = RemovalProgress::new(
        [free(&namespace()), free(&config("a"))],
        [
            (namespace(), NoDeletionReason::Reserved),
            kept(&config("a"), "ana may not delete it"),
        ],
    );
    let failure = both.removal_result(&[], &granted, ADMIT).unwrap_err();
    assert_eq!(failure.code, codes::install::REMOVAL_NOT_ALLOWED);
    assert!(failure.message.contains("namespaces of bundle-webhook"));
}

#[test]
fn prune_warns_about_remaining_objects_and_waits_only_for_deletions() {
    let (config, namespace) = (config("web"), namespace());
    let progress = |held_by: Vec<String>, kept| {
        RemovalProgress::new([(config.clone(), held_by), free(&namespace)], kept)
    };
    let refused = progress(vec![], vec![kept(&config, "ana may not delete it")]);
    assert_eq!(refused.unpruned(&[]), None);
    assert_eq!(
        refused.prune_warnings(&[]),
        [
            "ConfigMap/team-a/web is no longer part of the content and stays: ana may not delete it",
            "Namespace/team-a is no longer part of the content and stays: remaining objects depend on it",
        ]
    );
    let waiting = progress(vec!["example.com/hold".to_owned()], vec![]);
    let message = waiting.unpruned(&[]).unwrap();
    assert!(
        message.ends_with("the deletion of ConfigMap/team-a/web"),
        "{message}"
    );
    assert!(waiting.prune_warnings(&[])[0].contains("waits for finalizers of other controllers"));
    // No other object waits for the deletion of the Namespace.
    let last = RemovalProgress::new([free(&namespace)], []);
    let in_deletion = [namespace.clone()];
    assert_eq!(last.unpruned(&in_deletion), None);
    assert!(last.prune_warnings(&in_deletion).is_empty());
}

#[test]
fn objects_that_are_kept_after_the_first_step_are_not_deleted() {
    let mut progress = RemovalProgress::new([free(&namespace()), free(&config("a"))], []);
    assert_eq!(progress.next(), NextRemoval::Delete(vec![config("a")]));
    progress.observe(&BTreeSet::from([config("a")]), BTreeMap::new());
    assert_eq!(progress.next(), NextRemoval::Delete(vec![namespace()]));
    progress.keep([kept(&namespace(), "it is in use")]);
    assert_eq!(progress.next(), NextRemoval::End);
    assert_eq!(
        progress.prune_warnings(&[]),
        ["Namespace/team-a is no longer part of the content and stays: it is in use"]
    );
}

/// With a search in the list of objects for each object, this test would need minutes.
#[test]
fn messages_about_many_objects_in_deletion_need_linear_time() {
    let objects: Vec<ObjectId> = (0..100_000)
        .map(|number| config(&format!("a-{number}")))
        .collect();
    let namespace = namespace();
    let all = objects.iter().chain([&namespace]).map(free);
    let progress = RemovalProgress::new(all, []);
    let in_deletion = progress.in_deletion(&objects);
    assert_eq!(in_deletion.len(), objects.len());
    let warnings = progress.prune_warnings(&in_deletion);
    assert_eq!(
        warnings,
        [
            "Namespace/team-a is no longer part of the content and stays: remaining objects depend on it"
        ]
    );
    let message = progress.unpruned(&in_deletion).unwrap();
    let start = "100001 objects that are no longer part of the content are left; waiting for";
    assert!(message.starts_with(start), "{message}");
}
