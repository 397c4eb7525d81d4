//! Permissions that writes require, and reserved namespaces.

use super::*;

#[test]
fn only_changes_of_content_need_impersonate() {
    let account = json!({"namespace": "team-a", "name": "deployer"});
    let old = deployment(&json!({"serviceAccount": account}));
    let changed = |more: Value| {
        let mut spec = json!({"serviceAccount": account});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        deployment(&spec)
    };
    let settings = changed(json!({"drift": {"mode": "Report"}, "paused": true}));
    let subject = update(Kind::BundleDeployment, &old, &settings, StampState::Stamped);
    assert_eq!(needs(&subject).impersonate, None);
    assert_eq!(needs(&subject).image, None);
    assert_eq!(stamp_of(&subject, &fine()), StampChange::UpdateChangedParts);
    assert!(!subject.changed_parts().any_of_content());
    let mut facts = fine();
    facts
        .may_use
        .insert("plain".into(), AccessReviewResult::Denied);
    assert!(matches!(judge(&subject, &facts), Verdict::Refuse(_)));
    for new in [
        changed(json!({"config": {"a": 1}})),
        changed(json!({"serviceAccount": {"namespace": "team-a", "name": "other"}})),
        changed(
            json!({"template": {"metadata": {"labels": {"a": "b"}}, "spec": bundle_spec("plain")}}),
        ),
    ] {
        let subject = update(Kind::BundleDeployment, &old, &new, StampState::Stamped);
        assert!(needs(&subject).impersonate.is_some(), "{new}");
        let mut facts = fine();
        facts.may_impersonate = Some(AccessReviewResult::Denied);
        assert!(
            matches!(judge(&subject, &facts), Verdict::Refuse(_)),
            "{new}"
        );
        facts.may_impersonate = Some(AccessReviewResult::Allowed);
        assert_eq!(
            stamp_of(&subject, &facts),
            StampChange::UpdateChangedParts,
            "{new}"
        );
    }
}

#[test]
fn change_of_deletion_policy_during_deletion_needs_use() {
    let old = deployment(&json!({}));
    let mut new = deployment(&json!({"deletion": {"objects": "Orphan"}}));
    new["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z".into();
    let subject = update(Kind::BundleDeployment, &old, &new, StampState::Stamped);
    let mut facts = fine();
    assert!(matches!(
        judge(&subject, &facts),
        Verdict::Admit {
            stamp: StampChange::UpdateChangedParts,
            ..
        }
    ));
    facts
        .may_use
        .insert("plain".into(), AccessReviewResult::Denied);
    assert!(matches!(judge(&subject, &facts), Verdict::Refuse(_)));
}

#[test]
fn deployment_needs_use_of_both_classes() {
    let mut new = deployment(&json!({}));
    new["spec"]["template"]["spec"]["provisionerClassName"] = "registry".into();
    let subject = create(Kind::BundleDeployment, &new);
    assert_eq!(needs(&subject).classes.len(), 2);
    let mut facts = fine();
    facts.classes.extend([class(
        "registry",
        &json!({"provisioner": "core.rukpak.io/registry"}),
    )]);
    facts
        .may_use
        .insert("plain".into(), AccessReviewResult::Denied);
    facts
        .may_use
        .insert("registry".into(), AccessReviewResult::Denied);
    let verdict = judge(&subject, &facts);
    assert_eq!(
        codes_of(&verdict)[..2],
        ["BUNDLE-REVIEW-012", "BUNDLE-REVIEW-012"]
    );
    let text = message(&verdict);
    assert!(text.starts_with("BUNDLE-REVIEW-012: spec.provisionerClassName: user \"ana\" has no permission to use provisioner class \"plain\": verb use on provisionerclasses/plain is required\nhint: ask an administrator for a Role and RoleBinding in namespace bundle-system"), "{text}");
    assert!(
        text.contains(
            "with verb use, apiGroup \"core.rukpak.io\", resource provisionerclasses and resourceName \"plain\""
        ),
        "{text}"
    );
}

#[test]
fn registry_is_queried_only_after_permissions_are_granted() {
    let new = bundle("plain");
    let subject = create(Kind::Bundle, &new);
    let mut facts = fine();
    facts.content = ContentFact::NotNeeded;
    facts
        .classes
        .extend([class("plain", &json!({"signatures": "Required"}))]);
    assert!(can_read_image(&subject, &facts));
    facts
        .may_use
        .insert("plain".into(), AccessReviewResult::Denied);
    assert!(!can_read_image(&subject, &facts));
    assert_eq!(codes_of(&judge(&subject, &facts)), ["BUNDLE-REVIEW-012"]);
    facts
        .may_use
        .insert("plain".into(), AccessReviewResult::Allowed);
    facts.classes.extend([class(
        "plain",
        &json!({"sources": {"hosts": ["other.example.com"]}}),
    )]);
    assert!(!can_read_image(&subject, &facts));
}

#[test]
fn registry_is_not_queried_for_classes_of_other_provisioners() {
    let new = bundle("theirs");
    let subject = create(Kind::Bundle, &new);
    let mut facts = fine();
    facts.content = ContentFact::NotNeeded;
    facts
        .may_use
        .insert("theirs".into(), AccessReviewResult::Allowed);
    facts.classes.extend([class("theirs", &json!({}))]);
    assert!(can_read_image(&subject, &facts));
    facts.classes.extend([class(
        "theirs",
        &json!({"provisioner": "example.com/theirs"}),
    )]);
    assert!(!can_read_image(&subject, &facts));
}

#[test]
fn service_account_needs_impersonate() {
    let new = deployment(&json!({"serviceAccount": {"namespace": "team-a", "name": "deployer"}}));
    let subject = create(Kind::BundleDeployment, &new);
    assert_eq!(
        needs(&subject).impersonate.unwrap().path(),
        "team-a/deployer"
    );
    let mut facts = fine();
    facts.may_impersonate = Some(AccessReviewResult::Denied);
    let text = message(&judge(&subject, &facts));
    assert!(text.contains("has no permission to install as ServiceAccount team-a/deployer: verb impersonate on serviceaccounts/deployer in namespace team-a is required"), "{text}");
    facts.may_impersonate = Some(AccessReviewResult::Allowed);
    assert!(matches!(judge(&subject, &facts), Verdict::Admit { .. }));
    // A ServiceAccount for the installation is required.
    let new = deployment(&json!({}));
    facts
        .classes
        .extend([class("plain", &json!({"serviceAccount": null}))]);
    assert!(
        message(&judge(&create(Kind::BundleDeployment, &new), &facts))
            .contains("has no ServiceAccount for the installation")
    );
}

#[test]
fn rejects_config_map_without_permission_to_read_it() {
    let new = json!({"spec": {"provisionerClassName": "plain", "source": {"type": "configMaps", "configMaps": [{"configMap": {"name": "a"}}]}}});
    let subject = create(Kind::Bundle, &new);
    let judged = |answer: Option<AccessReviewResult>, fact: Option<ConfigMapFact>| {
        let mut facts = fine();
        facts
            .may_read
            .extend(answer.map(|answer| ("a".into(), answer)));
        facts
            .config_maps
            .extend(fact.map(|fact| ("a".into(), fact)));
        judge(&subject, &facts)
    };
    let refusals = [
        ConfigMapFact::Missing,
        ConfigMapFact::Immutable,
        ConfigMapFact::Mutable,
    ]
    .map(|fact| judged(Some(AccessReviewResult::Denied), Some(fact)));
    assert!(refusals.iter().all(|refusal| *refusal == refusals[0]));
    let Verdict::Refuse(findings) = &refusals[0] else {
        panic!("{refusals:?}");
    };
    let finding = findings.errors().next().unwrap();
    assert_eq!(finding.code, codes::review::CONFIGMAP_NOT_ALLOWED);
    assert!(
        finding.message.contains("verb get on configmaps/a"),
        "{finding}"
    );
    // If a lookup is missing, its result is unknown.
    for (answer, fact) in [
        (None, Some(ConfigMapFact::Immutable)),
        (Some(AccessReviewResult::Allowed), None),
    ] {
        let verdict = judged(answer, fact);
        assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
    }
    let verdict = judged(
        Some(AccessReviewResult::Allowed),
        Some(ConfigMapFact::Immutable),
    );
    assert!(matches!(verdict, Verdict::Admit { .. }), "{verdict:?}");
}

#[test]
fn rejects_source_whose_secret_the_requester_cannot_read() {
    for source in [
        json!({"type": "image", "image": {"ref": "registry.example.com/web:1", "pullSecret": "login"}}),
        json!({"type": "http", "http": {"url": "https://files.example.com/a", "auth": {"secret": {"name": "login"}}}}),
        json!({"type": "git", "git": {"repository": "https://git.example.com/a", "ref": {"branch": "main"}, "auth": {"secret": {"name": "login"}}}}),
    ] {
        let new = json!({"spec": {"provisionerClassName": "plain", "source": source}});
        let subject = create(Kind::Bundle, &new);
        assert_eq!(needs(&subject).secret.unwrap().as_str(), "login");
        let judged = |answer: Option<AccessReviewResult>| {
            let facts = ReviewFacts {
                may_read_secret: answer,
                ..fine()
            };
            judge(&subject, &facts)
        };
        let text = message(&judged(Some(AccessReviewResult::Denied)));
        assert!(
            text.contains("has no permission to read Secret \"login\": verb get on secrets/login"),
            "{text}"
        );
        assert!(matches!(judged(None), Verdict::Unknown(_)));
        assert!(matches!(
            judged(Some(AccessReviewResult::Allowed)),
            Verdict::Admit { .. }
        ));
    }
    let open = json!({"type": "http", "http": {"url": "https://files.example.com/a"}});
    let new = json!({"spec": {"provisionerClassName": "plain", "source": open}});
    let subject = create(Kind::Bundle, &new);
    assert_eq!(needs(&subject).secret, None);
    assert!(matches!(judge(&subject, &fine()), Verdict::Admit { .. }));
}

#[test]
fn rejects_only_for_the_config_map_at_which_the_lookups_ended() {
    let names = ["c", "b", "a"].map(|name| json!({"configMap": {"name": name}}));
    let new = json!({"spec": {"provisionerClassName": "plain", "source": {"type": "configMaps", "configMaps": names}}});
    let mut facts = fine();
    facts
        .may_read
        .insert("a".into(), AccessReviewResult::Allowed);
    facts
        .config_maps
        .insert("a".into(), ConfigMapFact::Immutable);
    facts
        .may_read
        .insert("b".into(), AccessReviewResult::Denied);
    let verdict = judge(&create(Kind::Bundle, &new), &facts);
    let Verdict::Refuse(findings) = &verdict else {
        panic!("{verdict:?}");
    };
    let found: Vec<_> = findings.errors().map(|finding| finding.code).collect();
    assert_eq!(found, [codes::review::CONFIGMAP_NOT_ALLOWED], "{verdict:?}");
}

#[test]
fn rejects_namespaces_of_the_webhook_as_target_namespace() {
    for (target, expected) in [
        ("bundle-system", true),
        ("bundle-system-state", true),
        ("team-a", false),
    ] {
        let new = deployment(&json!({"targetNamespace": target}));
        let verdict = judge(&create(Kind::BundleDeployment, &new), &fine());
        let is_refused = codes_of(&verdict).contains(&codes::review::RESERVED_NAMESPACE.id);
        assert_eq!(is_refused, expected, "{target}");
    }
}

#[test]
fn rejects_create_namespace_without_a_target_namespace() {
    for (more, expected) in [
        (json!({"createNamespace": true}), true),
        (
            json!({"createNamespace": true, "targetNamespace": ""}),
            true,
        ),
        (
            json!({"createNamespace": true, "targetNamespace": "a"}),
            false,
        ),
        (json!({"createNamespace": false}), false),
    ] {
        let verdict = judge(&create(Kind::BundleDeployment, &deployment(&more)), &fine());
        let is_refused = codes_of(&verdict).contains(&codes::review::NO_NAMESPACE_TO_CREATE.id);
        assert_eq!(is_refused, expected, "{more}");
    }
}
