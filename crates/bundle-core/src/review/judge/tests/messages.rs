//! Messages of the admission codes. `cargo xtask gen` copies `messages.txt` to the page about
//! diagnostics.

use super::*;
use crate::diagnostic::rendered;
use crate::review::{
    deletion::{Deletion, DeletionFacts, judge_deletion, too_early},
    owners::reject_owner_reference,
    size::{MeasuredObject, ObjectWeight, judge_size},
};

const RECORDED: &str = include_str!("messages.txt");

/// Returns the message of the first finding with `code` in the decision on the write.
fn message_of(code: &str, subject: &Subject<'_>, facts: &ReviewFacts<'_>) -> String {
    let verdict = judge(subject, facts);
    let findings = verdict.findings();
    let found = findings.iter().find(|finding| finding.code.id == code);
    let found = found.unwrap_or_else(|| panic!("{code} is not in {verdict:?}"));
    rendered(std::slice::from_ref(found))
}

fn deployment_message(code: &str, more: &Value, facts: &ReviewFacts<'_>) -> String {
    let new = deployment(more);
    message_of(code, &create(Kind::BundleDeployment, &new), facts)
}

fn source_message(code: &str, source: Value) -> String {
    let mut new = bundle("plain");
    new["spec"]["source"] = source;
    message_of(code, &create(Kind::Bundle, &new), &fine())
}

fn with_class(fact: ClassFact) -> ReviewFacts<'static> {
    ReviewFacts {
        classes: BTreeMap::from([("plain".to_owned(), fact)]),
        ..fine()
    }
}

fn approval(
    generation: Option<i64>,
    deployment: DeploymentFact,
    may: AccessReviewResult,
) -> (Value, ReviewFacts<'static>) {
    let mut new = json!({"metadata": {"name": "web"}, "spec": {
        "bundleDeployment": {"name": "web", "uid": "u1"}, "digest": DIGEST,
    }});
    if let Some(generation) = generation {
        new["spec"]["bundleDeployment"]["generation"] = json!(generation);
    }
    let facts = ReviewFacts {
        deployment: Some(deployment),
        may_approve: Some(may),
        ..fine()
    };
    (new, facts)
}

fn existing(generation: i64) -> DeploymentFact {
    DeploymentFact::Found {
        uid: "u1".to_owned(),
        class: "plain".to_owned(),
        terms: DIGEST.parse().unwrap(),
        generation,
        has_default_terms: false,
    }
}

#[test]
fn messages_of_admission_codes_are_recorded() {
    let mut text = String::new();
    let (old, new) = (bundle("plain"), bundle("other"));
    text += &message_of(
        "BUNDLE-REVIEW-001",
        &update(Kind::Bundle, &old, &new, StampState::Stamped),
        &fine(),
    );
    text += &source_message(
        "BUNDLE-REVIEW-002",
        json!({"type": "git", "image": {"ref": "registry.example.com/web:1"}}),
    );
    text += &source_message(
        "BUNDLE-REVIEW-003",
        json!({"type": "git", "git": {"repository": "https://git.example.com/web", "ref": {"tag": "v1", "branch": "main"}}}),
    );
    text += &source_message(
        "BUNDLE-REVIEW-004",
        json!({"type": "git", "git": {"repository": "https://git.example.com/web", "directory": "../manifests", "ref": {"tag": "v1"}}}),
    );
    text += &deployment_message("BUNDLE-REVIEW-006", &json!({"paused": "maybe"}), &fine());
    text += &deployment_message(
        "BUNDLE-REVIEW-007",
        &json!({"provisionerClassName": null}),
        &fine(),
    );
    let subject_new = deployment(&json!({}));
    let long = "a".repeat(46);
    let subject = Subject {
        name: &long,
        ..create(Kind::BundleDeployment, &subject_new)
    };
    text += &message_of("BUNDLE-REVIEW-008", &subject, &fine());
    text += &deployment_message(
        "BUNDLE-REVIEW-009",
        &json!({}),
        &with_class(ClassFact::Unknown),
    );
    let (_, other) = class("plain", &json!({"provisioner": "example.com/other"}));
    text += &deployment_message("BUNDLE-REVIEW-010", &json!({}), &with_class(other));
    let denied = ReviewFacts {
        may_use: BTreeMap::from([("plain".to_owned(), AccessReviewResult::Denied)]),
        ..fine()
    };
    text += &deployment_message("BUNDLE-REVIEW-012", &json!({}), &denied);
    let denied = ReviewFacts {
        may_impersonate: Some(AccessReviewResult::Denied),
        ..fine()
    };
    let account = json!({"serviceAccount": {"namespace": "team-a", "name": "deployer"}});
    text += &deployment_message("BUNDLE-REVIEW-013", &account, &denied);
    let (new, facts) = approval(Some(3), existing(3), AccessReviewResult::Denied);
    text += &message_of(
        "BUNDLE-REVIEW-014",
        &create(Kind::BundleApproval, &new),
        &facts,
    );
    let (_, limited) = class("plain", &json!({"sources": {"types": ["configMaps"]}}));
    text += &deployment_message("BUNDLE-REVIEW-016", &json!({}), &with_class(limited));
    let unread = ReviewFacts {
        server: None,
        content: found(Some(">=1.31 <1.38")),
        ..fine()
    };
    text += &deployment_message("BUNDLE-REVIEW-019", &json!({}), &unread);
    let newer = ReviewFacts {
        content: found(Some(">=1.31 <1.36")),
        ..fine()
    };
    text += &deployment_message("BUNDLE-FORMAT-018", &json!({}), &newer);
    text += &deployment_message(
        "BUNDLE-REVIEW-018",
        &json!({"kubernetes": {"unsupported": "Accept"}}),
        &newer,
    );
    text += &deployment_message("BUNDLE-TRUST-005", &json!({}), &fine());
    let (new, facts) = approval(
        Some(3),
        DeploymentFact::Missing,
        AccessReviewResult::Allowed,
    );
    text += &message_of(
        "BUNDLE-REVIEW-024",
        &create(Kind::BundleApproval, &new),
        &facts,
    );
    let (new, facts) = approval(Some(2), existing(3), AccessReviewResult::Allowed);
    text += &message_of(
        "BUNDLE-REVIEW-026",
        &create(Kind::BundleApproval, &new),
        &facts,
    );
    text += &deployment_message(
        "BUNDLE-REVIEW-060",
        &json!({"targetNamespace": "bundle-system"}),
        &fine(),
    );
    text += &deployment_message(
        "BUNDLE-REVIEW-062",
        &json!({"createNamespace": true}),
        &fine(),
    );
    text += &lookups();
    text += &content();
    text += &deletions();
    text += &metadata();
    assert_eq!(text, RECORDED, "copy the left side to messages.txt");
}

/// Returns the messages about an invalid class, and about classes and permissions that could not be
/// looked up.
fn lookups() -> String {
    let invalid = Class::parse(
        "plain",
        &json!({"provisioner": "core.rukpak.io/plain", "authorization": "Everyone"}),
    );
    let invalid = ClassFact::Unreadable(invalid.unwrap_err());
    let mut text = deployment_message("BUNDLE-REVIEW-011", &json!({}), &with_class(invalid));
    let unknown = ReviewFacts {
        may_use: BTreeMap::new(),
        ..fine()
    };
    text += &deployment_message("BUNDLE-REVIEW-015", &json!({}), &unknown);
    let unread = ReviewFacts {
        classes: BTreeMap::new(),
        ..fine()
    };
    text += &deployment_message("BUNDLE-REVIEW-020", &json!({}), &unread);
    let (old, new) = (deployment(&json!({})), deployment(&json!({"paused": true})));
    let unstamped = update(Kind::BundleDeployment, &old, &new, StampState::Unstamped);
    text += &message_of("BUNDLE-REVIEW-025", &unstamped, &fine());
    let (old, _) = approval(Some(3), existing(3), AccessReviewResult::Allowed);
    let (new, facts) = approval(Some(4), existing(4), AccessReviewResult::Allowed);
    let changed = update(Kind::BundleApproval, &old, &new, StampState::Stamped);
    text + &message_of("BUNDLE-REVIEW-023", &changed, &facts)
}

/// Returns the messages about sources of content.
fn content() -> String {
    let of_config_maps = |code: &str, fact: Option<ConfigMapFact>, may: AccessReviewResult| {
        let new = json!({"metadata": {"name": "web"}, "spec": {
            "provisionerClassName": "plain",
            "source": {"type": "configMaps", "configMaps": [{"configMap": {"name": "page"}}]},
        }});
        let facts = ReviewFacts {
            config_maps: fact
                .map(|fact| ("page".to_owned(), fact))
                .into_iter()
                .collect(),
            may_read: BTreeMap::from([("page".to_owned(), may)]),
            ..fine()
        };
        message_of(code, &create(Kind::Bundle, &new), &facts)
    };
    let mut text = of_config_maps(
        "BUNDLE-REVIEW-005",
        Some(ConfigMapFact::Mutable),
        AccessReviewResult::Allowed,
    );
    text += &of_config_maps("BUNDLE-REVIEW-070", None, AccessReviewResult::Denied);
    text += &of_secret();
    let why = crate::diagnostic::Finding::error(
        crate::diagnostic::codes::registry::UNREACHABLE,
        "registry.example.com is unreachable",
    );
    let unavailable = ReviewFacts {
        content: ContentFact::Unavailable(why),
        ..fine()
    };
    text += &deployment_message("BUNDLE-REVIEW-017", &json!({}), &unavailable);
    let (_, operators) = class("plain", &json!({"provisioner": "core.rukpak.io/registry"}));
    text += &message_of(
        "BUNDLE-FORMAT-025",
        &create(Kind::Bundle, &bundle("plain")),
        &with_class(operators),
    );
    let required = json!({"signatures": "Required"});
    let (_, strict) = class("plain", &required);
    text += &deployment_message("BUNDLE-TRUST-004", &json!({}), &with_class(strict.clone()));
    let mut new = bundle("plain");
    new["spec"]["source"] =
        json!({"type": "configMaps", "configMaps": [{"configMap": {"name": "page"}}]});
    let facts = ReviewFacts {
        may_read: BTreeMap::from([("page".to_owned(), AccessReviewResult::Allowed)]),
        ..with_class(strict)
    };
    text + &message_of("BUNDLE-TRUST-006", &create(Kind::Bundle, &new), &facts)
}

/// Returns the message about a Secret that the requester has no permission to read.
fn of_secret() -> String {
    let new = json!({"metadata": {"name": "web"}, "spec": {
        "provisionerClassName": "plain",
        "source": {"type": "http", "http": {
            "url": "https://files.example.com/web.tgz",
            "auth": {"secret": {"name": "login"}},
        }},
    }});
    let facts = ReviewFacts {
        may_read_secret: Some(AccessReviewResult::Denied),
        ..fine()
    };
    message_of("BUNDLE-REVIEW-071", &create(Kind::Bundle, &new), &facts)
}

/// Returns the messages about deletions.
fn deletions() -> String {
    let requester = Requester {
        user: "ana".into(),
        ..Requester::default()
    };
    let object = deployment(&json!({}));
    let deletion = Deletion {
        kind: Kind::BundleDeployment,
        name: "web",
        object: &object,
        requester: &requester,
        own: false,
        is_finalized: true,
    };
    let facts = DeletionFacts {
        may_manage: Some(AccessReviewResult::Denied),
        ..DeletionFacts::default()
    };
    let findings = judge_deletion(&deletion, &facts);
    let denied = findings
        .iter()
        .find(|found| found.code.id == "BUNDLE-REVIEW-040");
    let early = too_early(&deletion, 1_800_000_000_000, Some(1_800_000_002_000));
    rendered(&[denied.unwrap().clone(), early.unwrap()])
}

/// Returns the messages about owner references and size.
fn metadata() -> String {
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "config", "uid": "u2"});
    let object = json!({"metadata": {"name": "web", "ownerReferences": [reference]}});
    let crowded = json!({"metadata": {"name": "web", "finalizers": vec!["example.com/hold"; 33]}});
    let new = MeasuredObject {
        object: &crowded,
        weight: ObjectWeight::default(),
    };
    let mut findings: Vec<Finding> = judge_size(None, new).into_iter().collect();
    findings.extend(reject_owner_reference("web", &object));
    rendered(&findings)
}
