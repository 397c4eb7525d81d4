//! The consent that it takes to write or delete one object: none, that of those who asked for the content, or none that anybody could give.
//! The questions are in `crate::rights` and `webhook::reconcile`; where the content of a class may land is in [`super::targets`].

use super::decision::DecidedObjects;
use super::targets;
use crate::object::ObjectId;
use crate::review::class::{Authorization, Class, RequesterCheck};

/// Something that is done with one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// New content, or new settings, apply it.
    Install,
    /// It was installed before, and is put right or created again.
    Restore,
    /// The content does not have it any more, and it is deleted.
    Prune,
    /// It is deleted with its BundleDeployment.
    Remove,
}

/// The ServiceAccount that acts, as far as it matters for the rights that it lends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActingAccount {
    /// The class names it, or `spec.serviceAccount` does and everybody who asked for the content may impersonate it.
    Granted,
    /// Neither names it: it is the one that installed under an earlier class.
    Former,
    /// `spec.serviceAccount` names it, and somebody who asked for the content may not impersonate it: who, in words.
    Withdrawn(String),
}

/// The consent that an act takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consent {
    /// None: the class decides about this object.
    Delegated,
    /// That of everybody who asked for a part of the content, asked in this way.
    Requesters(RequesterCheck),
    /// Nobody can give it.
    Refused(Refusal),
}

/// Reason for which an act is refused whoever asks for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The class does not let content land there.
    #[error("the class does not let content land there")]
    OutsideTargets,
    /// The ServiceAccount may not be used any more.
    #[error("{0}")]
    AccountWithdrawn(String),
}

/// The rule for the objects of one BundleDeployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsentRule {
    /// `None` where the class is gone, cannot be read or belongs to another provisioner.
    class: Option<Terms>,
    account: ActingAccount,
    decided: DecidedObjects,
}

/// The fields of a class that the rule depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Terms {
    authorization: Authorization,
    check: RequesterCheck,
    namespaces: Vec<String>,
    cluster_scoped: bool,
}

impl ConsentRule {
    /// The rule under `class`, which is `None` where it is gone, cannot be read or belongs to another provisioner.
    /// `decided` are the objects that this class, with the terms that it has, decided about when they were installed.
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

    /// The consent that `act` on the object takes.
    ///
    /// A class decides only for a ServiceAccount that it, or the spec under it, names, and only about objects inside of its targets. What is installed it
    /// restores and deletes only if it decided about that when it was installed. About all others those who asked for the content are asked, by dry run as well.
    pub fn consent(&self, act: Act, id: &ObjectId) -> Consent {
        if let ActingAccount::Withdrawn(why) = &self.account {
            return Consent::Refused(Refusal::AccountWithdrawn(why.clone()));
        }
        let Some(class) = &self.class else {
            return Consent::Requesters(RequesterCheck::DryRun);
        };
        let is_inside = class.covers(id);
        if act == Act::Install && !is_inside {
            return Consent::Refused(Refusal::OutsideTargets);
        }
        match class.authorization {
            Authorization::Requester => Consent::Requesters(class.check),
            Authorization::Class
                if is_inside
                    && self.account == ActingAccount::Granted
                    && (act == Act::Install || self.decided.has(id)) =>
            {
                Consent::Delegated
            }
            Authorization::Class => Consent::Requesters(RequesterCheck::DryRun),
        }
    }

    /// Returns `true` if the object takes the consent of the requesters only because it lies outside of the targets of a class that decides for its users.
    pub fn exceeds_delegation(&self, id: &ObjectId) -> bool {
        self.account == ActingAccount::Granted
            && self.class.as_ref().is_some_and(|class| {
                class.authorization == Authorization::Class && !class.covers(id)
            })
    }

    /// The reason why the ServiceAccount may not be used, if it may not.
    pub fn account_withdrawn(&self) -> Option<&str> {
        match &self.account {
            ActingAccount::Withdrawn(why) => Some(why),
            ActingAccount::Granted | ActingAccount::Former => None,
        }
    }
}

impl Terms {
    fn covers(&self, id: &ObjectId) -> bool {
        targets::outside([id], &self.namespaces, self.cluster_scoped).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ACTS: [Act; 4] = [Act::Install, Act::Restore, Act::Prune, Act::Remove];

    /// Class, acting account, whether the object is inside of the targets, acts, consent.
    type Row<'a> = (
        Option<&'a Class>,
        ActingAccount,
        bool,
        &'a [Act],
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
    fn consent_follows_from_class_account_place_and_act() {
        use Act::{Install, Prune, Remove, Restore};
        use ActingAccount::{Former, Granted};
        let dry_run = Consent::Requesters(RequesterCheck::DryRun);
        let review = Consent::Requesters(RequesterCheck::AccessReview);
        let outside = Consent::Refused(Refusal::OutsideTargets);
        let delegated = Consent::Delegated;
        let strict = class("Requester", "DryRun");
        let reviewed = class("Requester", "AccessReview");
        let lends = class("Class", "DryRun");
        // How requesters are asked under `authorization: Requester` is no term of a class that decides itself.
        let lends_reviewed = class("Class", "AccessReview");
        let deletions_and_repairs: &[Act] = &[Restore, Prune, Remove];
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
    fn class_that_did_not_decide_about_installed_objects_lends_nothing_for_them() {
        let (lends, reviewed) = (class("Class", "DryRun"), class("Requester", "AccessReview"));
        let (id, other) = (object(Some("team-a")), object(Some("team-b")));
        let all_but_other = DecidedObjects::AllBut([other.to_string()].into());
        let dry_run = Consent::Requesters(RequesterCheck::DryRun);
        let review = Consent::Requesters(RequesterCheck::AccessReview);
        // Class, objects that it decided about, object; consent to install it, and to everything else.
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
                let expected = if act == Act::Install { install } else { others };
                assert_eq!(rule.consent(act, id), *expected, "{decided:?} {id} {act:?}");
            }
        }
    }

    #[test]
    fn nothing_is_done_as_an_account_that_may_not_be_impersonated() {
        let classes = [class("Class", "DryRun"), class("Requester", "DryRun")];
        for class in classes.iter().map(Some).chain([None]) {
            let rule = ConsentRule::new(class, withdrawn(), DecidedObjects::ALL);
            for act in ACTS {
                let found = rule.consent(act, &object(Some("team-a")));
                let Consent::Refused(refusal) = found else {
                    panic!("{class:?} {act:?}: {found:?}")
                };
                assert_eq!(refusal.to_string(), "ana may not impersonate it");
            }
            assert!(rule.account_withdrawn().is_some());
            assert!(!rule.exceeds_delegation(&object(None)));
        }
    }

    #[test]
    fn objects_outside_of_what_a_class_delegates_are_told_apart() {
        let lends = class("Class", "DryRun");
        let rule = ConsentRule::new(Some(&lends), ActingAccount::Granted, DecidedObjects::ALL);
        assert!(rule.exceeds_delegation(&object(None)));
        assert!(!rule.exceeds_delegation(&object(Some("team-a"))));
        let strict = class("Requester", "DryRun");
        let rule = ConsentRule::new(Some(&strict), ActingAccount::Granted, DecidedObjects::ALL);
        assert!(!rule.exceeds_delegation(&object(None)));
    }
}
