//! Truth tables: facts of a reconcile, and the conditions that follow.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::diagnostic::codes;
use crate::plan::summary::Coverage;

const GENERATION: i64 = 7;
const NAME: &str = "web-abc";

fn before(kind: &str, status: ConditionStatus, found: &str, generation: i64) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: status.as_str().to_owned(),
        reason: found.to_owned(),
        message: "before".to_owned(),
        observed_generation: Some(generation),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    }
}

/// Returns facts from letters:
///
/// - Bundle: `u` (unpacked), `f` (failing), `w` (unpacking), `p` (pending), `m` (missing)
/// - installed Bundle: `s` (same) or `o` (other)
/// - `i`: the content of the template is applied; `c`: all objects are observed
/// - permissions: `d` (delegated), `a` (allowed), `r` (rejected), `n` (unknown)
/// - approval: `A` (approved), `R` (not required), `N` (not approved), `U` (content unknown)
/// - `P`: paused; `C`: corrects drift
/// - failure: `I` (installation), `K` (result unknown), `W` (withdrawn permissions), `M` (missing
///   permissions)
fn facts(letters: &str) -> DeploymentFacts {
    let is = |letter| letters.contains(letter);
    let name = || NAME.to_owned();
    let failure = |code, found, is_unknown, is_retried| Failure {
        code,
        reason: found,
        message: "failed".to_owned(),
        is_unknown,
        is_retried,
    };
    let failures = [
        (
            'I',
            failure(codes::install::APPLY_FAILED, "UpgradeFailed", false, true),
        ),
        (
            'K',
            failure(codes::cluster::UNREACHABLE, "UpgradeFailed", true, true),
        ),
        (
            'W',
            failure(
                codes::install::RIGHTS_WITHDRAWN,
                reason::RIGHTS_WITHDRAWN,
                false,
                true,
            ),
        ),
        (
            'M',
            failure(
                codes::install::NOT_AUTHORIZED,
                "InstallFailed",
                false,
                false,
            ),
        ),
    ];
    let failure = failures.into_iter().find(|(letter, _)| is(*letter));
    let failure = failure.map(|(_, failure)| failure);
    let bundles = [
        ('u', BundleFact::Unpacked(name())),
        (
            'f',
            BundleFact::Failing {
                name: name(),
                message: "no such image".to_owned(),
            },
        ),
        ('w', BundleFact::Unpacking(name())),
        ('p', BundleFact::Pending(name())),
        (
            'm',
            BundleFact::NotMade("BundleLoadFailed", "taken".to_owned()),
        ),
    ];
    let rights = [
        ('d', PermissionFact::Delegated("plain".to_owned())),
        (
            'a',
            PermissionFact::Allowed(vec!["ana".to_owned(), "bob".to_owned()]),
        ),
        (
            'r',
            PermissionFact::Refused(ConditionStatus::False, "RequesterRefused", "no".to_owned()),
        ),
        (
            'n',
            PermissionFact::Refused(
                ConditionStatus::Unknown,
                "RightsUnknown",
                "timeout".to_owned(),
            ),
        ),
    ];
    let approvals = [
        (
            'A',
            ApprovalFact::Approved {
                by: "eve".to_owned(),
                digest: "sha256:1".to_owned(),
            },
        ),
        ('R', ApprovalFact::NotRequired("plain".to_owned())),
        ('N', ApprovalFact::NotApproved("waiting".to_owned())),
        ('U', ApprovalFact::ContentUnknown("plain".to_owned())),
    ];
    let failed = failure.as_ref();
    let rights = rights.into_iter().find(|(letter, _)| is(*letter));
    DeploymentFacts {
        is_paused: is('P'),
        corrects_drift: is('C'),
        active_bundle: match (is('s'), is('o')) {
            (true, _) => Some(name()),
            (_, true) => Some("web-old".to_owned()),
            _ => None,
        },
        bundle: bundles
            .into_iter()
            .find(|(letter, _)| is(*letter))
            .map(|(_, fact)| fact),
        approval: approvals
            .into_iter()
            .find(|(letter, _)| is(*letter))
            .map(|(_, fact)| fact),
        rights: failed
            .and_then(|failure| PermissionFact::of_failure(failure.code, &failure.message))
            .or(rights.map(|(_, fact)| fact)),
        is_in_place: is('i'),
        rollout: None,
        failure,
        objects: ObjectFacts {
            coverage: if is('c') {
                Coverage::All
            } else {
                Coverage::Nothing
            },
            ..ObjectFacts::default()
        },
    }
}

/// Returns status and reason of each condition after the change; `-` for a condition without value.
fn after(facts: &DeploymentFacts, before: &[Condition]) -> Vec<String> {
    let changes = facts.conditions(before, GENERATION);
    let kinds = [
        condition::HAS_VALID_BUNDLE,
        condition::INSTALLED,
        condition::AUTHORIZED,
        condition::APPROVED,
        condition::DRIFTED,
        condition::HEALTHY,
        condition::PROGRESSING,
        condition::READY,
    ];
    kinds
        .iter()
        .map(|kind| {
            let after = changes.iter().find(|change| change.kind == *kind);
            let before = before.iter().find(|before| before.type_ == *kind);
            match (after, before) {
                (Some(change), _) => format!("{:?} {}", change.state, change.reason),
                (None, Some(before)) => format!("{} {}", before.status, before.reason),
                (None, None) => "-".to_owned(),
            }
        })
        .collect()
}

#[test]
#[rustfmt::skip]
fn conditions_depend_on_facts() {
    let (unpacked, succeeded) = ("True UnpackSuccessful", "True InstallationSucceeded");
    let (unasked, allowed) = ("Unknown NotAsked", "True RequesterMay");
    let (approved, none) = ("True Approved", "True NotRequired");
    let (drift, health) = ("Unknown NotInstalled", "Unknown NotInstalled");
    let (in_line, healthy) = ("False InPlace", "True Healthy");
    // HasValidBundle, Installed, Authorized, Approved, Drifted, Healthy, Progressing, Ready.
    for (letters, expected) in [
        // Nothing was observed, or the reconcile failed before the first observation.
        ("", ["Unknown UnpackPending", "Unknown UnpackPending", unasked, unasked, drift, health, "True Installing", "False Installing"]),
        ("I", ["Unknown UnpackPending", "False UpgradeFailed", unasked, unasked, drift, health, "True UpgradeFailed", "False UpgradeFailed"]),
        ("P", ["Unknown UnpackPending", "Unknown UnpackPending", unasked, unasked, drift, health, "False Paused", "False Paused"]),
        // The Bundle could not be created, is being fetched, or could not be unpacked.
        ("mI", ["Unknown BundleLoadFailed", "False UpgradeFailed", unasked, unasked, drift, health, "True UpgradeFailed", "False UpgradeFailed"]),
        ("moI", ["Unknown BundleLoadFailed", "-", unasked, unasked, drift, health, "True UpgradeFailed", "False UpgradeFailed"]),
        ("pU", ["False UnpackPending", "Unknown UnpackPending", unasked, "Unknown NotAsked", drift, health, "True UnpackPending", "False UnpackPending"]),
        ("wU", ["False Unpacking", "Unknown UnpackPending", unasked, "Unknown NotAsked", drift, health, "True Unpacking", "False Unpacking"]),
        ("wR", ["False Unpacking", "Unknown UnpackPending", unasked, none, drift, health, "True Unpacking", "False Unpacking"]),
        ("fU", ["False UnpackFailed", "False UnpackFailed", unasked, "Unknown NotAsked", drift, health, "False UnpackFailed", "False UnpackFailed"]),
        ("woRc", ["False Unpacking", "-", unasked, none, in_line, healthy, "True Unpacking", "False Unpacking"]),
        ("foRc", ["False UnpackFailed", "-", unasked, none, in_line, healthy, "False UnpackFailed", "False UnpackFailed"]),
        // The first installation.
        ("usiaRc", [unpacked, succeeded, allowed, none, in_line, healthy, "False InstallationSucceeded", "True InstallationSucceeded"]),
        ("usidAc", [unpacked, succeeded, "True Delegated", approved, in_line, healthy, "False InstallationSucceeded", "True InstallationSucceeded"]),
        ("usiaNc", [unpacked, succeeded, allowed, "False NotApproved", in_line, healthy, "False InstallationSucceeded", "True InstallationSucceeded"]),
        ("usiaRcP", [unpacked, succeeded, allowed, none, in_line, healthy, "False Paused", "True Paused"]),
        ("usiaR", [unpacked, succeeded, allowed, none, drift, health, "False NotInstalled", "Unknown NotInstalled"]),
        ("uNI", [unpacked, "False UpgradeFailed", unasked, "False NotApproved", drift, health, "True UpgradeFailed", "False UpgradeFailed"]),
        ("uRM", [unpacked, "False InstallFailed", "False RightsMissing", none, drift, health, "False InstallFailed", "False InstallFailed"]),
        ("uRrI", [unpacked, "False UpgradeFailed", "False RequesterRefused", none, drift, health, "True UpgradeFailed", "False UpgradeFailed"]),
        ("uRnI", [unpacked, "False UpgradeFailed", "Unknown RightsUnknown", none, drift, health, "True UpgradeFailed", "False UpgradeFailed"]),
        ("uK", [unpacked, "False UpgradeFailed", unasked, unasked, drift, health, "True UpgradeFailed", "False UpgradeFailed"]),
        ("uP", [unpacked, "Unknown UnpackPending", unasked, unasked, drift, health, "False Paused", "False Paused"]),
        // Other content is installed.
        ("uoaRc", [unpacked, "-", allowed, none, in_line, healthy, "True Installing", "False Installing"]),
        ("uoaRcI", [unpacked, "False UpgradeFailed", allowed, none, in_line, healthy, "True UpgradeFailed", "False UpgradeFailed"]),
        ("uoaRcK", [unpacked, "Unknown UpgradeFailed", allowed, none, in_line, healthy, "True UpgradeFailed", "False UpgradeFailed"]),
        ("uoRcM", [unpacked, "False InstallFailed", "False RightsMissing", none, in_line, healthy, "False InstallFailed", "False InstallFailed"]),
        // The permissions for the installed content were withdrawn.
        ("usRcW", [unpacked, "-", "False RightsWithdrawn", none, in_line, healthy, "True RightsWithdrawn", "False RightsWithdrawn"]),
        ("uoRcW", [unpacked, "-", "False RightsWithdrawn", none, in_line, healthy, "True RightsWithdrawn", "False RightsWithdrawn"]),
    ] {
        assert_eq!(after(&facts(letters), &[]), expected, "{letters}");
    }
}

#[test]
fn conditions_without_facts_are_unchanged() {
    let stands = [
        before(
            condition::HAS_VALID_BUNDLE,
            ConditionStatus::True,
            reason::UNPACK_SUCCESSFUL,
            GENERATION,
        ),
        before(
            condition::INSTALLED,
            ConditionStatus::True,
            reason::INSTALLATION_SUCCEEDED,
            GENERATION,
        ),
        before(
            condition::AUTHORIZED,
            ConditionStatus::False,
            reason::RIGHTS_WITHDRAWN,
            GENERATION,
        ),
        before(
            condition::APPROVED,
            ConditionStatus::True,
            "Approved",
            GENERATION,
        ),
    ];
    let mut failed = facts("sCcW");
    failed.rights = None;
    failed.objects.drifted = vec!["ConfigMap/a/b".to_owned()];
    let found = after(&failed, &stands);
    assert_eq!(
        found[..4],
        [
            "True UnpackSuccessful",
            "True InstallationSucceeded",
            "False RightsWithdrawn",
            "True Approved"
        ]
    );
    // The stored permission result decides whether drift is corrected.
    let changes = failed.conditions(&stands, GENERATION);
    let drifted = changes
        .iter()
        .find(|change| change.kind == condition::DRIFTED);
    let message = &drifted.unwrap().message;
    assert!(message.contains("lost required permissions"), "{message}");
    // If the reconcile fails before it reads the Bundle, the failure concerns the installed
    // content.
    let found = after(&facts("sI"), &stands);
    assert_eq!(found[1], "False UpgradeFailed");
}

#[test]
fn installation_of_an_earlier_generation_is_not_ready() {
    let stands = |generation| {
        [before(
            condition::INSTALLED,
            ConditionStatus::True,
            reason::INSTALLATION_SUCCEEDED,
            generation,
        )]
    };
    // The content is applied, and the status still records another Bundle as installed.
    let facts = facts("uoaRc");
    assert_eq!(
        after(&facts, &stands(GENERATION))[7],
        "True InstallationSucceeded"
    );
    assert_eq!(
        after(&facts, &stands(GENERATION - 1))[7],
        "False Installing"
    );
}

#[test]
fn permission_result_of_this_reconcile_overrides_the_stored_condition() {
    let authorized = [before(
        condition::AUTHORIZED,
        ConditionStatus::True,
        "Delegated",
        1,
    )];
    let refused = [before(
        condition::AUTHORIZED,
        ConditionStatus::False,
        "RightsMissing",
        1,
    )];
    for (letters, before, expected) in [
        ("", &authorized[..], true),
        ("", &refused, false),
        ("", &[], false),
        ("a", &refused, true),
        ("d", &[], true),
        ("r", &authorized, false),
        ("n", &authorized, false),
    ] {
        assert_eq!(facts(letters).is_authorized(before), expected, "{letters}");
    }
}

#[test]
fn ready_names_the_code_of_a_failure_unless_the_deployment_is_paused() {
    let ready = |letters| {
        let changes = facts(letters).conditions(&[], GENERATION);
        let ready = changes
            .into_iter()
            .find(|change| change.kind == condition::READY);
        ready.unwrap().message
    };
    let code = codes::install::APPLY_FAILED.id;
    assert_eq!(ready("usicI"), format!("failed [{code}]"));
    assert!(!ready("usicIP").contains(code));
}

#[test]
fn at_most_one_change_of_each_condition() {
    for letters in ["", "uoaRcI", "usiaRc", "fU", "uRM", "moI", "PusiaRc"] {
        let changes = facts(letters).conditions(&[], GENERATION);
        let mut kinds: Vec<_> = changes.iter().map(|change| change.kind).collect();
        let all = kinds.len();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), all, "{letters}");
    }
}

#[test]
#[rustfmt::skip]
fn stopped_objects_have_a_reason_and_unknown_health() {
    let told = |changes: Vec<ConditionChange>| -> Vec<String> {
        changes
            .iter()
            .map(|change| format!("{}={:?}{}", change.kind, change.state, if change.is_default { "?" } else { "" }))
            .collect()
    };
    let stopped = ["Healthy=Unknown", "Drifted=Unknown", "Progressing=False", "Ready=False"];
    assert_eq!(told(class_missing("ClassGone", "gone")), stopped);
    let unread = ["HasValidBundle=Unknown", "Installed=False", "Authorized=Unknown?", "Approved=Unknown?"];
    assert_eq!(told(not_admitted("NotAdmitted", "why", false)), [&unread[..], &stopped].concat());
    let installed = ["HasValidBundle=Unknown", "Authorized=Unknown?", "Approved=Unknown?"];
    assert_eq!(told(not_admitted("NotAdmitted", "why", true)), [&installed[..], &stopped].concat());
    assert_eq!(told(removing("Removing", "x")), ["Progressing=True", "Ready=False"]);
    assert_eq!(told(removing("RemovalRefused", "x")), ["Progressing=False", "Ready=False"]);
}

#[test]
fn first_installation_that_waits_between_phases_is_not_installed() {
    let (waiting, held) = ("phase 1 of 2: waiting", "phase 1 of 2: held");
    for (rollout, message, reason, ready) in [
        (
            RolloutReport::Waiting(waiting.to_owned()),
            waiting,
            reason::WAITING_FOR_HEALTH,
            waiting.to_owned(),
        ),
        (
            RolloutReport::Failed(held.to_owned()),
            held,
            reason::PROGRESS_DEADLINE_EXCEEDED,
            format!("{held} [BUNDLE-INSTALL-120]"),
        ),
    ] {
        let facts = DeploymentFacts {
            rollout: Some(rollout),
            active_bundle: None,
            is_in_place: false,
            ..facts("uoicdA")
        };
        let found = facts.conditions(&[], GENERATION);
        let of = |kind| found.iter().find(|change| change.kind == kind).unwrap();
        for kind in [condition::INSTALLED, condition::READY] {
            assert_eq!(of(kind).state, ConditionStatus::False, "{kind}");
            assert_eq!(of(kind).reason, reason, "{kind}");
        }
        assert_eq!(of(condition::INSTALLED).message, message);
        assert_eq!(of(condition::READY).message, ready);
        assert_eq!(of(condition::PROGRESSING).message, message);
    }
}

#[test]
fn returned_content_counts_as_not_installed_and_the_code_is_in_ready() {
    let facts = DeploymentFacts {
        rollout: Some(RolloutReport::RolledBack("returned".to_owned())),
        ..facts("uoicdA")
    };
    let found = facts.conditions(&[], GENERATION);
    let of = |kind| found.iter().find(|change| change.kind == kind).unwrap();
    for (kind, message) in [
        (condition::INSTALLED, "returned"),
        (condition::PROGRESSING, "returned"),
        (condition::READY, "returned [BUNDLE-INSTALL-121]"),
    ] {
        let change = of(kind);
        assert_eq!(change.state, ConditionStatus::False, "{kind}");
        assert_eq!(change.reason, reason::ROLLED_BACK, "{kind}");
        assert_eq!(change.message, message, "{kind}");
    }
}
