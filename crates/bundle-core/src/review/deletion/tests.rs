//! Permissions for deletions, as a truth table.

use serde_json::json;

use super::*;
use crate::{diagnostic::Outcome, review::Class};

const PLAIN: &str = "core.rukpak.io/plain";

fn requester(user: &str) -> Requester {
    Requester {
        user: user.to_owned(),
        ..Requester::default()
    }
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {"provisionerClassName": "plain", "template": {"spec": {"provisionerClassName": "other"}}},
    })
}

fn child() -> Value {
    json!({
        "metadata": {"name": "web-4f2a9c", "ownerReferences": [
            {"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment", "name": "web", "uid": "1", "controller": true},
        ]},
        "spec": {"provisionerClassName": "plain"},
    })
}

fn class(name: &str, provisioner: &str) -> ClassFact {
    let spec = json!({"provisioner": provisioner, "serviceAccount": {"namespace": "sys", "name": "installer"}});
    ClassFact::Known(Box::new(Class::parse(name, &spec).unwrap()))
}

/// Returns facts: the requester of the object is Ana. Both classes exist. The requester of the
/// deletion has verb `use` on them, but not verb `manage`.
fn facts() -> DeletionFacts {
    DeletionFacts {
        recorded: vec![requester("ana")],
        classes: ["plain", "other"]
            .map(|name| (name.to_owned(), class(name, PLAIN)))
            .into(),
        may_use: ["plain", "other"]
            .map(|name| (name.to_owned(), AccessReviewResult::Allowed))
            .into(),
        may_manage: Some(AccessReviewResult::Denied),
        owner: None,
        covers_owners: None,
    }
}

fn judged(kind: Kind, object: &Value, user: &Requester, facts: &DeletionFacts) -> Option<Outcome> {
    let deletion = Deletion {
        kind,
        name: "web",
        object,
        requester: user,
        own: false,
        is_finalized: has_finalizer(object, "ours"),
    };
    judge_deletion(&deletion, facts).outcome()
}

#[test]
fn only_requester_and_manager_with_use_may_delete() {
    let away = || {
        AccessReviewResult::Unavailable(Finding::error(codes::cluster::UNREACHABLE, "no answer"))
    };
    let (no, yes) = (Some(Outcome::Refused), None);
    let unknown = Some(Outcome::Unknown);
    let mut withdrawn = facts();
    withdrawn
        .may_use
        .insert("other".to_owned(), AccessReviewResult::Denied);
    let mut silent = facts();
    silent.may_use.insert("other".to_owned(), away());
    let managed = |facts: &DeletionFacts| DeletionFacts {
        may_manage: Some(AccessReviewResult::Allowed),
        ..facts.clone()
    };
    let mut gone = facts();
    gone.classes.insert("other".to_owned(), ClassFact::Unknown);
    gone.may_use
        .insert("other".to_owned(), AccessReviewResult::Denied);
    let unstamped = DeletionFacts {
        recorded: Vec::new(),
        ..facts()
    };
    for (user, facts, expected) in [
        ("ana", facts(), yes),
        ("ana", withdrawn.clone(), no),
        ("ana", silent.clone(), unknown),
        ("ana", gone.clone(), no),
        ("ana", unstamped.clone(), no),
        ("ana", DeletionFacts::default(), unknown),
        ("mallory", facts(), no),
        ("mallory", managed(&facts()), yes),
        ("mallory", managed(&withdrawn), no),
        ("mallory", managed(&gone), yes),
        ("mallory", managed(&unstamped), yes),
        (
            "mallory",
            DeletionFacts {
                may_manage: Some(away()),
                ..facts()
            },
            unknown,
        ),
        (
            "mallory",
            DeletionFacts {
                may_manage: None,
                ..facts()
            },
            unknown,
        ),
    ] {
        let found = judged(
            Kind::BundleDeployment,
            &deployment(),
            &requester(user),
            &facts,
        );
        assert_eq!(found, expected, "{user}: {facts:?}");
    }
}

#[test]
fn user_with_another_uid_is_another_requester() {
    let with_uid = |user: &str, uid: &str| Requester {
        uid: uid.to_owned(),
        ..requester(user)
    };
    let account = "system:serviceaccount:team-a:deployer";
    let refused = Some(Outcome::Refused);
    for (user, recorded, uid, expected) in [
        ("ana", "1", "", None),
        ("ana", "1", "1", None),
        ("ana", "1", "2", refused),
        (account, "1", "1", None),
        (account, "1", "2", refused),
        // Another user impersonates the ServiceAccount.
        (account, "1", "", refused),
        (account, "", "", None),
        (account, "", "1", None),
    ] {
        let facts = DeletionFacts {
            recorded: vec![with_uid(user, recorded)],
            ..facts()
        };
        let found = judged(
            Kind::BundleDeployment,
            &deployment(),
            &with_uid(user, uid),
            &facts,
        );
        assert_eq!(found, expected, "{user} {recorded} {uid}");
    }
}

#[test]
fn objects_of_foreign_provisioners_are_not_guarded() {
    let mut facts = facts();
    let foreign = class("other", "example.com/other");
    facts.classes.insert("other".to_owned(), foreign);
    let user = requester("mallory");
    let found = judged(Kind::BundleDeployment, &deployment(), &user, &facts);
    assert_eq!(found, None);
}

#[test]
fn objects_with_our_finalizer_are_guarded_also_where_their_class_is_foreign() {
    let mut facts = facts();
    let foreign = class("other", "example.com/other");
    facts.classes.insert("other".to_owned(), foreign);
    let mut object = deployment();
    object["metadata"]["finalizers"] = json!(["theirs", "ours"]);
    let managed = DeletionFacts {
        may_manage: Some(AccessReviewResult::Allowed),
        ..facts.clone()
    };
    let (kind, refused) = (Kind::BundleDeployment, Some(Outcome::Refused));
    for (user, facts, expected) in [
        ("mallory", &facts, refused),
        ("mallory", &managed, None),
        ("ana", &facts, None),
    ] {
        let found = judged(kind, &object, &requester(user), facts);
        assert_eq!(found, expected, "{user}");
    }
}

#[test]
fn only_author_or_manager_may_delete_an_approval() {
    let approval =
        json!({"metadata": {"name": "web"}, "spec": {"provisionerClassName": "ignored"}});
    let without_class = DeletionFacts {
        classes: BTreeMap::new(),
        may_use: BTreeMap::new(),
        ..facts()
    };
    for (user, may_manage, expected) in [
        ("ana", AccessReviewResult::Denied, None),
        ("ben", AccessReviewResult::Denied, Some(Outcome::Refused)),
        ("ben", AccessReviewResult::Allowed, None),
    ] {
        let facts = DeletionFacts {
            may_manage: Some(may_manage),
            ..without_class.clone()
        };
        let found = judged(Kind::BundleApproval, &approval, &requester(user), &facts);
        assert_eq!(found, expected, "{user}");
    }
}

#[test]
fn controllers_may_delete_bundles_of_deleted_deployments() {
    let none = DeletionFacts::default();
    let owner = |owner| DeletionFacts {
        owner: Some(owner),
        ..DeletionFacts::default()
    };
    let away = Finding::error(codes::cluster::UNREACHABLE, "no answer");
    for user in GARBAGE_COLLECTORS.into_iter().chain([NAMESPACE_CONTROLLER]) {
        for (facts, expected) in [
            (owner(OwnerFact::DeletedOrAbsent), None),
            (owner(OwnerFact::Present), Some(Outcome::Refused)),
            (
                owner(OwnerFact::Unavailable(away.clone())),
                Some(Outcome::Unknown),
            ),
            (none.clone(), Some(Outcome::Unknown)),
        ] {
            let found = judged(Kind::Bundle, &child(), &requester(user), &facts);
            assert_eq!(found, expected, "{user}: {facts:?}");
        }
        // The deletion is allowed: a user who sets an owner needs the same permissions as for a
        // deletion.
        let found = judged(
            Kind::BundleDeployment,
            &deployment(),
            &requester(user),
            &none,
        );
        assert_eq!(found, None);
    }
    let user = requester("system:serviceaccount:default:generic-garbage-collector");
    let found = judged(
        Kind::Bundle,
        &child(),
        &user,
        &owner(OwnerFact::DeletedOrAbsent),
    );
    assert_ne!(found, None);
}

#[test]
fn pod_may_delete_generated_bundles() {
    let (object, user) = (child(), requester("pod"));
    let deletion = Deletion {
        kind: Kind::Bundle,
        name: "web-4f2a9c",
        object: &object,
        requester: &user,
        own: true,
        is_finalized: false,
    };
    assert!(judge_deletion(&deletion, &DeletionFacts::default()).is_empty());
}

#[test]
fn owners_and_our_finalizer_are_guarded_and_other_metadata_is_not() {
    let object = |owners: Value, finalizers: Value| json!({"metadata": {"ownerReferences": owners, "finalizers": finalizers, "labels": {"a": owners.to_string()}}});
    let before = object(Value::Null, json!(["ours", "theirs"]));
    for (new, expected) in [
        (object(json!([]), json!(["theirs", "ours"])), false),
        (object(Value::Null, json!(["ours"])), false),
        (object(Value::Null, json!(["theirs"])), true),
        (object(Value::Null, Value::Null), true),
        (
            object(json!([{"name": "gone"}]), json!(["ours", "theirs"])),
            true,
        ),
    ] {
        let guarded = is_guarded_update(Kind::BundleDeployment, &before, &new, ("ours", "admit"));
        assert_eq!(guarded, expected, "{new}");
    }
}

#[test]
fn specs_of_deployments_and_the_annotation_that_vouches_are_guarded() {
    let object = |spec: &str, admit: Value| json!({"spec": {"config": spec}, "metadata": {"annotations": {"admit": admit, "note": spec}}});
    let before = object("a", json!("token"));
    for (kind, new, expected) in [
        (Kind::BundleDeployment, object("a", json!("token")), false),
        (Kind::BundleDeployment, object("a", Value::Null), false),
        (Kind::BundleDeployment, object("a", json!("other")), true),
        (Kind::BundleDeployment, object("b", json!("token")), true),
        (Kind::Bundle, object("a", json!("other")), true),
        // The spec of a Bundle is immutable. Changes are always rejected, with the text of RukPak.
        (Kind::Bundle, object("b", json!("token")), false),
        (Kind::BundleApproval, object("b", json!("token")), false),
    ] {
        let guarded = is_guarded_update(kind, &before, &new, ("ours", "admit"));
        assert_eq!(guarded, expected, "{kind} {new}");
    }
}

#[test]
fn ownership_of_the_spec_of_a_deployment_is_guarded() {
    let object = |manager: &str| {
        let entry = json!({"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:config": {}}}});
        json!({"spec": {"config": "a"}, "metadata": {"managedFields": [entry]}})
    };
    let before = object("gitops");
    for (kind, new, expected) in [
        (Kind::BundleDeployment, object("gitops"), false),
        (Kind::BundleDeployment, object("other"), true),
        // The spec of a Bundle is immutable.
        (Kind::Bundle, object("other"), false),
    ] {
        let guarded = is_guarded_update(kind, &before, &new, ("ours", "admit"));
        assert_eq!(guarded, expected, "{kind} {new}");
    }
}

#[test]
fn signatures_in_the_proof_annotation_are_guarded() {
    let object = |proof: &Value| json!({"metadata": {"annotations": {ANNOTATION_PROOF: proof, "note": "a"}}});
    let (one, two) = (object(&json!("1")), object(&json!("2")));
    let none = json!({"metadata": {"annotations": {"note": "b"}}});
    for kind in Kind::ALL {
        for (old, new, expected) in [
            (&one, &two, true),
            (&one, &none, true),
            (&one, &one, false),
            (&none, &one, true),
        ] {
            let guarded = is_guarded_update(kind, old, new, ("ours", "admit"));
            assert_eq!(guarded, expected, "{kind} {old} {new}");
        }
    }
}

#[test]
fn labels_and_annotations_of_deployment_tools_are_guarded() {
    for name in [
        "kubectl.kubernetes.io/last-applied-configuration",
        "kustomize.toolkit.fluxcd.io/reconcile",
        "helm.toolkit.fluxcd.io/driftDetection",
        "argocd.argoproj.io/sync-options",
        "meta.helm.sh/release-name",
    ] {
        let object =
            |applied: Value| json!({"metadata": {"annotations": {name: applied, "note": applied}}});
        let (one, two) = (object(json!("1")), object(json!("2")));
        let none = json!({"metadata": {"annotations": {"note": "a"}}});
        let other = json!({"metadata": {"annotations": {name: "1", "note": "b"}}});
        for (old, new, expected) in [
            (&one, &two, true),
            (&one, &none, true),
            (&none, &one, true),
            (&one, &other, false),
            (&none, &json!({}), false),
        ] {
            let guarded = is_guarded_update(Kind::BundleDeployment, old, new, ("ours", "admit"));
            assert_eq!(guarded, expected, "{old} {new}");
            assert!(!is_guarded_update(
                Kind::Bundle,
                old,
                new,
                ("ours", "admit")
            ));
        }
    }
}

#[test]
fn another_notation_of_the_same_spec_is_guarded_for_every_kind() {
    let object = |source: Value| json!({"spec": {"source": source}});
    let image = object(json!({"image": {"ref": "a"}}));
    let git = object(json!({"git": {"repository": "a"}}));
    let http = object(json!({"http": {"url": "a"}}));
    for (plain, other) in [
        (
            &image,
            object(json!({"image": {"ref": "a", "pullSecret": ""}})),
        ),
        (
            &git,
            object(json!({"git": {"repository": "a", "directory": "", "ref": {"tag": ""}}})),
        ),
        (
            &git,
            object(json!({"git": {"repository": "a", "auth": {}}})),
        ),
        (&http, object(json!({"http": {"url": "a", "auth": {}}}))),
        (&http, object(json!({"http": {"url": "a"}, "git": null}))),
    ] {
        for kind in Kind::ALL {
            for (old, new) in [(plain, &other), (&other, plain)] {
                let guarded = is_guarded_update(kind, old, new, ("ours", "admit"));
                assert!(guarded, "{kind} {old} {new}");
                assert!(!is_guarded_update(kind, old, old, ("ours", "admit")));
            }
        }
    }
}

#[test]
fn applyset_of_a_deployment_is_guarded() {
    let object = |field: &str, members: Value| json!({"metadata": {"name": "web", field: members}});
    let kinds = "applyset.kubernetes.io/contains-group-kinds";
    let id = "applyset.kubernetes.io/id";
    let annotated = |kind: &str| object("annotations", json!({kinds: kind, "note": kind}));
    let labelled = |id_value: &str| object("labels", json!({id: id_value, "team": id_value}));
    let none = object("annotations", json!({"note": "a"}));
    for (old, new, expected) in [
        (&none, &annotated("ConfigMap"), true),
        (&annotated("ConfigMap"), &none, true),
        (&annotated("ConfigMap"), &annotated("Secret"), true),
        (&none, &labelled("a"), true),
        (&labelled("a"), &labelled("b"), true),
        (&annotated("ConfigMap"), &annotated("ConfigMap"), false),
        (
            &annotated("ConfigMap"),
            &object("annotations", json!({kinds: "ConfigMap", "other": "b"})),
            false,
        ),
        (&none, &object("labels", json!({"team": "a"})), false),
    ] {
        for kind in Kind::ALL {
            let guarded = is_guarded_update(kind, old, new, ("ours", "admit"));
            let expected = expected && kind == Kind::BundleDeployment;
            assert_eq!(guarded, expected, "{kind} {old} {new}");
        }
    }
}

#[test]
fn rejects_deletions_by_the_garbage_collector_if_nobody_reviewed_the_owner_references() {
    let collector = requester("system:serviceaccount:kube-system:generic-garbage-collector");
    let mut installed = deployment();
    installed["metadata"]["finalizers"] = json!(["ours"]);
    let mut owned = installed.clone();
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Namespace", "name": "a", "uid": "1"}]);
    let mut owned_only = owned.clone();
    owned_only["metadata"]["finalizers"] = json!(null);
    for (object, covers_owners, expected) in [
        (&installed, None, None),
        (&installed, Some(true), None),
        (&owned, Some(true), None),
        (&owned, Some(false), Some(Outcome::Refused)),
        (&owned, None, Some(Outcome::Refused)),
        (&owned_only, Some(false), Some(Outcome::Refused)),
        (&owned_only, Some(true), None),
        (&owned_only, None, None),
    ] {
        let facts = DeletionFacts {
            covers_owners,
            ..DeletionFacts::default()
        };
        let found = judged(Kind::BundleDeployment, object, &collector, &facts);
        assert_eq!(found, expected, "{object} {covers_owners:?}");
    }
    let facts = |covers_owners| DeletionFacts {
        owner: Some(OwnerFact::DeletedOrAbsent),
        covers_owners,
        ..DeletionFacts::default()
    };
    let bundle = |covers| judged(Kind::Bundle, &child(), &collector, &facts(covers));
    assert_eq!(bundle(Some(true)), None);
    assert_eq!(bundle(Some(false)), Some(Outcome::Refused));
    assert_eq!(bundle(None), None);
}

#[test]
fn rejects_deletion_shortly_after_a_gap_with_retry_hint() {
    let finalized = json!({"metadata": {"finalizers": ["ours"]}});
    let going =
        json!({"metadata": {"finalizers": ["ours"], "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let user = requester("ana");
    for (kind, object, now, since, expected) in [
        (Kind::BundleDeployment, &finalized, 5_900, Some(5_000), None),
        (
            Kind::BundleDeployment,
            &finalized,
            5_900,
            Some(5_001),
            Some("delete the BundleDeployment again in 1 s"),
        ),
        (
            Kind::BundleDeployment,
            &finalized,
            1_000,
            Some(5_500),
            Some("delete the BundleDeployment again in 5 s"),
        ),
        (
            Kind::BundleDeployment,
            &finalized,
            1_000,
            None,
            Some("delete the BundleDeployment again in 1 s"),
        ),
        (Kind::BundleDeployment, &going, 1_000, Some(5_500), None),
        (Kind::BundleDeployment, &json!({}), 1_000, Some(5_500), None),
        (Kind::Bundle, &finalized, 1_000, Some(5_500), None),
    ] {
        let deletion = Deletion {
            kind,
            name: "web",
            object,
            requester: &user,
            own: false,
            is_finalized: has_finalizer(object, "ours"),
        };
        let hint = too_early(&deletion, now, since).and_then(|finding| finding.hint);
        assert_eq!(
            hint.as_deref(),
            expected,
            "{kind} {object} at {now}, {since:?}"
        );
    }
}
