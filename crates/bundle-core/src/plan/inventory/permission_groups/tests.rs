use super::*;
use crate::object::ObjectId;
use crate::plan::inventory::{InstallationRecord, InstalledContent};
use crate::plan::rollout::RolloutAttempt;
use crate::rights::{Need, Target, needs};

const INTERVAL: Duration = Duration::from_secs(600);
const GENERATION: i64 = 3;

fn person(user: &str) -> Requester {
    Requester {
        user: user.to_owned(),
        ..Requester::default()
    }
}

fn terms() -> ReviewTerms {
    ReviewTerms {
        requesters: vec![person("ana")],
        class: "plain".to_owned(),
        bundle_class: "plain".to_owned(),
        service_account: None,
    }
}

/// Returns an inventory that records these objects and complete content.
fn inventory(keys: &[&str]) -> Inventory {
    let mut inventory = Inventory::new("web");
    for key in keys {
        inventory.record(*key, "1");
    }
    let mut record = InstallationRecord::default();
    record.installed = Some(InstalledContent::default());
    inventory.record = Some(record);
    inventory
}

fn with_rollout(generation: i64, state: RolloutState) -> Inventory {
    let mut inventory = inventory(&["ConfigMap/team-a/web"]);
    inventory.record.as_mut().unwrap().rollout.attempt = Some(RolloutAttempt {
        generation,
        state,
        ..RolloutAttempt::default()
    });
    inventory
}

fn candidate(inventory: &Inventory) -> GroupCandidate<'_> {
    GroupCandidate {
        authorization: Authorization::Requester,
        approval: Approval::None,
        is_rollback: false,
        has_departed_requesters: false,
        has_certificates: false,
        inventory,
        generation: GENERATION,
        next_reconcile: None,
        interval: INTERVAL,
    }
}

#[test]
fn only_settled_content_without_further_rules_is_eligible() {
    let inventory = inventory(&["ConfigMap/team-a/web"]);
    let settled = candidate(&inventory);
    let table = [
        (settled, true),
        (
            GroupCandidate {
                next_reconcile: Some(INTERVAL),
                ..settled
            },
            true,
        ),
        (
            GroupCandidate {
                next_reconcile: Some(Duration::from_secs(5)),
                ..settled
            },
            false,
        ),
        (
            GroupCandidate {
                authorization: Authorization::Class,
                ..settled
            },
            false,
        ),
        (
            GroupCandidate {
                approval: Approval::ByAnyone,
                ..settled
            },
            false,
        ),
        (
            GroupCandidate {
                approval: Approval::ByAnotherPerson,
                ..settled
            },
            false,
        ),
        (
            GroupCandidate {
                is_rollback: true,
                ..settled
            },
            false,
        ),
        (
            GroupCandidate {
                has_departed_requesters: true,
                ..settled
            },
            false,
        ),
        (
            GroupCandidate {
                has_certificates: true,
                ..settled
            },
            false,
        ),
    ];
    for (candidate, expected) in table {
        assert_eq!(candidate.is_eligible(&terms()), expected, "{candidate:?}");
    }
}

#[test]
fn incomplete_or_failed_rollouts_are_not_eligible() {
    let cause = || "Deployment.apps/team-a/web: not ready".to_owned();
    for (generation, state, expected) in [
        (GENERATION, RolloutState::Healthy, true),
        (GENERATION, RolloutState::Applying, false),
        (GENERATION, RolloutState::Waiting, false),
        (
            GENERATION,
            RolloutState::Failed {
                cause: cause(),
                obstacle: None,
            },
            false,
        ),
        (
            GENERATION,
            RolloutState::RollingBack { cause: cause() },
            false,
        ),
        (
            GENERATION,
            RolloutState::RolledBack { cause: cause() },
            false,
        ),
        // The rollout of an earlier generation of the spec.
        (GENERATION - 1, RolloutState::Waiting, true),
    ] {
        let inventory = with_rollout(generation, state);
        let found = candidate(&inventory).is_eligible(&terms());
        assert_eq!(found, expected, "{inventory:?}");
    }
    let mut unfinished = inventory(&["ConfigMap/team-a/web"]);
    unfinished.record.as_mut().unwrap().is_unfinished = true;
    assert!(!candidate(&unfinished).is_eligible(&terms()));
    let mut partial = inventory(&["ConfigMap/team-a/web"]);
    partial.record.as_mut().unwrap().installed = None;
    assert!(!candidate(&partial).is_eligible(&terms()));
    partial.record = None;
    assert!(!candidate(&partial).is_eligible(&terms()));
}

#[test]
fn objects_that_require_further_permissions_are_not_eligible() {
    let table: [(&[&str], bool); 7] = [
        (&["ConfigMap/team-a/web", "Namespace/team-a"], true),
        (&[], false),
        (&["ConfigMap/team-a/web/x"], false),
        (
            &[
                "ConfigMap/team-a/web",
                "Role.rbac.authorization.k8s.io/team-a/web",
            ],
            false,
        ),
        (&["ClusterRole.rbac.authorization.k8s.io/web"], false),
        (&["Bundle.core.rukpak.io/web"], false),
        (
            &["CertificateSigningRequest.certificates.k8s.io/web"],
            false,
        ),
    ];
    for (keys, expected) in table {
        let inventory = inventory(keys);
        let found = candidate(&inventory).is_eligible(&terms());
        assert_eq!(found, expected, "{keys:?}");
    }
    let keys: Vec<String> = (0..=MAX_SCOPES)
        .map(|number| format!("ConfigMap/team-{number}/web"))
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    assert!(reviewed_scopes(&inventory(&keys[1..])).is_some());
    assert!(reviewed_scopes(&inventory(&keys)).is_none());
}

#[test]
fn terms_need_at_most_the_memory_that_the_inventory_counts() {
    let mut large = terms();
    large.requesters[0].groups = vec!["g".repeat(2000)];
    let one = inventory(&["ConfigMap/team-a/a"]);
    assert!(!candidate(&one).is_eligible(&large));
    let three = inventory(&[
        "ConfigMap/team-a/a",
        "ConfigMap/team-a/b",
        "ConfigMap/team-a/c",
    ]);
    assert!(candidate(&three).is_eligible(&large));
}

#[test]
fn key_differs_for_each_term() {
    let account = |name: &str| ServiceAccount::parse("team-a", name).unwrap();
    let mut other_groups = terms();
    other_groups.requesters[0].groups = vec!["dev".to_owned()];
    let all = [
        terms(),
        other_groups,
        ReviewTerms {
            requesters: vec![person("ana"), person("ben")],
            ..terms()
        },
        ReviewTerms {
            class: "helm".to_owned(),
            ..terms()
        },
        ReviewTerms {
            bundle_class: "helm".to_owned(),
            ..terms()
        },
        ReviewTerms {
            service_account: Some(account("a")),
            ..terms()
        },
        ReviewTerms {
            service_account: Some(account("b")),
            ..terms()
        },
    ];
    let keys: BTreeSet<GroupKey> = all.iter().map(ReviewTerms::key).collect();
    assert_eq!(keys.len(), all.len());
    assert_eq!(terms().key(), terms().key());
}

#[test]
fn each_requester_needs_the_classes_and_the_service_account() {
    let of = |terms: &ReviewTerms| -> Vec<(String, String)> {
        let questions = terms.questions("bundle-system").into_iter();
        questions
            .map(|(requester, question)| {
                let AccessReview::Resource {
                    verb,
                    namespace,
                    name,
                    ..
                } = question
                else {
                    panic!("{question:?}");
                };
                let name = name.unwrap_or_default();
                (requester.user.clone(), format!("{verb} {namespace}/{name}"))
            })
            .collect()
    };
    let row = |user: &str, question: &str| (user.to_owned(), question.to_owned());
    assert_eq!(of(&terms()), [row("ana", "use bundle-system/plain")]);
    let all = ReviewTerms {
        requesters: vec![person("ana"), person("ben")],
        bundle_class: "helm".to_owned(),
        service_account: ServiceAccount::parse("team-a", "deployer").ok(),
        ..terms()
    };
    assert_eq!(
        of(&all),
        [
            row("ana", "use bundle-system/plain"),
            row("ben", "use bundle-system/plain"),
            row("ana", "use bundle-system/helm"),
            row("ben", "use bundle-system/helm"),
            row("ana", "impersonate team-a/deployer"),
            row("ben", "impersonate team-a/deployer"),
        ]
    );
}

#[test]
fn questions_of_a_scope_are_the_general_reviews_of_its_objects() {
    for namespace in [Some("team-a"), None] {
        let target = Target {
            id: ObjectId {
                group: "apps".to_owned(),
                version: "v1".to_owned(),
                kind: "Deployment".to_owned(),
                namespace: namespace.map(str::to_owned),
                name: "web".to_owned(),
            },
            resource: "deployments".to_owned(),
        };
        let expected: Vec<AccessReview> = needs(std::slice::from_ref(&target))
            .iter()
            .map(Need::general)
            .collect();
        assert_eq!(
            scope_questions("apps", "deployments", namespace)[..],
            expected
        );
    }
}

#[test]
fn group_is_due_at_the_latest_when_a_checked_member_is_due() {
    for (group, member, is_first, expected) in [
        (None, 5, false, 5),
        (None, 5, true, 5),
        (Some(7), 5, false, 5),
        (Some(7), 5, true, 7),
        (Some(3), 5, false, 3),
        (Some(3), 5, true, 3),
    ] {
        let found = due_with_member(group, member, is_first);
        assert_eq!(found, expected, "{group:?} {member} {is_first}");
    }
}

#[test]
fn unknown_results_are_retried_later_and_long_checks_continue() {
    for (end, expected) in [
        (RunEnd::Complete, NextRun::AfterInterval),
        (RunEnd::Failed, NextRun::AfterFailure),
        (RunEnd::TimedOut { has_terms: false }, NextRun::AfterFailure),
        (RunEnd::TimedOut { has_terms: true }, NextRun::Now),
    ] {
        assert_eq!(end.next_run(), expected, "{end:?}");
    }
}
