//! Combinations of facts, and the conditions that follow.

use super::*;

fn keys(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

const COMPLETE: Installation<'static> = Installation {
    is_paused: false,
    error: None,
    bundle: None,
    rollout: None,
    is_installed: true,
};
const PAUSED_COMPLETE: Installation<'static> = Installation {
    is_paused: true,
    ..COMPLETE
};
const FAILED: Installation<'static> = Installation {
    error: Some(("UpgradeFailed", "refused", true)),
    is_installed: false,
    ..COMPLETE
};
const NO_BUNDLE: Installation<'static> = Installation {
    bundle: Some(("UnpackFailed", "no such image", false)),
    is_installed: false,
    ..COMPLETE
};
const GOES_ON: Installation<'static> = Installation {
    is_installed: false,
    ..COMPLETE
};

/// Columns: installation, coverage, correction, drifted, missing, unhealthy, reason of undetected
/// drift. Then the expected `Drifted`, `Healthy`, `Progressing` and `Ready`, and the reason of
/// `Ready`.
type Row = (
    Installation<'static>,
    Coverage,
    Correction,
    (usize, usize, usize, bool),
    [ConditionStatus; 4],
    &'static str,
);

#[test]
fn conditions_depend_on_observed_objects() {
    use ConditionStatus::{False, True, Unknown};
    use Correction::{Paused, Reported, Restored, RightsWithdrawn};
    use Coverage::{All, AppliedOnly, NotChecked, Nothing};
    let fine = (0, 0, 0, false);
    let drifted = (1, 0, 0, false);
    let missing = (1, 1, 0, false);
    let sick = (0, 0, 1, false);
    let blind = (0, 0, 0, true);
    #[rustfmt::skip]
    let table: [Row; 24] = [
        (COMPLETE, All, Restored, fine, [False, True, False, True], "InstallationSucceeded"),
        (COMPLETE, All, Restored, drifted, [True, True, False, False], "OutOfLine"),
        (COMPLETE, All, Restored, missing, [True, True, False, False], "ObjectsMissing"),
        (COMPLETE, All, Restored, sick, [False, False, False, False], "Unhealthy"),
        (COMPLETE, All, Restored, blind, [Unknown, True, False, Unknown], "CreateDynamicWatchFailed"),
        (COMPLETE, All, Restored, (0, 0, 1, true), [Unknown, False, False, False], "Unhealthy"),
        (COMPLETE, All, Restored, (1, 0, 1, true), [True, False, False, False], "OutOfLine"),
        (COMPLETE, All, RightsWithdrawn, drifted, [True, True, False, False], "OutOfLine"),
        (COMPLETE, All, Reported, fine, [False, True, False, True], "InstallationSucceeded"),
        (COMPLETE, All, Reported, drifted, [True, True, False, True], "InstallationSucceeded"),
        (COMPLETE, All, Reported, missing, [True, True, False, False], "ObjectsMissing"),
        (COMPLETE, All, Reported, (1, 0, 1, false), [True, False, False, False], "Unhealthy"),
        (COMPLETE, AppliedOnly, Restored, fine, [Unknown, Unknown, False, Unknown], "Installing"),
        (COMPLETE, NotChecked, Restored, fine, [Unknown, Unknown, False, Unknown], "NotChecked"),
        (COMPLETE, Nothing, Restored, fine, [Unknown, Unknown, False, Unknown], "NotInstalled"),
        (FAILED, AppliedOnly, Restored, fine, [Unknown, Unknown, True, False], "UpgradeFailed"),
        (FAILED, AppliedOnly, Restored, missing, [True, Unknown, True, False], "UpgradeFailed"),
        (FAILED, All, Restored, fine, [False, True, True, False], "UpgradeFailed"),
        (FAILED, NotChecked, Restored, fine, [Unknown, Unknown, True, False], "UpgradeFailed"),
        (NO_BUNDLE, All, Restored, fine, [False, True, False, False], "UnpackFailed"),
        (GOES_ON, Nothing, Restored, fine, [Unknown, Unknown, True, False], "Installing"),
        (PAUSED_COMPLETE, All, Paused, fine, [False, True, False, True], "Paused"),
        (PAUSED_COMPLETE, All, Paused, drifted, [True, True, False, True], "Paused"),
        (PAUSED_COMPLETE, All, Paused, missing, [True, True, False, False], "ObjectsMissing"),
    ];
    for row in table {
        let (installation, coverage, correction, (drifted, missing, sick, blind), expected, reason) =
            row;
        let object = keys(&["ConfigMap/n/x"]);
        let unhealthy: BTreeMap<String, String> = (0..sick)
            .map(|_| ("Deployment.apps/n/x".to_owned(), "no pod".to_owned()))
            .collect();
        let observed = ObservedObjects {
            coverage,
            correction,
            drifted: &object[..drifted],
            missing: &object[..missing],
            contested: &[],
            unhealthy: &unhealthy,
            undetected_drift_reason: blind.then_some("cannot watch configmaps"),
        };
        let ready = observed.ready(&installation);
        let found = [
            observed.drifted().state,
            observed.healthy().state,
            observed.progressing(&installation).state,
            ready.state,
        ];
        assert_eq!(
            (found, ready.reason.as_str()),
            (expected, reason),
            "{row:?}"
        );
    }
}

#[test]
fn ready_is_never_true_while_an_object_is_missing() {
    let missing = keys(&["ConfigMap/n/x"]);
    for coverage in [Coverage::AppliedOnly, Coverage::All] {
        for correction in [
            Correction::Restored,
            Correction::Paused,
            Correction::RightsWithdrawn,
            Correction::Reported,
        ] {
            let observed = ObservedObjects {
                coverage,
                correction,
                drifted: &missing,
                missing: &missing,
                contested: &[],
                unhealthy: &BTreeMap::new(),
                undetected_drift_reason: None,
            };
            for installation in [COMPLETE, PAUSED_COMPLETE] {
                let ready = observed.ready(&installation);
                assert_eq!(ready.state, ConditionStatus::False);
                assert_eq!(ready.message, "missing: ConfigMap/n/x");
            }
        }
    }
}

#[test]
fn message_has_objects_that_another_actor_changes_back() {
    let drifted = keys(&["ConfigMap/n/a", "ConfigMap/n/b"]);
    let observed = ObservedObjects {
        coverage: Coverage::All,
        correction: Correction::Restored,
        drifted: &drifted,
        missing: &[],
        contested: &drifted[1..],
        unhealthy: &BTreeMap::new(),
        undetected_drift_reason: None,
    };
    assert_eq!(
        observed.drifted().message,
        "being restored: ConfigMap/n/a, ConfigMap/n/b; restored with a delay of up to 30 s, because another client changes them back: ConfigMap/n/b"
    );
}

/// Returns `Progressing` and `Ready` of content with this rollout: status and reason.
fn of_rollout(
    report: &RolloutReport,
    installation: Installation<'_>,
    is_missing: bool,
) -> [(ConditionStatus, String); 2] {
    let missing = keys(if is_missing { &["ConfigMap/a/b"] } else { &[] });
    let unhealthy = BTreeMap::from([("Deployment.apps/a/b".to_owned(), "0 of 1".to_owned())]);
    let objects = ObservedObjects {
        coverage: Coverage::All,
        correction: Correction::Restored,
        drifted: &missing,
        missing: &missing,
        contested: &[],
        unhealthy: &unhealthy,
        undetected_drift_reason: None,
    };
    let installation = Installation {
        rollout: Some(report),
        ..installation
    };
    [
        objects.progressing(&installation),
        objects.ready(&installation),
    ]
    .map(|value| (value.state, value.reason))
}

#[test]
fn rollout_decides_progressing_and_explains_unhealthy_content() {
    use ConditionStatus::{False, True};
    let text = || "message".to_owned();
    let (waiting, held) = (
        RolloutReport::Waiting(text()),
        RolloutReport::Failed(text()),
    );
    let returning = RolloutReport::RollingBack(text());
    let returned = RolloutReport::RolledBack(text());
    let exceeded = "ProgressDeadlineExceeded";
    for (report, installation, is_missing, progressing, ready) in [
        (
            &waiting,
            COMPLETE,
            false,
            (True, "WaitingForHealth"),
            "Unhealthy",
        ),
        (&held, COMPLETE, false, (False, exceeded), exceeded),
        (&held, COMPLETE, true, (False, exceeded), "ObjectsMissing"),
        (
            &held,
            PAUSED_COMPLETE,
            false,
            (False, "Paused"),
            "Unhealthy",
        ),
        (
            &held,
            FAILED,
            false,
            (True, "UpgradeFailed"),
            "UpgradeFailed",
        ),
        (
            &returning,
            COMPLETE,
            false,
            (True, "RollingBack"),
            "RollingBack",
        ),
        (
            &returning,
            FAILED,
            false,
            (True, "UpgradeFailed"),
            "UpgradeFailed",
        ),
        (
            &waiting,
            GOES_ON,
            false,
            (True, "WaitingForHealth"),
            "WaitingForHealth",
        ),
        (&held, GOES_ON, false, (False, exceeded), exceeded),
        (
            &returned,
            GOES_ON,
            false,
            (False, "RolledBack"),
            "RolledBack",
        ),
        (
            &returned,
            GOES_ON,
            true,
            (False, "RolledBack"),
            "RolledBack",
        ),
    ] {
        let found = of_rollout(report, installation, is_missing);
        let (state, reason) = progressing;
        let expected = [(state, reason.to_owned()), (False, ready.to_owned())];
        assert_eq!(found, expected, "{report:?} {is_missing}");
    }
}
