//! Numbers of recorded objects of all BundleDeployments. These numbers are limited for each
//! requester and in total, because the process keeps every recorded object in memory. `cargo xtask
//! gen` copies `messages.txt` to the page about diagnostics.

use std::collections::HashMap;

/// Maximum numbers of recorded objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectLimits {
    /// Maximum number of objects of all BundleDeployments together.
    pub total: u64,
    /// Maximum number of objects of all BundleDeployments of one requester together.
    pub requester: u64,
}

/// A BundleDeployment would record more objects than a limit allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TooManyObjects {
    /// The limit of one requester is exceeded.
    #[error(
        "the content adds {added} objects to the {recorded} that are installed for requester {requester:?}, who can have {most}: remove BundleDeployments of this requester, or increase the memory of the webhook"
    )]
    OfRequester {
        /// Requester of the content, as text for the message.
        requester: String,
        /// Number of objects that are not recorded yet.
        added: u64,
        /// Number of recorded objects of the requester.
        recorded: u64,
        /// Maximum number of objects of one requester.
        most: u64,
    },
    /// The limit of all requesters together is exceeded.
    #[error(
        "the content adds {added} objects to the {recorded} that are installed for all requesters, who can have {most} together: remove BundleDeployments, or increase the memory of the webhook"
    )]
    InTotal {
        /// Number of objects that are not recorded yet.
        added: u64,
        /// Number of recorded objects of all requesters.
        recorded: u64,
        /// Maximum number of objects of all requesters together.
        most: u64,
    },
}

/// Number of recorded objects of one BundleDeployment, with the requester.
#[derive(Debug, Default)]
struct ObjectCount {
    /// Requester of the content. The text is empty if the requester is unknown.
    requester: String,
    objects: u64,
}

/// Numbers of recorded objects by BundleDeployment.
#[derive(Debug)]
pub struct ObjectCounts {
    limits: ObjectLimits,
    /// Number of objects of each BundleDeployment, by its uid.
    deployments: HashMap<String, ObjectCount>,
}

impl ObjectCounts {
    /// Returns a value without recorded objects: all numbers are zero.
    pub fn new(limits: ObjectLimits) -> Self {
        Self {
            limits,
            deployments: HashMap::new(),
        }
    }

    /// Sets the number of objects that the BundleDeployment with this uid records. This function
    /// does not check the limit: recorded objects stay installed, even if the limit was lowered.
    pub fn record(&mut self, uid: &str, objects: u64) {
        self.deployments.entry(uid.to_owned()).or_default().objects = objects;
    }

    /// Sets the requester of the BundleDeployment. The recorded objects of the BundleDeployment
    /// then count towards the limit of this requester.
    pub fn set_requester(&mut self, uid: &str, requester: &str) {
        if let Some(count) = self.deployments.get_mut(uid) {
            requester.clone_into(&mut count.requester);
        }
    }

    /// Reserves `objects` objects for the BundleDeployment and its requester, before the objects
    /// are recorded. Fails if the number of objects would exceed a limit. Never fails if at least
    /// `objects` objects of the BundleDeployment are already recorded.
    pub fn reserve(
        &mut self,
        uid: &str,
        requester: &str,
        objects: u64,
    ) -> Result<(), TooManyObjects> {
        self.set_requester(uid, requester);
        let recorded = self.deployments.get(uid).map_or(0, |count| count.objects);
        if objects <= recorded {
            return Ok(());
        }
        let added = objects - recorded;
        let (mut of_requester, mut total) = (0_u64, 0_u64);
        for count in self.deployments.values() {
            total = total.saturating_add(count.objects);
            if count.requester == requester {
                of_requester = of_requester.saturating_add(count.objects);
            }
        }
        if of_requester.saturating_add(added) > self.limits.requester {
            return Err(TooManyObjects::OfRequester {
                requester: requester.to_owned(),
                added,
                recorded: of_requester,
                most: self.limits.requester,
            });
        }
        if total.saturating_add(added) > self.limits.total {
            return Err(TooManyObjects::InTotal {
                added,
                recorded: total,
                most: self.limits.total,
            });
        }
        let requester = requester.to_owned();
        let count = ObjectCount { requester, objects };
        self.deployments.insert(uid.to_owned(), count);
        Ok(())
    }

    /// Removes a BundleDeployment that no longer records any objects.
    pub fn remove(&mut self, uid: &str) {
        self.deployments.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::codes;

    const RECORDED: &str = include_str!("messages.txt");

    fn counts() -> ObjectCounts {
        ObjectCounts::new(ObjectLimits {
            total: 100,
            requester: 50,
        })
    }

    #[test]
    fn requester_has_at_most_its_part_and_leaves_the_rest_to_others() {
        let mut counts = counts();
        counts.reserve("a", "ana", 30).unwrap();
        let error = counts.reserve("b", "ana", 21).unwrap_err();
        let expected = TooManyObjects::OfRequester {
            requester: "ana".to_owned(),
            added: 21,
            recorded: 30,
            most: 50,
        };
        assert_eq!(error, expected);
        counts.reserve("b", "ana", 20).unwrap();
        counts.reserve("c", "ben", 50).unwrap();
        let error = counts.reserve("d", "eve", 1).unwrap_err();
        let expected = TooManyObjects::InTotal {
            added: 1,
            recorded: 100,
            most: 100,
        };
        assert_eq!(error, expected);
    }

    #[test]
    fn rejected_objects_do_not_count_and_removed_ones_are_available_again() {
        let mut counts = counts();
        counts.reserve("a", "ana", 51).unwrap_err();
        counts.reserve("b", "ana", 50).unwrap();
        counts.record("b", 10);
        counts.reserve("a", "ana", 40).unwrap();
        counts.remove("a");
        counts.reserve("c", "ana", 40).unwrap();
    }

    #[test]
    fn objects_above_the_limit_stay_and_can_be_replaced_but_do_not_grow() {
        let mut counts = counts();
        // The process restarted with a lower limit, and records the numbers from the inventories.
        counts.record("a", 80);
        counts.record("b", 90);
        for requester in ["ana", "ben"] {
            for objects in [80, 79, 1] {
                counts.reserve("a", requester, objects).unwrap();
            }
            counts.reserve("a", requester, 81).unwrap_err();
        }
        // After a change to smaller content, objects of the former content count towards the limit
        // until they are pruned.
        counts.reserve("a", "ana", 80).unwrap();
        counts.record("a", 40);
        counts.reserve("a", "ana", 41).unwrap_err();
        counts.remove("b");
        counts.reserve("a", "ana", 50).unwrap();
    }

    #[test]
    fn objects_count_for_the_latest_requester() {
        let mut counts = counts();
        counts.reserve("a", "ana", 50).unwrap();
        counts.reserve("a", "ben", 50).unwrap();
        counts.reserve("b", "ana", 50).unwrap();
        counts.reserve("c", "ben", 1).unwrap_err();
    }

    #[test]
    fn messages_are_as_recorded() {
        let mut counts = counts();
        counts.reserve("a", "ana", 40).unwrap();
        let of_requester = counts.reserve("b", "ana", 25).unwrap_err();
        counts.reserve("c", "ben", 50).unwrap();
        let in_total = counts.reserve("d", "eve", 25).unwrap_err();
        let text: String = [of_requester, in_total]
            .map(|error| {
                let code = codes::install::TOO_MANY_OBJECTS;
                format!("error: {error} [{code}]\n")
            })
            .concat();
        assert_eq!(text, RECORDED, "copy the left side to messages.txt");
    }
}
