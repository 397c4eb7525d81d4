//! Approvals of content.

use super::*;

#[test]
fn approval_needs_permission_and_is_valid_for_one_object() {
    let new = json!({"spec": {"bundleDeployment": {"name": "web", "uid": "u1"}, "digest": DIGEST}});
    let subject = create(Kind::BundleApproval, &new);
    assert_eq!(needs(&subject).deployment.as_deref(), Some("web"));
    let ask = |deployment: DeploymentFact, may: AccessReviewResult| {
        let facts = ReviewFacts {
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
    let admitted = ask(there("u1"), AccessReviewResult::Allowed);
    assert!(
        matches!(&admitted, Verdict::Admit { stamp: StampChange::Approve(terms), .. } if *terms == Digest::of(b"terms"))
    );
    assert!(
        message(&ask(there("u1"), AccessReviewResult::Denied))
            .contains("verb approve on provisionerclasses/plain is required")
    );
    assert!(message(&ask(there("u2"), AccessReviewResult::Allowed)).contains("has uid u2, not u1"));
    assert!(
        message(&ask(DeploymentFact::Missing, AccessReviewResult::Allowed))
            .contains("BundleDeployment web does not exist")
    );
    let mut changed = new.clone();
    changed["spec"]["reason"] = "another".into();
    let verdict = judge(
        &update(Kind::BundleApproval, &new, &changed, StampState::Stamped),
        &ReviewFacts::default(),
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
        let facts = ReviewFacts {
            deployment: Some(DeploymentFact::Found {
                uid: "u1".into(),
                class: "plain".into(),
                terms: Digest::of(b"terms"),
                generation: 3,
                has_default_terms,
            }),
            may_approve: Some(AccessReviewResult::Allowed),
            ..fine()
        };
        judge(&create(Kind::BundleApproval, &new), &facts)
    };
    for (read, has_default_terms) in [(None, true), (Some(3), true), (Some(3), false)] {
        let verdict = ask(read, has_default_terms);
        assert!(matches!(verdict, Verdict::Admit { .. }), "{verdict:?}");
    }
    for (read, has_default_terms, expected) in [
        (None, false, "the approval must name the generation"),
        (Some(2), false, "has generation 3, not 2"),
        (Some(2), true, "has generation 3, not 2"),
        (Some(0), true, "must be a whole number"),
    ] {
        let message = message(&ask(read, has_default_terms));
        assert!(message.contains(expected), "{message}");
    }
}
