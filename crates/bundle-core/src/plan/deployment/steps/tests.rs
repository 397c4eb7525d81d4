//! Truth tables: facts of a reconcile, and the steps that follow.

use super::*;
use InstallStep::*;
use MaintenanceStep::*;

const BEGIN: [InstallStep; 2] = [CheckContent, Render];
/// The steps [`BEGIN`] for content whose source and signatures are checked.
const CHECK: [InstallStep; 4] = [CheckContent, CheckSource, Verify, Render];
const ASK: [InstallStep; 2] = [CheckTargets, CheckApproval];
const FIRST: [InstallStep; 1] = [Authorize];
const NEW: [InstallStep; 3] = [CheckPackageRules, CheckDefinitions, Authorize];
const CHANGED: [InstallStep; 2] = [CheckDefinitions, Authorize];
const DECISION: [InstallStep; 2] = [CheckPreconditionsOfDecision, RecordDecision];
const INSTALL: [InstallStep; 5] = [CheckPreconditions, Apply, Prune, RecordInstalled, WatchAll];

/// Returns facts from letters:
///
/// - `u`: unpacked; `p`: paused; `c`: corrects drift
/// - `w`: wanted content is applied; `o`: other content is applied
/// - `i`: installed; `d`: authorized by the class (`is_decided`); `a`: recorded as active
/// - `h`: the retry is not due (`is_held`); `f`: the last installation is not complete
/// - `t`: the result of the permission check is too old
/// - `y`: objects are as recorded; `n`: objects are not as recorded
/// - `b`: the wanted content was installed before an installation of other content began
/// - `g`: the configuration differs from the installed configuration
fn observed(facts: &str) -> ObservedDeployment {
    let is = |fact| facts.contains(fact);
    ObservedDeployment {
        is_paused: is('p'),
        corrects_drift: is('c'),
        is_unpacked: is('u'),
        in_place: match (is('w'), is('o')) {
            (true, _) => AppliedContent::Wanted,
            (_, true) => AppliedContent::Other,
            _ => AppliedContent::Unknown,
        },
        is_installed: is('i'),
        was_installed: is('i') || is('b'),
        has_installed_config: (is('i') || is('b')) && !is('g'),
        is_decided: is('d'),
        is_active: is('a'),
        is_held: is('h'),
        is_unfinished: is('f'),
        is_as_recorded: match (is('y'), is('n')) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
        is_authorization_old: is('t'),
        ..ObservedDeployment::default()
    }
}

#[test]
fn installation_continues_after_the_phase_is_healthy() {
    let waiting = |facts: &str, is_phase_ready| ObservedDeployment {
        waits_for_phase: true,
        is_phase_ready,
        ..observed(facts)
    };
    assert_eq!(waiting("uf", None).installation(), [CheckPhase]);
    assert_eq!(waiting("uf", Some(false)).installation(), []);
    let all = waiting("uf", Some(true)).installation();
    assert_eq!(all, observed("uf").installation());
    assert!(all.contains(&Authorize) && all.contains(&Apply));
    assert_eq!(waiting("upf", None).installation(), []);
    assert_eq!(waiting("uhf", None).installation(), [ReportDelayedError]);
}

#[test]
fn restored_content_does_not_wait_between_phases() {
    for (facts, is_rollback, expected) in [
        ("u", false, true),
        ("uo", false, true),
        ("uig", false, true),
        ("ui", false, false),
        ("uibf", false, false),
        ("uobf", false, false),
        ("uo", true, false),
    ] {
        let found = observed(facts).is_gated(is_rollback);
        assert_eq!(found, expected, "{facts} {is_rollback}");
    }
}

fn steps(parts: &[&[InstallStep]]) -> Vec<InstallStep> {
    parts.concat()
}

#[test]
fn installation_steps_depend_on_observed_facts() {
    let all = steps(&[&CHECK, &ASK, &NEW, &[Watch], &INSTALL]);
    let reverted = steps(&[&CHECK, &ASK, &FIRST, &[Watch], &INSTALL]);
    let again = steps(&[&BEGIN, &ASK, &[Watch, Authorize], &INSTALL]);
    let reconfigured = steps(&[
        &CHECK,
        &ASK,
        &[CheckDefinitions, Watch, Authorize],
        &INSTALL,
    ]);
    let found_again = steps(&[&BEGIN, &ASK, &[Watch, Compare]]);
    for (facts, expected) in [
        // The content is unknown, or no step remains.
        ("", vec![]),
        ("c", vec![]),
        ("h", vec![]),
        ("w", vec![]),
        ("id", vec![]),
        ("wida", vec![]),
        ("p", vec![]),
        ("up", vec![]),
        ("upc", vec![]),
        ("upida", vec![]),
        ("upo", vec![]),
        ("uph", vec![]),
        ("upw", vec![]),
        ("uwida", vec![]),
        ("ucwida", vec![]),
        ("uwidah", vec![]),
        ("uwidat", vec![]),
        // This is the first installation of the content. No content, or other content, is applied
        // on the cluster.
        ("u", all.clone()),
        ("uc", all.clone()),
        ("ud", all.clone()),
        ("ua", all.clone()),
        ("uo", all.clone()),
        ("uoc", all.clone()),
        ("uod", all.clone()),
        ("uoa", all.clone()),
        ("uy", all.clone()),
        ("un", all.clone()),
        (
            "ut",
            steps(&[&CHECK, &ASK, &NEW, &[Watch, Reauthorize], &INSTALL]),
        ),
        (
            "uot",
            steps(&[&CHECK, &ASK, &NEW, &[Watch, Reauthorize], &INSTALL]),
        ),
        // The previously installed content is requested again, after an upgrade that was not
        // completed.
        ("ubf", reverted.clone()),
        ("uobf", reverted.clone()),
        ("uobdf", reverted),
        // An attempt that failed is not repeated yet.
        ("uh", vec![ReportDelayedError]),
        ("uch", vec![ReportDelayedError]),
        ("uoh", vec![ReportDelayedError]),
        ("uidah", vec![ReportDelayedError]),
        ("uwh", vec![ReportDelayedError]),
        ("uwidh", vec![ReportDelayedError]),
        // Settings have changed, or the previously installed content is requested again. In both
        // cases, the content is installed, and the class has authorized the content.
        ("uoid", again.clone()),
        ("uoida", again.clone()),
        ("uoidc", again.clone()),
        ("uoidt", again.clone()),
        ("uoidn", again.clone()),
        // Another configuration can change each object of the same content.
        ("uoidg", reconfigured.clone()),
        ("uoidag", reconfigured.clone()),
        ("uidafg", reconfigured),
        (
            "uoig",
            steps(&[&CHECK, &ASK, &CHANGED, &DECISION, &[Watch], &INSTALL]),
        ),
        (
            "uobfg",
            steps(&[&CHECK, &ASK, &CHANGED, &[Watch], &INSTALL]),
        ),
        (
            "uidacg",
            steps(&[&CHECK, &ASK, &[CheckDefinitions, Watch, Compare]]),
        ),
        ("uwidag", vec![]),
        // After a restart, the process does not know which content is applied.
        ("uidac", found_again.clone()),
        ("uidc", found_again.clone()),
        ("uidact", found_again.clone()),
        (
            "uidacy",
            steps(&[&BEGIN, &ASK, &[Watch, Compare, UseRecordedState]]),
        ),
        (
            "uidacn",
            steps(&[&BEGIN, &ASK, &[Watch, Compare, Authorize], &INSTALL]),
        ),
        ("uida", steps(&[&BEGIN, &ASK, &[Watch, FindDrift]])),
        ("uid", steps(&[&BEGIN, &ASK, &[Watch, FindDrift]])),
        ("uidan", steps(&[&BEGIN, &ASK, &[Watch, FindDrift]])),
        // The new configuration is not installed yet. This difference is no drift.
        (
            "uidag",
            steps(&[&CHECK, &ASK, &[CheckDefinitions, Watch, Compare]]),
        ),
        // The content was installed under another class, or under other terms of the class.
        ("uwi", steps(&[&CHECK, &ASK, &FIRST, &DECISION])),
        ("uwia", steps(&[&CHECK, &ASK, &FIRST, &DECISION])),
        ("uwiac", steps(&[&CHECK, &ASK, &FIRST, &DECISION])),
        (
            "uiac",
            steps(&[&CHECK, &ASK, &FIRST, &DECISION, &[Watch, Compare]]),
        ),
        (
            "uiacy",
            steps(&[
                &CHECK,
                &ASK,
                &FIRST,
                &DECISION,
                &[Watch, Compare, UseRecordedState],
            ]),
        ),
        (
            "uiacn",
            steps(&[&CHECK, &ASK, &FIRST, &DECISION, &[Watch, Compare], &INSTALL]),
        ),
        (
            "uiacnt",
            steps(&[
                &CHECK,
                &ASK,
                &FIRST,
                &DECISION,
                &[Watch, Compare, Reauthorize],
                &INSTALL,
            ]),
        ),
        (
            "uia",
            steps(&[&CHECK, &ASK, &FIRST, &DECISION, &[Watch, FindDrift]]),
        ),
        (
            "uoi",
            steps(&[&CHECK, &ASK, &FIRST, &DECISION, &[Watch], &INSTALL]),
        ),
        // The last attempt failed after the apply.
        (
            "uwd",
            steps(&[&BEGIN, &[Authorize, Prune, RecordInstalled, WatchAll]]),
        ),
        (
            "uwda",
            steps(&[&BEGIN, &[Authorize, Prune, RecordInstalled, WatchAll]]),
        ),
        (
            "uwid",
            steps(&[&BEGIN, &[Authorize, Prune, RecordInstalled, WatchAll]]),
        ),
        (
            "uwidc",
            steps(&[&BEGIN, &[Authorize, Prune, RecordInstalled, WatchAll]]),
        ),
        // An installation of other content was interrupted. The objects of the other content are
        // pruned, without a comparison.
        (
            "uwidaf",
            steps(&[&BEGIN, &[Authorize, Prune, RecordInstalled, WatchAll]]),
        ),
        ("uidacf", again.clone()),
        ("uidaf", again.clone()),
        ("uidacyf", again.clone()),
        ("uoidf", again.clone()),
        ("ucf", all.clone()),
        ("uofc", all.clone()),
        (
            "uwiaf",
            steps(&[
                &CHECK,
                &ASK,
                &FIRST,
                &DECISION,
                &[Prune, RecordInstalled, WatchAll],
            ]),
        ),
        (
            "uiacf",
            steps(&[&CHECK, &ASK, &FIRST, &DECISION, &[Watch], &INSTALL]),
        ),
        // The content is applied, but neither the content nor a decision of the class is recorded.
        // Such content is treated as new.
        ("uw", all.clone()),
        ("uwa", all.clone()),
        ("uwc", all),
    ] {
        assert_eq!(observed(facts).installation(), expected, "{facts}");
    }
}

#[test]
fn completed_steps_are_not_repeated_and_the_order_is_unchanged() {
    for facts in ["u", "uoid", "uidac", "uiacn", "uwd", "ut"] {
        let mut now = observed(facts);
        let planned = now.installation();
        for (number, step) in planned.iter().enumerate() {
            assert_eq!(now.installation(), planned[number..], "{facts}");
            now.done.insert(*step);
        }
        assert_eq!(now.installation(), [], "{facts}");
    }
}

#[test]
fn steps_after_the_comparison_depend_on_its_result() {
    let mut now = observed("uidac");
    now.done.extend(now.installation());
    for (outcome, expected) in [
        (true, steps(&[&[UseRecordedState]])),
        (false, steps(&[&[Authorize], &INSTALL])),
    ] {
        now.is_as_recorded = Some(outcome);
        assert_eq!(now.installation(), expected, "{outcome}");
    }
}

#[test]
fn maintenance_depends_on_the_outcome_of_the_installation() {
    // `w`: wanted content is applied; `o`: other content is applied; `k`: the process knows that an
    // installation is partly applied; `f`: the inventory records an incomplete installation.
    for (facts, keep) in [
        ("w", Maintain),
        ("wf", Maintain),
        ("wk", Maintain),
        ("wkf", Maintain),
        ("k", MaintainPartial),
        ("kf", MaintainPartial),
        ("ok", MaintainPartial),
        ("okf", MaintainPartial),
        // After a restart, the process does not know which objects are applied.
        ("f", MaintainPartial),
        ("", MaintainPrevious),
        ("o", MaintainPrevious),
        // The installation was recorded and ended before its first apply.
        ("of", MaintainPrevious),
    ] {
        for has_completed in [false, true] {
            let is = |fact| facts.contains(fact);
            let outcome = InstallOutcome {
                in_place: match (is('w'), is('o')) {
                    (true, _) => AppliedContent::Wanted,
                    (_, true) => AppliedContent::Other,
                    _ => AppliedContent::Unknown,
                },
                is_partly_applied: is('k'),
                is_unfinished: is('f'),
                has_completed,
            };
            let mut expected = vec![ReportApproval, keep];
            if keep == Maintain {
                expected.push(CheckPermissions);
            }
            if keep != Maintain || has_completed {
                expected.push(DeleteOldBundles);
            }
            assert_eq!(outcome.maintenance(), expected, "{facts} {has_completed}");
        }
    }
}

/// Returns all combinations of facts.
fn everything() -> impl Iterator<Item = ObservedDeployment> {
    (0..1_u32 << 11).flat_map(|bits| {
        [
            AppliedContent::Unknown,
            AppliedContent::Other,
            AppliedContent::Wanted,
        ]
        .into_iter()
        .flat_map(move |in_place| {
            [None, Some(true), Some(false)].map(|is_as_recorded| {
                let bit = |number: u32| bits & (1 << number) != 0;
                ObservedDeployment {
                    is_paused: bit(0),
                    corrects_drift: bit(1),
                    is_unpacked: bit(2),
                    in_place,
                    is_installed: bit(3),
                    was_installed: bit(3) || bit(9),
                    has_installed_config: bit(10),
                    is_decided: bit(4),
                    is_active: bit(5),
                    is_held: bit(6),
                    is_as_recorded,
                    is_authorization_old: bit(7),
                    is_unfinished: bit(8),
                    ..ObservedDeployment::default()
                }
            })
        })
    })
}

#[test]
fn every_plan_has_the_order_that_security_requires() {
    for observed in everything() {
        let plan = observed.installation();
        let at = |step| plan.iter().position(|found| *found == step);
        let is_before = |first, second| match (at(first), at(second)) {
            (Some(first), Some(second)) => first < second,
            (None, Some(_)) => false,
            (_, None) => true,
        };
        for needed in [CheckContent, Render, CheckTargets, CheckApproval, Watch] {
            assert!(is_before(needed, Apply), "{needed:?} {observed:?}");
        }
        assert!(is_before(Authorize, Apply), "{observed:?}");
        // No reconcile waits for memory of a registry while it has memory for objects.
        if at(Verify).is_some() {
            assert!(is_before(CheckSource, Verify), "{observed:?}");
            assert!(is_before(Verify, Render), "{observed:?}");
        }
        if observed.is_first() {
            for needed in [CheckSource, Verify, Authorize] {
                assert!(is_before(needed, Apply), "{needed:?} {observed:?}");
                assert!(is_before(needed, RecordDecision), "{needed:?} {observed:?}");
            }
            if at(Apply).is_some() || at(RecordDecision).is_some() {
                assert!(is_before(Verify, Authorize), "{observed:?}");
            }
            // The package rules are checked for content that was not installed before.
            if observed.was_installed {
                assert_eq!(at(CheckPackageRules), None, "{observed:?}");
            } else {
                assert!(is_before(CheckPackageRules, Apply), "{observed:?}");
            }
        }
        // New content and new configurations are compared with the definitions on the cluster.
        if observed.was_installed && observed.has_installed_config {
            assert_eq!(at(CheckDefinitions), None, "{observed:?}");
        } else {
            for write in [Apply, RecordDecision] {
                assert!(is_before(CheckDefinitions, write), "{observed:?}");
            }
            let is_checked = at(CheckDefinitions).is_some();
            assert!(
                !is_checked || is_before(CheckDefinitions, Authorize) || at(Authorize).is_none()
            );
        }
        // The checks run immediately before the write, because a slow registry can delay the
        // verification of signatures.
        for (check, write) in [
            (CheckPreconditions, Apply),
            (CheckPreconditionsOfDecision, RecordDecision),
        ] {
            if let Some(written) = at(write) {
                assert_eq!(at(check), written.checked_sub(1), "{check:?} {observed:?}");
            }
        }
        // Nothing is pruned or recorded as installed before the new content is applied.
        if observed.in_place != AppliedContent::Wanted {
            assert!(is_before(Apply, Prune), "{observed:?}");
            assert!(is_before(Apply, RecordInstalled), "{observed:?}");
        }
        assert!(is_before(Authorize, Prune), "{observed:?}");
        assert!(is_before(Prune, RecordInstalled), "{observed:?}");
        let unique: BTreeSet<_> = plan.iter().collect();
        assert_eq!(unique.len(), plan.len(), "{observed:?}");
    }
}
