//! Stamps: the writes to which the webhook adds a stamp, and the writes that are checked.

use super::*;

#[test]
fn admits_valid_bundle_with_stamp_of_its_requester() {
    let new = bundle("plain");
    let verdict = judge(&create(Kind::Bundle, &new), &fine());
    let Verdict::Admit { warnings, stamp } = verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!(stamp, StampChange::Requester);
    assert_eq!(warnings.first().unwrap().code, codes::trust::UNCHECKED);
}

#[test]
fn rejects_changes_of_a_bundle_spec() {
    let (old, mut new) = (bundle("plain"), bundle("plain"));
    new["spec"]["source"]["image"]["ref"] = "registry.example.com/web:2".into();
    for stamp_state in [StampState::Stamped, StampState::Unstamped] {
        let subject = update(Kind::Bundle, &old, &new, stamp_state);
        assert_eq!(needs(&subject), super::needs::RequiredLookups::default());
        let refusal = text::refusal(&judge(&subject, &ReviewFacts::default())).unwrap();
        assert_eq!(refusal.reason, "bundle.spec is immutable");
        assert_eq!(refusal.message, "bundle.spec is immutable");
    }
}

#[test]
fn write_with_unchanged_spec_needs_no_lookup() {
    let (old, mut new) = (bundle("plain"), bundle("plain"));
    new["metadata"]["labels"] = json!({"a": "b"});
    for stamp_state in [StampState::Stamped, StampState::Unstamped] {
        let subject = update(Kind::Bundle, &old, &new, stamp_state);
        assert_eq!(needs(&subject), super::needs::RequiredLookups::default());
        let verdict = judge(&subject, &ReviewFacts::default());
        assert!(
            matches!(&verdict, Verdict::Admit { stamp: StampChange::Unchanged, warnings } if warnings.is_empty()),
            "{verdict:?}"
        );
    }
    // A write of the same spec as another text creates another generation, which needs its own
    // stamp.
    new["spec"]["source"]["git"] = Value::Null;
    let subject = update(Kind::Bundle, &old, &new, StampState::Stamped);
    assert_eq!(needs(&subject), super::needs::RequiredLookups::default());
    assert_eq!(
        stamp_of(&subject, &ReviewFacts::default()),
        StampChange::UpdateChangedParts
    );
    let subject = update(Kind::Bundle, &old, &new, StampState::Unstamped);
    assert_eq!(
        stamp_of(&subject, &ReviewFacts::default()),
        StampChange::None
    );
}

#[test]
fn object_without_stamp_needs_the_admit_annotation() {
    let (old, new) = (bundle("plain"), bundle("plain"));
    let subject = update(Kind::Bundle, &old, &new, StampState::Unstamped);
    assert_eq!(stamp_of(&subject, &fine()), StampChange::Unchanged);
    let admits = Subject {
        admits: true,
        ..subject
    };
    assert!(needs(&admits).classes.contains("plain") && needs(&admits).image.is_some());
    assert_eq!(stamp_of(&admits, &fine()), StampChange::Requester);
    let mut facts = fine();
    facts
        .may_use
        .insert("plain".into(), AccessReviewResult::Denied);
    assert_eq!(stamp_of(&admits, &facts), StampChange::Unchanged);
    assert_eq!(
        codes_of(&judge(&admits, &facts))[0],
        codes::review::USE_NOT_ALLOWED.id
    );
    // The pod is never a requester, and objects that are being deleted need no check.
    let own = Subject {
        own: true,
        ..admits
    };
    assert_eq!(needs(&own), super::needs::RequiredLookups::default());
    assert_eq!(
        stamp_of(&own, &ReviewFacts::default()),
        StampChange::Unchanged
    );
    let mut leaving = new.clone();
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z".into();
    let leaving = update(Kind::Bundle, &old, &leaving, StampState::Unstamped);
    assert_eq!(needs(&leaving), super::needs::RequiredLookups::default());
    assert!(matches!(
        judge(&leaving, &ReviewFacts::default()),
        Verdict::Admit { .. }
    ));
}

#[test]
fn admitting_a_deleted_object_transfers_it_without_content_lookup() {
    let account = json!({"serviceAccount": {"namespace": "team-a", "name": "deployer"}});
    let mut old = deployment(&account);
    old["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z".into();
    let new = old.clone();
    for stamp_state in [StampState::Stamped, StampState::Unstamped] {
        let admits = Subject {
            admits: true,
            ..update(Kind::BundleDeployment, &old, &new, stamp_state)
        };
        let asked = needs(&admits);
        assert!(asked.classes.contains("plain") && asked.impersonate.is_some());
        assert_eq!(asked.image, None);
        let mut facts = fine();
        facts.content = ContentFact::NotNeeded;
        facts.may_impersonate = Some(AccessReviewResult::Allowed);
        assert_eq!(stamp_of(&admits, &facts), StampChange::Requester);
        facts.may_impersonate = Some(AccessReviewResult::Denied);
        assert_eq!(stamp_of(&admits, &facts), StampChange::Unchanged);
    }
}

#[test]
fn change_of_an_unsealed_spec_is_checked_and_gets_no_stamp() {
    let old = deployment(&json!({}));
    let new = deployment(&json!({"config": {"a": 1}}));
    let subject = update(Kind::BundleDeployment, &old, &new, StampState::Unstamped);
    let verdict = judge(&subject, &fine());
    assert_eq!(stamp_of(&subject, &fine()), StampChange::None);
    assert!(
        codes_of(&verdict).contains(&codes::review::NOT_ADMITTED.id),
        "{verdict:?}"
    );
    let mut facts = fine();
    facts
        .may_use
        .insert("plain".into(), AccessReviewResult::Denied);
    assert!(matches!(judge(&subject, &facts), Verdict::Refuse(_)));
}

#[test]
fn generated_bundle_inherits_the_checks_of_its_template() {
    let new = bundle("plain");
    let subject = Subject {
        stamp_state: StampState::Inherited,
        own: true,
        ..create(Kind::Bundle, &new)
    };
    assert_eq!(needs(&subject), super::needs::RequiredLookups::default());
    assert!(matches!(
        judge(&subject, &ReviewFacts::default()),
        Verdict::Admit {
            stamp: StampChange::Inherit,
            ..
        }
    ));
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
    facts.may_use.insert(
        "plain".into(),
        AccessReviewResult::Unavailable(away.clone()),
    );
    assert!(matches!(judge(&subject, &facts), Verdict::Unknown(_)));
    facts.may_use.clear();
    assert!(matches!(judge(&subject, &facts), Verdict::Unknown(_)));
    facts.classes.clear();
    assert!(matches!(judge(&subject, &facts), Verdict::Unknown(_)));
    // The name is too long. Therefore the write is rejected, although lookups are missing: a retry
    // would not help.
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
            stamp: StampChange::None,
            ..
        }
    ));

    facts.classes.insert("other".into(), ClassFact::Unknown);
    facts
        .may_use
        .insert("other".into(), AccessReviewResult::Allowed);
    let verdict = judge(&subject, &facts);
    assert_eq!(codes_of(&verdict)[0], "BUNDLE-REVIEW-009");
    assert!(matches!(
        verdict,
        Verdict::Admit {
            stamp: StampChange::Requester,
            ..
        }
    ));
}

#[test]
fn verdict_is_deterministic_and_lists_errors_first() {
    let new = deployment(&json!({"paused": "maybe"}));
    let subject = create(Kind::BundleDeployment, &new);
    let facts = ReviewFacts::default();
    let verdict = judge(&subject, &facts);
    assert_eq!(verdict, judge(&subject, &facts));
    assert!(message(&verdict).contains("spec.paused: must be true or false"));
}
