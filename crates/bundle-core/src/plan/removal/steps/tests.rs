//! Truth tables: facts about a deletion, and the steps that follow.

use super::RemovalStep::*;
use super::*;

const ACCEPT: [RemovalStep; 5] = [
    ForgetReplacedNamespaces,
    CheckDeletion,
    RecordAcceptance,
    ReadRequesters,
    FindAccount,
];
const END: [RemovalStep; 2] = [RemoveFinalizer, RemoveInventory];
const NAMESPACES: [RemovalStep; 2] = [ReleaseNamespacesInUse, DeleteNamespaces];

/// Returns facts from letters:
///
/// - `f`: the BundleDeployment has the finalizer of the pod
/// - inventory: `l` (lost), `e` (empty), `s` (some objects)
/// - `o`: orphan
/// - custom resources: `k` (the definition and its custom resources are kept), `d` (both are
///   deleted)
/// - account: `n` (none), `u` (usable), `w` (withdrawn)
/// - definitions in use: `y` (yes), `x` (none)
fn observed(facts: &str) -> ObservedRemoval {
    let is = |fact| facts.contains(fact);
    ObservedRemoval {
        has_finalizer: is('f'),
        is_orphan: is('o'),
        custom_resources: match (is('k'), is('d')) {
            (true, _) => CustomResources::Orphan,
            (_, true) => CustomResources::Delete,
            _ => CustomResources::Refuse,
        },
        recorded: match (is('l'), is('e'), is('s')) {
            (true, ..) => RecordedObjects::Lost,
            (_, true, _) => RecordedObjects::Empty,
            (_, _, true) => RecordedObjects::Some,
            _ => RecordedObjects::None,
        },
        account: match (is('n'), is('u'), is('w')) {
            (true, ..) => Some(Account::None),
            (_, true, _) => Some(Account::Usable),
            (_, _, true) => Some(Account::Withdrawn),
            _ => None,
        },
        definitions_in_use: match (is('y'), is('x')) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
        done: BTreeSet::new(),
    }
}

#[test]
fn removal_steps_depend_on_observed_facts() {
    let accepted = |parts: &[&[RemovalStep]]| [&ACCEPT[..], &parts.concat()].concat();
    let empty = [&[ForgetReplacedNamespaces][..], &END].concat();
    let asks = accepted(&[&[FindObjects, FindDefinitionsInUse]]);
    let refused = accepted(&[&[FindObjects, FindDefinitionsInUse, ReportDefinitionsInUse]]);
    let whole = accepted(&[
        &[FindObjects, FindDefinitionsInUse, DeleteObjects],
        &NAMESPACES,
        &END,
    ]);
    let without_definitions = accepted(&[
        &[
            FindObjects,
            FindDefinitionsInUse,
            ReleaseDefinitionsInUse,
            DeleteObjects,
        ],
        &NAMESPACES,
        &END,
    ]);
    let with_resources = accepted(&[&[FindObjects, DeleteObjects], &NAMESPACES, &END]);
    let withdrawn = accepted(&[&[FindObjects, DeleteObjects, DeleteNamespaces], &END]);
    let released = accepted(&[&[ReleaseObjects], &END]);
    let left_behind = accepted(&[&END]);
    for (facts, expected) in [
        // The removal is complete.
        ("", vec![]),
        ("l", vec![]),
        ("s", vec![]),
        ("su", vec![]),
        // Nothing was installed, or everything is removed.
        ("f", END.to_vec()),
        ("fo", END.to_vec()),
        ("fd", END.to_vec()),
        ("fe", empty.clone()),
        ("feo", empty.clone()),
        ("few", empty),
        // The inventory is lost.
        ("fl", vec![ReportInventoryLost]),
        ("flk", vec![ReportInventoryLost]),
        ("flu", vec![ReportInventoryLost]),
        ("flo", END.to_vec()),
        // Objects are recorded.
        ("fs", ACCEPT.to_vec()),
        ("fso", ACCEPT.to_vec()),
        ("fsd", ACCEPT.to_vec()),
        ("fsy", ACCEPT.to_vec()),
        ("fsn", accepted(&[&[ReportNoAccount]])),
        ("fsnd", accepted(&[&[ReportNoAccount]])),
        ("fsu", asks.clone()),
        ("fsuk", asks),
        ("fsuy", refused),
        ("fsux", whole.clone()),
        ("fsukx", whole),
        ("fsuky", without_definitions),
        ("fsud", with_resources.clone()),
        ("fsudy", with_resources),
        // Without a usable ServiceAccount no object is released. The deletion returns a reason for
        // each object.
        ("fsw", withdrawn.clone()),
        ("fswk", withdrawn.clone()),
        ("fswy", withdrawn.clone()),
        ("fswd", withdrawn),
        // The objects are orphaned.
        ("fsou", released.clone()),
        ("fsouy", released.clone()),
        ("fsoud", released),
        ("fson", left_behind.clone()),
        ("fsow", left_behind),
    ] {
        assert_eq!(observed(facts).steps(), expected, "{facts}");
    }
}

#[test]
fn completed_steps_are_not_repeated_and_the_order_is_unchanged() {
    for facts in ["f", "fe", "fsux", "fsuky", "fsud", "fsw", "fsou", "fson"] {
        let mut now = observed(facts);
        let planned = now.steps();
        for (number, step) in planned.iter().enumerate() {
            assert_eq!(now.steps(), planned[number..], "{facts}");
            now.done.insert(*step);
            // After this step, the API server returns the object without the finalizer.
            now.has_finalizer &= *step != RemoveFinalizer;
        }
        assert_eq!(now.steps(), [], "{facts}");
    }
}

/// Returns all combinations of facts.
fn everything() -> impl Iterator<Item = ObservedRemoval> {
    let letters = [
        &["f", ""][..],
        &["", "l", "e", "s"],
        &["", "o"],
        &["", "k", "d"],
        &["", "n", "u", "w"],
        &["", "y", "x"],
    ];
    let mut all = vec![String::new()];
    for choices in letters {
        all = all
            .iter()
            .flat_map(|facts| choices.iter().map(move |choice| format!("{facts}{choice}")))
            .collect();
    }
    all.into_iter().map(|facts| observed(&facts))
}

#[test]
fn every_plan_has_the_order_that_security_requires() {
    let deletions = [DeleteObjects, DeleteNamespaces];
    let releases = [
        ReleaseObjects,
        ReleaseDefinitionsInUse,
        ReleaseNamespacesInUse,
    ];
    for observed in everything() {
        let plan = observed.steps();
        let at = |step| plan.iter().position(|found| *found == step);
        for act in deletions.iter().chain(&releases) {
            let Some(act) = at(*act) else { continue };
            for needed in ACCEPT {
                assert!(at(needed).is_some_and(|at| at < act), "{observed:?}");
            }
        }
        let deletes = deletions.iter().any(|step| at(*step).is_some());
        assert!(!deletes || !observed.is_orphan, "{observed:?}");
        // Without a usable ServiceAccount only the deletion is attempted, which returns the reason
        // for each object.
        if observed.account == Some(Account::Withdrawn) {
            assert!(releases.iter().all(|step| at(*step).is_none()));
        }
        // Custom resources of other owners are deleted only if the spec requires it.
        if at(DeleteObjects).is_some()
            && observed.custom_resources != CustomResources::Delete
            && observed.account == Some(Account::Usable)
        {
            assert!(at(FindDefinitionsInUse) < at(DeleteObjects), "{observed:?}");
            let kept = at(ReleaseDefinitionsInUse).is_some();
            assert_eq!(kept, observed.definitions_in_use == Some(true));
        }
        if let Some(finalizer) = at(RemoveFinalizer) {
            assert_eq!(finalizer + 2, plan.len(), "{observed:?}");
            assert_eq!(at(RemoveInventory), Some(finalizer + 1), "{observed:?}");
            assert!(
                observed.recorded != RecordedObjects::Lost || observed.is_orphan,
                "{observed:?}"
            );
        }
        let unique: BTreeSet<_> = plan.iter().collect();
        assert_eq!(unique.len(), plan.len(), "{observed:?}");
    }
}
