//! Authorization of a single write or deletion. There are three results: no permission is required,
//! the requesters of the content need the permissions, or the write is denied for all requesters.
//! `crate::rights` and `webhook::reconcile` check the permissions. [`crate::plan::targets`]
//! contains the target restrictions of a class.

use crate::object::ObjectId;
use crate::plan::decision::DecidedObjects;
use crate::plan::targets;
use crate::review::class::{Authorization, Class, RequesterCheck};

/// Write or deletion of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectAction {
    /// Apply of an object from new content or with new settings.
    Install,
    /// Restoration or new creation of an object that was installed before.
    Restore,
    /// Deletion of an object that is no longer part of the content.
    Prune,
    /// Deletion of an object because its BundleDeployment is being deleted.
    Remove,
}

/// Permission of the requesters to use the ServiceAccount that sends the requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActingAccount {
    /// The class names the ServiceAccount. Or `spec.serviceAccount` names the ServiceAccount, and
    /// all requesters have permission to impersonate it.
    Granted,
    /// The ServiceAccount installed the content under an earlier class. Neither the current class
    /// nor the spec names this ServiceAccount.
    Former,
    /// `spec.serviceAccount` names the ServiceAccount, but at least one requester has no permission
    /// to impersonate it. The text names these requesters.
    Withdrawn(String),
}

/// Required authorization of an [`ObjectAction`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consent {
    /// The class delegates its permissions. The requesters need no permissions.
    Delegated,
    /// All requesters of the content need the permissions. The value defines the check.
    Requesters(RequesterCheck),
    /// The action is denied for all requesters.
    Denied(DenialReason),
}

/// Reason for a denial. Permissions of the requester for the object do not change the denial.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DenialReason {
    /// The class does not allow this target.
    #[error("the class does not allow this target")]
    OutsideTargets,
    /// A requester has no permission to impersonate the ServiceAccount any more.
    #[error("{0}")]
    AccountWithdrawn(String),
}

/// Authorization rule for the objects of one BundleDeployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsentRule {
    /// `None` if the class does not exist, is invalid or belongs to another provisioner.
    class: Option<Terms>,
    account: ActingAccount,
    decided: DecidedObjects,
}

/// Fields of a class that the rule depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Terms {
    authorization: Authorization,
    check: RequesterCheck,
    namespaces: Vec<String>,
    cluster_scoped: bool,
}

impl ConsentRule {
    /// Returns the rule for `class`, which is `None` if the class does not exist, is invalid or
    /// belongs to another provisioner. `decided` contains the objects whose installation this class
    /// authorized with its current terms.
    pub fn new(class: Option<&Class>, account: ActingAccount, decided: DecidedObjects) -> Self {
        let class = class.map(|class| Terms {
            authorization: class.authorization,
            check: class.requester_check,
            namespaces: class.namespaces.clone(),
            cluster_scoped: class.cluster_scoped,
        });
        Self {
            class,
            account,
            decided,
        }
    }

    /// Returns the required authorization for the action `act` on the object.
    ///
    /// The action is denied:
    /// - if a requester lost the permission to impersonate the ServiceAccount
    /// - if the object to install is outside of the targets of the class
    ///
    /// The class delegates its permissions if it has `authorization: Class`, and if all these
    /// conditions are true:
    /// - the class or the spec names the ServiceAccount
    /// - the object is inside of the targets
    /// - for a restore or deletion: the class authorized the installation of the object
    ///
    /// In all other cases, the requesters need the permissions. A class with
    /// `authorization: Requester` selects the check by `requesterCheck`. Without such a class, the
    /// check includes a dry run.
    pub fn consent(&self, act: ObjectAction, id: &ObjectId) -> Consent {
        if let ActingAccount::Withdrawn(why) = &self.account {
            return Consent::Denied(DenialReason::AccountWithdrawn(why.clone()));
        }
        let Some(class) = &self.class else {
            return Consent::Requesters(RequesterCheck::DryRun);
        };
        let is_inside = class.covers(id);
        if act == ObjectAction::Install && !is_inside {
            return Consent::Denied(DenialReason::OutsideTargets);
        }
        match class.authorization {
            Authorization::Requester => Consent::Requesters(class.check),
            Authorization::Class
                if is_inside
                    && self.account == ActingAccount::Granted
                    && (act == ObjectAction::Install || self.decided.has(id)) =>
            {
                Consent::Delegated
            }
            Authorization::Class => Consent::Requesters(RequesterCheck::DryRun),
        }
    }

    /// Returns true if the class delegates its permissions, but the object is outside of the
    /// targets of the class. This is then the only reason why the requesters need permissions for
    /// the object.
    pub fn exceeds_delegation(&self, id: &ObjectId) -> bool {
        self.account == ActingAccount::Granted
            && self.class.as_ref().is_some_and(|class| {
                class.authorization == Authorization::Class && !class.covers(id)
            })
    }

    /// Returns the namespace patterns of the class. Without a class, the list is empty.
    pub fn class_namespaces(&self) -> &[String] {
        self.class
            .as_ref()
            .map_or(&[], |class| class.namespaces.as_slice())
    }

    /// Returns the reason why the ServiceAccount must not be used; `None` if it may be used.
    pub fn account_withdrawn(&self) -> Option<&str> {
        match &self.account {
            ActingAccount::Withdrawn(why) => Some(why),
            ActingAccount::Granted | ActingAccount::Former => None,
        }
    }
}

impl Terms {
    fn covers(&self, id: &ObjectId) -> bool {
        targets::outside_targets([id], &self.namespaces, self.cluster_scoped).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ACTS: [ObjectAction; 4] = [
        ObjectAction::Install,
        ObjectAction::Restore,
        ObjectAction::Prune,
        ObjectAction::Remove,
    ];

    /// Columns: class, acting account, `true` if the object is inside of the targets, actions,
    /// expected consent.
    type Row<'a> = (
        Option<&'a Class>,
        ActingAccount,
        bool,
        &'a [ObjectAction],
        &'a Consent,
    );

    fn object(namespace: Option<&str>) -> ObjectId {
        ObjectId {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Thing".to_owned(),
            namespace: namespace.map(str::to_owned),
            name: "x".to_owned(),
        }
    }

    fn class(authorization: &str, check: &str) -> Class {
        let spec = json!({
            "provisioner": "core.rukpak.io/plain",
            "authorization": authorization,
            "requesterCheck": check,
            "targets": {"namespaces": ["team-*"], "clusterScoped": "Deny"},
        });
        Class::parse("plain", &spec).unwrap()
    }

    fn withdrawn() -> ActingAccount {
        ActingAccount::Withdrawn("ana may not impersonate it".to_owned())
    }

    #[test]
    fn consent_depends_on_class_account_target_and_act() {
        use ActingAccount::{Former, Granted};
        use ObjectAction::{Install, Prune, Remove, Restore};
        let dry_run = Consent::Requesters(RequesterCheck::DryRun);
        let review = Consent::Requesters(RequesterCheck::AccessReview);
        let outside = Consent::Denied(DenialReason::OutsideTargets);
        let delegated = Consent::Delegated;
        let strict = class("Requester", "DryRun");
        let reviewed = class("Requester", "AccessReview");
        let lends = class("Class", "DryRun");
        // `requesterCheck` belongs to `authorization: Requester`. A class with
        // `authorization: Class` ignores this field.
        let lends_reviewed = class("Class", "AccessReview");
        let deletions_and_repairs: &[ObjectAction] = &[Restore, Prune, Remove];
        let table: [Row<'_>; 18] = [
            (Some(&strict), Granted, true, &ACTS, &dry_run),
            (Some(&strict), Granted, false, &[Install], &outside),
            (
                Some(&strict),
                Granted,
                false,
                deletions_and_repairs,
                &dry_run,
            ),
            (Some(&strict), Former, true, &ACTS, &dry_run),
            (Some(&reviewed), Granted, true, &ACTS, &review),
            (
                Some(&reviewed),
                Granted,
                false,
                deletions_and_repairs,
                &review,
            ),
            (Some(&reviewed), Former, true, &[Remove], &review),
            (Some(&lends), Granted, true, &ACTS, &delegated),
            (Some(&lends), Granted, false, &[Install], &outside),
            (
                Some(&lends),
                Granted,
                false,
                deletions_and_repairs,
                &dry_run,
            ),
            (Some(&lends), Former, true, &ACTS, &dry_run),
            (Some(&lends), Former, false, &[Install], &outside),
            (Some(&lends), Former, false, deletions_and_repairs, &dry_run),
            (Some(&lends_reviewed), Granted, true, &ACTS, &delegated),
            (Some(&lends_reviewed), Granted, false, &[Remove], &dry_run),
            (Some(&lends_reviewed), Former, true, &[Remove], &dry_run),
            (None, Granted, true, &ACTS, &dry_run),
            (None, Former, false, &ACTS, &dry_run),
        ];
        for (class, account, is_inside, acts, expected) in table {
            let rule = ConsentRule::new(class, account.clone(), DecidedObjects::ALL);
            let ids = if is_inside {
                [object(Some("team-a")), object(Some("team-b"))]
            } else {
                [object(Some("kube-system")), object(None)]
            };
            for (act, id) in acts
                .iter()
                .flat_map(|act| ids.iter().map(move |id| (act, id)))
            {
                let found = rule.consent(*act, id);
                assert_eq!(found, *expected, "{class:?} {account:?} {id} {act:?}");
            }
        }
    }

    #[test]
    fn class_without_decision_about_installed_objects_delegates_nothing_for_them() {
        let (lends, reviewed) = (class("Class", "DryRun"), class("Requester", "AccessReview"));
        let (id, other) = (object(Some("team-a")), object(Some("team-b")));
        let all_but_other = DecidedObjects::AllBut([other.to_string()].into());
        let dry_run = Consent::Requesters(RequesterCheck::DryRun);
        let review = Consent::Requesters(RequesterCheck::AccessReview);
        // Columns: class, objects that the class authorized, object, consent for installation,
        // consent for all other actions.
        let table = [
            (
                &lends,
                DecidedObjects::None,
                &id,
                &Consent::Delegated,
                &dry_run,
            ),
            (
                &lends,
                all_but_other.clone(),
                &id,
                &Consent::Delegated,
                &Consent::Delegated,
            ),
            (&lends, all_but_other, &other, &Consent::Delegated, &dry_run),
            (
                &lends,
                DecidedObjects::ALL,
                &other,
                &Consent::Delegated,
                &Consent::Delegated,
            ),
            (&reviewed, DecidedObjects::None, &id, &review, &review),
            (&reviewed, DecidedObjects::ALL, &id, &review, &review),
        ];
        for (class, decided, id, install, others) in table {
            let rule = ConsentRule::new(Some(class), ActingAccount::Granted, decided.clone());
            for act in ACTS {
                let expected = if act == ObjectAction::Install {
                    install
                } else {
                    others
                };
                assert_eq!(rule.consent(act, id), *expected, "{decided:?} {id} {act:?}");
            }
        }
    }

    #[test]
    fn denies_all_acts_as_an_account_that_a_requester_cannot_impersonate() {
        let classes = [class("Class", "DryRun"), class("Requester", "DryRun")];
        for class in classes.iter().map(Some).chain([None]) {
            let rule = ConsentRule::new(class, withdrawn(), DecidedObjects::ALL);
            for act in ACTS {
                let found = rule.consent(act, &object(Some("team-a")));
                let Consent::Denied(refusal) = found else {
                    panic!("{class:?} {act:?}: {found:?}")
                };
                assert_eq!(refusal.to_string(), "ana may not impersonate it");
            }
            assert!(rule.account_withdrawn().is_some());
            assert!(!rule.exceeds_delegation(&object(None)));
        }
    }

    #[test]
    fn exceeds_delegation_only_outside_of_targets_of_a_delegating_class() {
        let lends = class("Class", "DryRun");
        let rule = ConsentRule::new(Some(&lends), ActingAccount::Granted, DecidedObjects::ALL);
        assert!(rule.exceeds_delegation(&object(None)));
        assert!(!rule.exceeds_delegation(&object(Some("team-a"))));
        let strict = class("Requester", "DryRun");
        let rule = ConsentRule::new(Some(&strict), ActingAccount::Granted, DecidedObjects::ALL);
        assert!(!rule.exceeds_delegation(&object(None)));
    }
}
