//! Rules about the content: versions, formats, signatures and ConfigMaps.

use super::*;

#[test]
fn rejects_unsupported_kubernetes_version_without_override() {
    let new = bundle("plain");
    let mut facts = fine();
    facts.content = found(Some(">=1.31 <1.36"));
    let verdict = judge(&create(Kind::Bundle, &new), &facts);
    let text = message(&verdict);
    assert!(
        text.contains(
            "bundle web 1.4.0 supports Kubernetes >=1.31 <1.36, but the version of the API server is v1.36.3-eks-abc"
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
            *package = package::PackageDescription::from_annotations(&annotations).map(Box::new);
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
            text.contains(field) && text.contains("supports plain+v0"),
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
    assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
    assert!(message(&verdict).contains("the class requires a signature"));

    facts.content = ContentFact::Unavailable(Finding::error(
        codes::registry::NOT_FOUND,
        "there is no tag 1",
    ));
    assert!(matches!(judge(&subject, &facts), Verdict::Refuse(_)));
}

/// Parser that returns this key for each text.
struct OneKey(KeyId);

impl crate::policy::KeyParser for OneKey {
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
    facts.policies = vec![policy.with_keys(&mut OneKey(key.clone()))];
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
    let accepted = crate::policy::ValidSignature {
        signer: crate::policy::Signer::Key(key),
        meaning: crate::policy::Meaning::Signed,
        annotations: BTreeMap::new(),
        signed_at: None,
        form: "test",
        checked: Vec::new(),
    };
    facts.content = with(Ok(vec![SignatureResult(Ok(accepted))]));
    let verdict = judge(&subject, &facts);
    assert!(
        matches!(&verdict, Verdict::Admit { warnings, .. } if warnings.is_empty()),
        "{verdict:?}"
    );

    facts.content = with(Err(Unavailable(Finding::error(
        codes::registry::DENIED,
        "no",
    ))));
    assert!(matches!(judge(&subject, &facts), Verdict::Unknown(_)));
}

#[test]
fn content_is_looked_up_again_only_if_it_may_differ() {
    let old = deployment(&json!({}));
    let paused = deployment(&json!({"paused": true}));
    let subject = update(Kind::BundleDeployment, &old, &paused, StampState::Stamped);
    let asked = needs(&subject);
    assert!(asked.image.is_none() && asked.classes.contains("plain"));
    let mut facts = fine();
    facts.content = ContentFact::NotNeeded;
    assert!(matches!(
        judge(&subject, &facts),
        Verdict::Admit {
            stamp: StampChange::UpdateChangedParts,
            ..
        }
    ));
    let subject = Subject {
        stamp_state: StampState::Unstamped,
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
        facts
            .may_read
            .insert(name.into(), AccessReviewResult::Allowed);
    }
    let refusal = text::refusal(&judge(&subject, &facts)).unwrap();
    assert_eq!(
        refusal.message,
        "bundle.spec.source.configmaps[1].configmap.name is invalid: configmap \"b\" is not immutable"
    );
    assert_eq!(refusal.reason, refusal.message);
}
