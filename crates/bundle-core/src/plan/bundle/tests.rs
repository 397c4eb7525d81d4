//! Truth tables: facts about a Bundle, the steps that follow, and the status.

use super::BundleStep::*;
use super::*;
use crate::diagnostic::codes;
use crate::plan::conditions::{ConditionChange, ConditionStatus};
use crate::reference::Digest;

const CHECKS: [BundleStep; 2] = [CheckAdmission, CheckProvisioner];

/// Returns facts from letters: `d` (deleted), `x` (fixed source), and the record of the content:
/// `n` (none), `s` (same spec) or `c` (changed spec).
fn observed(facts: &str) -> ObservedBundle {
    let is = |fact| facts.contains(fact);
    ObservedBundle {
        is_deleted: is('d'),
        sealed: match (is('n'), is('s'), is('c')) {
            (true, ..) => Some(SealedRecord::None),
            (_, true, _) => Some(SealedRecord::SameSpec),
            (_, _, true) => Some(SealedRecord::OtherSpec),
            _ => None,
        },
        is_source_fixed: is('x'),
        done: BTreeSet::new(),
    }
}

#[test]
fn steps_depend_on_observed_facts() {
    let with = |more: &[BundleStep]| [&CHECKS[..], more].concat();
    let removal = vec![RemoveCachedContent, RemoveFinalizer];
    for (facts, expected) in [
        ("", with(&[])),
        ("x", with(&[])),
        // Nothing was unpacked yet.
        ("n", with(&[CheckSource, Unpack])),
        ("nx", with(&[CheckSource, Unpack])),
        // Content that is sealed is never unpacked again, even if the cache is lost.
        ("s", with(&[RestoreStatus, CompareSource])),
        ("sx", with(&[RestoreStatus])),
        ("c", with(&[ReportContentChanged])),
        ("cx", with(&[ReportContentChanged])),
        // The Bundle is being deleted.
        ("d", removal.clone()),
        ("dn", removal.clone()),
        ("ds", removal.clone()),
        ("dc", removal),
    ] {
        assert_eq!(observed(facts).steps(), expected, "{facts}");
    }
}

#[test]
fn completed_steps_are_not_repeated_and_the_order_is_unchanged() {
    for facts in ["n", "s", "sx", "c", "d"] {
        let mut now = observed(facts);
        let planned = now.steps();
        for (number, step) in planned.iter().enumerate() {
            assert_eq!(now.steps(), planned[number..], "{facts}");
            now.done.insert(*step);
        }
        assert_eq!(now.steps(), [], "{facts}");
    }
}

fn digest(digit: char) -> Digest {
    let hex: String = std::iter::repeat_n(digit, 64).collect();
    format!("sha256:{hex}").parse().unwrap()
}

fn failure(code: crate::diagnostic::Code, is_unpacked: bool) -> BundleFailure<'static> {
    BundleFailure {
        code,
        reason: "UnpackFailed",
        message: "refused",
        verified: None,
        is_unpacked,
    }
}

/// Returns conditions as text: type, status, reason, and `?` for a condition that is set only if
/// the status does not contain it yet.
fn told(plan: &StatusPlan) -> Vec<String> {
    plan.conditions
        .iter()
        .map(|change| {
            let mark = if change.is_default { "?" } else { "" };
            let ConditionChange {
                kind,
                state,
                reason,
                ..
            } = change;
            format!("{kind}={state:?} {reason}{mark}")
        })
        .collect()
}

#[test]
fn status_depends_on_the_outcome() {
    use BundleOutcome::{Failed, NotUploaded, Pending, Sealed, Unpacked};
    let (old, new) = (digest('a'), digest('b'));
    let content = UnpackedContent {
        digest: &old,
        verified: ("Signed", "signed by the release key"),
        compatible: (
            ConditionStatus::False,
            "Unsupported",
            "Kubernetes 1.20 is not supported",
        ),
        warnings: &[],
    };
    let verified = |is_unknown| BundleFailure {
        verified: Some(VerifiedFailure {
            is_unknown,
            message: "no signature",
        }),
        ..failure(codes::trust::CANNOT_TELL, false)
    };
    let (changed, admitted) = (codes::install::CONTENT_CHANGED, codes::review::NOT_ADMITTED);
    let lost = codes::cluster::UNREACHABLE;
    let not_checked = [
        "Verified=Unknown UnpackPending?",
        "Compatible=Unknown UnpackPending?",
    ];
    let failed = [&not_checked[..], &["Unpacked=False UnpackFailed"]].concat();
    let sealed = "Unpacked=True UnpackSuccessful?";
    let moved = SourceComparison::Changed {
        source: "registry.example.com/web:1",
        now: &new,
    };
    // Columns: outcome, phase, `true` if the source is removed from the status, conditions, and
    // three booleans: an Event is sent, the attempt has succeeded, the source is compared again.
    #[rustfmt::skip]
    let table = [
        (Pending { is_retry: false }, Some(Phase::Unpacking), false, [&["Unpacked=False Unpacking"][..], &not_checked].concat(), [false, false, false]),
        // During a retry the status shows the previous failure: only default conditions are
        // written.
        (Pending { is_retry: true }, None, false, not_checked.to_vec(), [false, false, false]),
        (NotUploaded, Some(Phase::Pending), true, [&["Unpacked=False UnpackPending"][..], &not_checked].concat(), [false, false, false]),
        (Failed(failure(lost, false)), Some(Phase::Failing), true, failed.clone(), [false, false, false]),
        // After most failures, content that was unpacked before is still available. Exceptions: the
        // content of the Bundle has changed, or the Bundle was not admitted.
        (Failed(failure(lost, true)), None, false, not_checked.to_vec(), [false, false, false]),
        (Failed(failure(changed, true)), Some(Phase::Failing), true, failed.clone(), [false, false, false]),
        (Failed(failure(admitted, true)), Some(Phase::Failing), true, failed.clone(), [false, false, false]),
        (Failed(failure(admitted, false)), Some(Phase::Failing), true, failed.clone(), [false, false, false]),
        (Failed(verified(false)), Some(Phase::Failing), true, [&["Verified=False UnpackFailed"][..], &failed].concat(), [false, false, false]),
        (Failed(verified(true)), Some(Phase::Failing), true, [&["Verified=Unknown UnpackFailed"][..], &failed].concat(), [false, false, false]),
        // An unsupported server prevents the installation by a BundleDeployment. It does not
        // prevent the unpacking.
        (Unpacked(content), Some(Phase::Unpacked), false, vec!["Verified=True Signed", "Compatible=False Unsupported", "Unpacked=True UnpackSuccessful", "SourceMoved=False SourceUnchanged"], [true, true, true]),
        (Sealed(&old, SourceComparison::Pending), Some(Phase::Unpacked), false, vec![sealed], [true, true, false]),
        (Sealed(&old, SourceComparison::Unchanged), Some(Phase::Unpacked), false, vec![sealed, "SourceMoved=False SourceUnchanged"], [true, true, true]),
        (Sealed(&old, moved), Some(Phase::Unpacked), false, vec![sealed, "SourceMoved=True SourceMoved"], [true, true, true]),
        (Sealed(&old, SourceComparison::Unknown("timeout")), Some(Phase::Unpacked), false, vec![sealed, "SourceMoved=Unknown SourceUnseen"], [true, true, true]),
    ];
    for (outcome, phase, forgets, conditions, [is_event_due, has_succeeded, asks_again]) in table {
        let plan = outcome.status();
        assert_eq!(plan.phase, phase, "{outcome:?}");
        assert_eq!(plan.forgets_source, forgets, "{outcome:?}");
        assert_eq!(told(&plan), conditions, "{outcome:?}");
        let confirmed: &[&str] = match outcome {
            Sealed(..) => &["Verified", "Compatible", "Unpacked"],
            _ => &[],
        };
        assert_eq!(plan.confirmed, confirmed, "{outcome:?}");
        assert_eq!(outcome.is_event_due(false), is_event_due, "{outcome:?}");
        assert!(!outcome.is_event_due(true), "{outcome:?}");
        assert_eq!(outcome.has_succeeded(), has_succeeded, "{outcome:?}");
        assert_eq!(
            outcome.compares_source_again(false),
            asks_again,
            "{outcome:?}"
        );
        assert!(!outcome.compares_source_again(true), "{outcome:?}");
    }
}

#[test]
fn messages_contain_both_digests_and_warnings() {
    let (old, new) = (digest('a'), digest('b'));
    let moved = SourceComparison::Changed {
        source: "registry.example.com/web:1",
        now: &new,
    };
    let plan = BundleOutcome::Sealed(&old, moved).status();
    let message = &plan.conditions[1].message;
    assert_eq!(
        *message,
        format!(
            "registry.example.com/web:1 now refers to {new}; this Bundle keeps {old}, which was unpacked first"
        )
    );
    let warnings = ["one".to_owned(), "two".to_owned()];
    let content = UnpackedContent {
        digest: &old,
        verified: ("NotRequired", ""),
        compatible: (ConditionStatus::True, "NoRange", ""),
        warnings: &warnings,
    };
    let plan = BundleOutcome::Unpacked(content).status();
    assert_eq!(
        plan.conditions[2].message,
        "Successfully unpacked the bundle; one; two"
    );
}
