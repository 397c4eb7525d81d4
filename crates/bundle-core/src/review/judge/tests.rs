use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::{
    package,
    policy::{KeyId, Policy, SignatureFound, Unavailable},
    review::{Answer, Class, ConfigMapFact, ContentFact, DeploymentFact, Requester, needs, text},
    version::ServerVersion,
};

const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn bundle_spec(class: &str) -> Value {
    json!({"provisionerClassName": class, "source": {"type": "image", "image": {"ref": "registry.example.com/web:1"}}})
}

fn bundle(class: &str) -> Value {
    json!({"metadata": {"name": "web"}, "spec": bundle_spec(class)})
}

fn deployment(more: &Value) -> Value {
    let mut spec =
        json!({"provisionerClassName": "plain", "template": {"spec": bundle_spec("plain")}});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": "web"}, "spec": spec})
}

fn create(kind: Kind, new: &Value) -> Subject<'_> {
    Subject {
        kind,
        name: "web",
        old: None,
        new,
        standing: Standing::Unstamped,
        admits: false,
        own: false,
    }
}

fn update<'a>(kind: Kind, old: &'a Value, new: &'a Value, standing: Standing) -> Subject<'a> {
    Subject {
        old: Some(old),
        standing,
        ..create(kind, new)
    }
}

fn class(name: &str, more: &Value) -> (String, ClassFact) {
    let mut spec = json!({"provisioner": "core.rukpak.io/plain", "serviceAccount": {"namespace": "bundle-system", "name": "installer"}});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let class = Class::parse(name, &spec).unwrap();
    (name.to_owned(), ClassFact::Known(Box::new(class)))
}

fn found(kubernetes: Option<&str>) -> ContentFact {
    let mut annotations = BTreeMap::from([
        (package::keys::FORMAT.to_owned(), "plain+v0".to_owned()),
        (package::keys::TITLE.to_owned(), "web".to_owned()),
        (package::keys::VERSION.to_owned(), "1.4.0".to_owned()),
    ]);
    if let Some(range) = kubernetes {
        annotations.insert(
            package::keys::KUBERNETES.to_owned(),
            json!({"supported": range, "unsupported": "Reject"}).to_string(),
        );
    }
    let reference: crate::reference::Reference = "registry.example.com/web:1".parse().unwrap();
    ContentFact::Found {
        pinned: reference.pin(DIGEST.parse().unwrap()),
        package: package::Facts::from_annotations(&annotations).map(Box::new),
        signatures: Ok(Vec::new()),
    }
}

/// Ana may do everything, and everything is fine.
fn fine<'a>() -> Facts<'a> {
    Facts {
        requester: Requester {
            user: "ana".into(),
            ..Requester::default()
        },
        classes: BTreeMap::from([class("plain", &json!({}))]),
        may_use: BTreeMap::from([("plain".to_owned(), Answer::Yes)]),
        content: found(None),
        server: ServerVersion::parse("v1.36.3-eks-abc").ok(),
        system_namespace: "bundle-system".into(),
        state_namespace: "bundle-system-state".into(),
        ..Facts::default()
    }
}

fn codes_of(verdict: &Verdict) -> Vec<&'static str> {
    verdict
        .findings()
        .0
        .iter()
        .map(|finding| finding.code.id)
        .collect()
}

fn message(verdict: &Verdict) -> String {
    text::refusal(verdict).unwrap().message
}

#[test]
fn admits_valid_bundle_with_stamp_of_its_requester() {
    let new = bundle("plain");
    let verdict = judge(&create(Kind::Bundle, &new), &fine());
    let Verdict::Admit { warnings, stamp } = verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!(stamp, Stamping::Requester);
    assert_eq!(warnings.0[0].code, codes::trust::UNCHECKED);
}

#[test]
fn rejects_changes_of_a_bundle_spec() {
    let (old, mut new) = (bundle("plain"), bundle("plain"));
    new["spec"]["source"]["image"]["ref"] = "registry.example.com/web:2".into();
    for standing in [Standing::Stamped, Standing::Unstamped] {
        let subject = update(Kind::Bundle, &old, &new, standing);
        assert_eq!(needs(&subject), super::needs::Needs::default());
        let refusal = text::refusal(&judge(&subject, &Facts::default())).unwrap();
        assert_eq!(refusal.reason, "bundle.spec is immutable");
        assert_eq!(refusal.message, "bundle.spec is immutable");
    }
}

fn stamp_of(subject: &Subject<'_>, facts: &Facts<'_>) -> Stamping {
    match judge(subject, facts) {
        Verdict::Admit { stamp, .. } => stamp,
        other => panic!("{other:?}"),
    }
}

#[test]
fn write_with_unchanged_spec_needs_no_lookup() {
    let (old, mut new) = (bundle("plain"), bundle("plain"));
    new["metadata"]["labels"] = json!({"a": "b"});
    for standing in [Standing::Stamped, Standing::Unstamped] {
        let subject = update(Kind::Bundle, &old, &new, standing);
        assert_eq!(needs(&subject), super::needs::Needs::default());
        let verdict = judge(&subject, &Facts::default());
        assert!(
            matches!(&verdict, Verdict::Admit { stamp: Stamping::Keep, warnings } if warnings.0.is_empty()),
            "{verdict:?}"
        );
    }
    // Written otherwise, it is another generation, which needs a stamp of its own.
    new["spec"]["source"]["git"] = Value::Null;
    let subject = update(Kind::Bundle, &old, &new, Standing::Stamped);
    assert_eq!(needs(&subject), super::needs::Needs::default());
    assert_eq!(stamp_of(&subject, &Facts::default()), Stamping::Carry);
    let subject = update(Kind::Bundle, &old, &new, Standing::Unstamped);
    assert_eq!(stamp_of(&subject, &Facts::default()), Stamping::None);
}

#[test]
fn object_without_stamp_needs_the_admit_annotation() {
    let (old, new) = (bundle("plain"), bundle("plain"));
    let subject = update(Kind::Bundle, &old, &new, Standing::Unstamped);
    assert_eq!(stamp_of(&subject, &fine()), Stamping::Keep);
    let admits = Subject {
        admits: true,
        ..subject
    };
    assert!(needs(&admits).classes.contains("plain") && needs(&admits).image.is_some());
    assert_eq!(stamp_of(&admits, &fine()), Stamping::Requester);
    let mut facts = fine();
    facts.may_use.insert("plain".into(), Answer::No);
    assert_eq!(stamp_of(&admits, &facts), Stamping::Keep);
    assert_eq!(
        codes_of(&judge(&admits, &facts))[0],
        codes::review::USE_NOT_ALLOWED.id
    );
    // The pod itself vouches for nothing; and what is being deleted needs no check.
    let own = Subject {
        own: true,
        ..admits
    };
    assert_eq!(needs(&own), super::needs::Needs::default());
    assert_eq!(stamp_of(&own, &Facts::default()), Stamping::Keep);
    let mut leaving = new.clone();
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z".into();
    let leaving = update(Kind::Bundle, &old, &leaving, Standing::Unstamped);
    assert_eq!(needs(&leaving), super::needs::Needs::default());
    assert!(matches!(
        judge(&leaving, &Facts::default()),
        Verdict::Admit { .. }
    ));
}

#[test]
fn admitting_a_deleted_object_transfers_it_without_content_lookup() {
    let account = json!({"serviceAccount": {"namespace": "team-a", "name": "deployer"}});
    let mut old = deployment(&account);
    old["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z".into();
    let new = old.clone();
    for standing in [Standing::Stamped, Standing::Unstamped] {
        let admits = Subject {
            admits: true,
            ..update(Kind::BundleDeployment, &old, &new, standing)
        };
        let asked = needs(&admits);
        assert!(asked.classes.contains("plain") && asked.impersonate.is_some());
        assert_eq!(asked.image, None);
        let mut facts = fine();
        facts.content = ContentFact::NotAsked;
        facts.may_impersonate = Some(Answer::Yes);
        assert_eq!(stamp_of(&admits, &facts), Stamping::Requester);
        facts.may_impersonate = Some(Answer::No);
        assert_eq!(stamp_of(&admits, &facts), Stamping::Keep);
    }
}

#[test]
fn change_of_an_unsealed_spec_is_checked_and_gets_no_stamp() {
    let old = deployment(&json!({}));
    let new = deployment(&json!({"config": {"a": 1}}));
    let subject = update(Kind::BundleDeployment, &old, &new, Standing::Unstamped);
    let verdict = judge(&subject, &fine());
    assert_eq!(stamp_of(&subject, &fine()), Stamping::None);
    assert!(
        codes_of(&verdict).contains(&codes::review::NOT_ADMITTED.id),
        "{verdict:?}"
    );
    let mut facts = fine();
    facts.may_use.insert("plain".into(), Answer::No);
    assert!(matches!(judge(&subject, &facts), Verdict::Refuse(_)));
}

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
    let subject = update(Kind::BundleDeployment, &old, &settings, Standing::Stamped);
    assert_eq!(needs(&subject).impersonate, None);
    assert_eq!(needs(&subject).image, None);
    assert_eq!(stamp_of(&subject, &fine()), Stamping::Carry);
    assert!(!subject.changed_parts().any_of_content());
    let mut facts = fine();
    facts.may_use.insert("plain".into(), Answer::No);
    assert!(matches!(judge(&subject, &facts), Verdict::Refuse(_)));
    for new in [
        changed(json!({"config": {"a": 1}})),
        changed(json!({"serviceAccount": {"namespace": "team-a", "name": "other"}})),
        changed(
            json!({"template": {"metadata": {"labels": {"a": "b"}}, "spec": bundle_spec("plain")}}),
        ),
    ] {
        let subject = update(Kind::BundleDeployment, &old, &new, Standing::Stamped);
        assert!(needs(&subject).impersonate.is_some(), "{new}");
        let mut facts = fine();
        facts.may_impersonate = Some(Answer::No);
        assert!(
            matches!(judge(&subject, &facts), Verdict::Refuse(_)),
            "{new}"
        );
        facts.may_impersonate = Some(Answer::Yes);
        assert_eq!(stamp_of(&subject, &facts), Stamping::Carry, "{new}");
    }
}

#[test]
fn change_of_deletion_policy_during_deletion_needs_use() {
    let old = deployment(&json!({}));
    let mut new = deployment(&json!({"deletion": {"objects": "Orphan"}}));
    new["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z".into();
    let subject = update(Kind::BundleDeployment, &old, &new, Standing::Stamped);
    let mut facts = fine();
    assert!(matches!(
        judge(&subject, &facts),
        Verdict::Admit {
            stamp: Stamping::Carry,
            ..
        }
    ));
    facts.may_use.insert("plain".into(), Answer::No);
    assert!(matches!(judge(&subject, &facts), Verdict::Refuse(_)));
}

#[test]
fn generated_bundle_inherits_the_checks_of_its_template() {
    let new = bundle("plain");
    let subject = Subject {
        standing: Standing::Inherited,
        own: true,
        ..create(Kind::Bundle, &new)
    };
    assert_eq!(needs(&subject), super::needs::Needs::default());
    assert!(matches!(
        judge(&subject, &Facts::default()),
        Verdict::Admit {
            stamp: Stamping::Inherit,
            ..
        }
    ));
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
    facts.may_use.insert("plain".into(), Answer::No);
    facts.may_use.insert("registry".into(), Answer::No);
    let verdict = judge(&subject, &facts);
    assert_eq!(
        codes_of(&verdict)[..2],
        ["BUNDLE-REVIEW-012", "BUNDLE-REVIEW-012"]
    );
    let text = message(&verdict);
    assert!(text.starts_with("BUNDLE-REVIEW-012: spec.provisionerClassName: user \"ana\" may not use provisioner class \"plain\": it needs verb use on provisionerclasses/plain\nhint: an administrator can allow it: echo '{"), "{text}");
    assert!(
        text.contains(
            "kubectl create rolebinding -n bundle-system use-plain-ana --role=use-plain --user=ana"
        ),
        "{text}"
    );
}

#[test]
fn registry_is_queried_only_after_permissions_are_granted() {
    let new = bundle("plain");
    let subject = create(Kind::Bundle, &new);
    let mut facts = fine();
    facts.content = ContentFact::NotAsked;
    facts
        .classes
        .extend([class("plain", &json!({"signatures": "Required"}))]);
    assert!(may_look(&subject, &facts));
    facts.may_use.insert("plain".into(), Answer::No);
    assert!(!may_look(&subject, &facts));
    assert_eq!(codes_of(&judge(&subject, &facts)), ["BUNDLE-REVIEW-012"]);
    facts.may_use.insert("plain".into(), Answer::Yes);
    facts.classes.extend([class(
        "plain",
        &json!({"sources": {"hosts": ["other.example.com"]}}),
    )]);
    assert!(!may_look(&subject, &facts));
}

#[test]
fn missing_lookup_results_in_cannot_tell() {
    let new = bundle("plain");
    let subject = create(Kind::Bundle, &new);
    let away = Finding::error(
        codes::review::RIGHTS_UNKNOWN,
        "the API server did not answer",
    );
    let mut facts = fine();
    facts
        .may_use
        .insert("plain".into(), Answer::Unavailable(away.clone()));
    assert!(matches!(judge(&subject, &facts), Verdict::CannotTell(_)));
    facts.may_use.clear();
    assert!(matches!(judge(&subject, &facts), Verdict::CannotTell(_)));
    facts.classes.clear();
    assert!(matches!(judge(&subject, &facts), Verdict::CannotTell(_)));
    // With a refusal beside it, trying again would not help.
    let long = "x".repeat(53);
    let subject = Subject {
        name: &long,
        ..subject
    };
    let verdict = judge(&subject, &facts);
    assert!(matches!(&verdict, Verdict::Refuse(_)));
    assert!(message(&verdict).contains("metadata.name: Too long: may not be longer than 52"));
}

#[test]
fn foreign_class_is_admitted_with_warning_and_no_stamp() {
    let new = bundle("other");
    let subject = create(Kind::Bundle, &new);
    let mut facts = fine();
    facts.classes.extend([class(
        "other",
        &json!({"provisioner": "example.com/x", "signatures": "Required"}),
    )]);
    let verdict = judge(&subject, &facts);
    assert_eq!(codes_of(&verdict), ["BUNDLE-REVIEW-010"]);
    assert!(matches!(
        verdict,
        Verdict::Admit {
            stamp: Stamping::None,
            ..
        }
    ));

    facts.classes.insert("other".into(), ClassFact::Unknown);
    facts.may_use.insert("other".into(), Answer::Yes);
    let verdict = judge(&subject, &facts);
    assert_eq!(codes_of(&verdict)[0], "BUNDLE-REVIEW-009");
    assert!(matches!(
        verdict,
        Verdict::Admit {
            stamp: Stamping::Requester,
            ..
        }
    ));
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
    facts.may_impersonate = Some(Answer::No);
    let text = message(&judge(&subject, &facts));
    assert!(text.contains("may not install as ServiceAccount team-a/deployer: it needs verb impersonate on serviceaccounts/deployer in namespace team-a"), "{text}");
    facts.may_impersonate = Some(Answer::Yes);
    assert!(matches!(judge(&subject, &facts), Verdict::Admit { .. }));
    // And somebody has to install.
    let new = deployment(&json!({}));
    facts
        .classes
        .extend([class("plain", &json!({"serviceAccount": null}))]);
    assert!(
        message(&judge(&create(Kind::BundleDeployment, &new), &facts))
            .contains("names no ServiceAccount to install as")
    );
}

#[test]
fn rejects_unsupported_kubernetes_version_without_override() {
    let new = bundle("plain");
    let mut facts = fine();
    facts.content = found(Some(">=1.31 <1.36"));
    let verdict = judge(&create(Kind::Bundle, &new), &facts);
    let text = message(&verdict);
    assert!(
        text.contains(
            "bundle web 1.4.0 supports Kubernetes >=1.31 <1.36, and this server is v1.36.3-eks-abc"
        ),
        "{text}"
    );

    let accepted = deployment(&json!({"kubernetes": {"unsupported": "Accept"}}));
    let verdict = judge(&create(Kind::BundleDeployment, &accepted), &facts);
    assert!(matches!(verdict, Verdict::Admit { .. }));
    assert!(codes_of(&verdict).contains(&"BUNDLE-REVIEW-018"));

    facts.server = None;
    let verdict = judge(&create(Kind::Bundle, &new), &facts);
    assert!(
        matches!(verdict, Verdict::Admit { .. })
            && codes_of(&verdict).contains(&"BUNDLE-REVIEW-019")
    );
}

#[test]
fn rejects_content_whose_format_the_class_does_not_support() {
    let facts = |format: &str| {
        let mut facts = fine();
        let annotations = BTreeMap::from([(package::keys::FORMAT.to_owned(), format.to_owned())]);
        if let ContentFact::Found { package, .. } = &mut facts.content {
            *package = package::Facts::from_annotations(&annotations).map(Box::new);
        }
        facts
    };
    for (kind, new, field) in [
        (Kind::Bundle, bundle("plain"), "spec.provisionerClassName"),
        (
            Kind::BundleDeployment,
            deployment(&json!({})),
            "spec.template.spec.provisionerClassName",
        ),
    ] {
        let verdict = judge(&create(kind, &new), &facts("registry+v1"));
        assert!(matches!(verdict, Verdict::Refuse(_)), "{verdict:?}");
        let text = message(&verdict);
        assert!(
            text.contains(field) && text.contains("reads plain+v0"),
            "{text}"
        );
        let verdict = judge(&create(kind, &new), &facts("plain+v0"));
        assert!(matches!(verdict, Verdict::Admit { .. }), "{verdict:?}");
    }
}

#[test]
fn rejects_unreachable_content_only_if_a_signature_is_required() {
    let new = bundle("plain");
    let subject = create(Kind::Bundle, &new);
    let mut facts = fine();
    facts.content = ContentFact::Unavailable(Finding::error(
        codes::registry::UNREACHABLE,
        "registry.example.com does not answer",
    ));
    let verdict = judge(&subject, &facts);
    assert!(matches!(verdict, Verdict::Admit { .. }), "{verdict:?}");
    assert_eq!(codes_of(&verdict), ["BUNDLE-REVIEW-017"]);

    facts
        .classes
        .extend([class("plain", &json!({"signatures": "Required"}))]);
    let verdict = judge(&subject, &facts);
    assert!(matches!(verdict, Verdict::CannotTell(_)), "{verdict:?}");
    assert!(message(&verdict).contains("the class requires a signature"));

    facts.content = ContentFact::Unavailable(Finding::error(
        codes::registry::NOT_FOUND,
        "there is no tag 1",
    ));
    assert!(matches!(judge(&subject, &facts), Verdict::Refuse(_)));
}

/// Key material that returns this key for every text.
struct OneKey(KeyId);

impl crate::policy::Material for OneKey {
    fn key(&mut self, _: &str) -> Result<KeyId, Finding> {
        Ok(self.0.clone())
    }

    fn root(&mut self, _: Option<&str>) -> Result<crate::policy::RootId, Finding> {
        Err(Finding::error(codes::trust::ROOT_UNREADABLE, "none"))
    }
}

#[test]
fn signatures_are_decided_by_policy_and_class() {
    let policy = Policy::read(
        "releases",
        &json!({"images": [{"glob": "registry.example.com/**"}], "authorities": [{"name": "ci", "key": {"data": "PEM"}}]}),
    );
    let key = KeyId::new("a2V5");
    let new = deployment(&json!({}));
    let subject = create(Kind::BundleDeployment, &new);
    let mut facts = fine();
    facts.policies = vec![policy.ready(&mut OneKey(key.clone()))];
    assert_eq!(codes_of(&judge(&subject, &facts)), ["BUNDLE-TRUST-001"]);

    let with = |signatures| {
        let ContentFact::Found {
            pinned, package, ..
        } = found(None)
        else {
            unreachable!()
        };
        ContentFact::Found {
            pinned,
            package,
            signatures,
        }
    };
    let accepted = crate::policy::Accepted {
        signer: crate::policy::Signer::Key(key),
        meaning: crate::policy::Meaning::Signed,
        annotations: BTreeMap::new(),
        signed_at: None,
        form: "test",
        checked: Vec::new(),
    };
    facts.content = with(Ok(vec![SignatureFound(Ok(accepted))]));
    let verdict = judge(&subject, &facts);
    assert!(
        matches!(&verdict, Verdict::Admit { warnings, .. } if warnings.0.is_empty()),
        "{verdict:?}"
    );

    facts.content = with(Err(Unavailable(Finding::error(
        codes::registry::DENIED,
        "no",
    ))));
    assert!(matches!(judge(&subject, &facts), Verdict::CannotTell(_)));
}

#[test]
fn content_is_looked_up_again_only_if_it_may_differ() {
    let old = deployment(&json!({}));
    let paused = deployment(&json!({"paused": true}));
    let subject = update(Kind::BundleDeployment, &old, &paused, Standing::Stamped);
    let asked = needs(&subject);
    assert!(asked.image.is_none() && asked.classes.contains("plain"));
    let mut facts = fine();
    facts.content = ContentFact::NotAsked;
    assert!(matches!(
        judge(&subject, &facts),
        Verdict::Admit {
            stamp: Stamping::Carry,
            ..
        }
    ));
    let subject = Subject {
        standing: Standing::Unstamped,
        ..subject
    };
    assert!(needs(&subject).image.is_some());
}

#[test]
fn rejects_mutable_config_maps() {
    let new = json!({"spec": {"provisionerClassName": "plain", "source": {"type": "configMaps", "configMaps": [{"configMap": {"name": "a"}}, {"configMap": {"name": "b"}}]}}});
    let subject = create(Kind::Bundle, &new);
    assert_eq!(needs(&subject).config_maps.len(), 2);
    let mut facts = fine();
    facts.config_maps.insert("a".into(), ConfigMapFact::Missing);
    facts.config_maps.insert("b".into(), ConfigMapFact::Mutable);
    for name in ["a", "b"] {
        facts.may_read.insert(name.into(), Answer::Yes);
    }
    let refusal = text::refusal(&judge(&subject, &facts)).unwrap();
    assert_eq!(
        refusal.message,
        "bundle.spec.source.configmaps[1].configmap.name is invalid: configmap \"b\" is not immutable"
    );
    assert_eq!(refusal.reason, refusal.message);
}

#[test]
fn rejects_config_map_without_permission_to_read_it() {
    let new = json!({"spec": {"provisionerClassName": "plain", "source": {"type": "configMaps", "configMaps": [{"configMap": {"name": "a"}}]}}});
    let subject = create(Kind::Bundle, &new);
    let judged = |answer: Option<Answer>, fact: Option<ConfigMapFact>| {
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
    .map(|fact| judged(Some(Answer::No), Some(fact)));
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
    // What nobody asked is not known.
    for (answer, fact) in [
        (None, Some(ConfigMapFact::Immutable)),
        (Some(Answer::Yes), None),
    ] {
        let verdict = judged(answer, fact);
        assert!(matches!(verdict, Verdict::CannotTell(_)), "{verdict:?}");
    }
    let verdict = judged(Some(Answer::Yes), Some(ConfigMapFact::Immutable));
    assert!(matches!(verdict, Verdict::Admit { .. }), "{verdict:?}");
}

#[test]
fn approval_needs_permission_and_is_valid_for_one_object() {
    let new = json!({"spec": {"bundleDeployment": {"name": "web", "uid": "u1"}, "digest": DIGEST}});
    let subject = create(Kind::BundleApproval, &new);
    assert_eq!(needs(&subject).deployment.as_deref(), Some("web"));
    let ask = |deployment: DeploymentFact, may: Answer| {
        let facts = Facts {
            deployment: Some(deployment),
            may_approve: Some(may),
            ..fine()
        };
        judge(&subject, &facts)
    };
    let there = |uid: &str| DeploymentFact::Found {
        uid: uid.into(),
        class: "plain".into(),
        terms: Digest::of(b"terms"),
        generation: 3,
        has_default_terms: true,
    };
    let admitted = ask(there("u1"), Answer::Yes);
    assert!(
        matches!(&admitted, Verdict::Admit { stamp: Stamping::Approve(terms), .. } if *terms == Digest::of(b"terms"))
    );
    assert!(
        message(&ask(there("u1"), Answer::No))
            .contains("it needs verb approve on provisionerclasses/plain")
    );
    assert!(message(&ask(there("u2"), Answer::Yes)).contains("has uid u2 and not u1"));
    assert!(
        message(&ask(DeploymentFact::Missing, Answer::Yes))
            .contains("there is no BundleDeployment web")
    );
    let mut changed = new.clone();
    changed["spec"]["reason"] = "another".into();
    let verdict = judge(
        &update(Kind::BundleApproval, &new, &changed, Standing::Stamped),
        &Facts::default(),
    );
    assert_eq!(message(&verdict), "bundleapproval.spec is immutable");
}

#[test]
fn approval_names_the_generation_of_a_deployment_with_settings() {
    let ask = |read: Option<i64>, has_default_terms: bool| {
        let mut new =
            json!({"spec": {"bundleDeployment": {"name": "web", "uid": "u1"}, "digest": DIGEST}});
        if let Some(read) = read {
            new["spec"]["bundleDeployment"]["generation"] = read.into();
        }
        let facts = Facts {
            deployment: Some(DeploymentFact::Found {
                uid: "u1".into(),
                class: "plain".into(),
                terms: Digest::of(b"terms"),
                generation: 3,
                has_default_terms,
            }),
            may_approve: Some(Answer::Yes),
            ..fine()
        };
        judge(&create(Kind::BundleApproval, &new), &facts)
    };
    for (read, has_default_terms) in [(None, true), (Some(3), true), (Some(3), false)] {
        let verdict = ask(read, has_default_terms);
        assert!(matches!(verdict, Verdict::Admit { .. }), "{verdict:?}");
    }
    for (read, has_default_terms, expected) in [
        (None, false, "does not name the generation"),
        (Some(2), false, "has generation 3 and not 2"),
        (Some(2), true, "has generation 3 and not 2"),
        (Some(0), true, "must be a whole number"),
    ] {
        let message = message(&ask(read, has_default_terms));
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn verdict_is_deterministic_and_lists_errors_first() {
    let new = deployment(&json!({"paused": "maybe"}));
    let subject = create(Kind::BundleDeployment, &new);
    let facts = Facts::default();
    let verdict = judge(&subject, &facts);
    assert_eq!(verdict, judge(&subject, &facts));
    assert!(message(&verdict).contains("spec.paused: must be true or false"));
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
