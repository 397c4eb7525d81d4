//! Failed attempts to unpack Bundles. `bundle_core::plan::bundle` decides when the next attempt
//! starts.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bundle_core::plan::bundle::{FailedUnpack, NextUnpack};
use bundle_core::reference::Digest;
use bundle_core::review::{Class, Requester};
use kube::api::DynamicObject;

/// Maximum number of recorded attempts. When this number is reached, a new record replaces the
/// oldest record. The only effect is that one failed attempt is repeated earlier.
const MAX_RECORDS: usize = 10_000;

/// The inputs of an attempt to unpack a Bundle. Labels and annotations, such as the annotation with
/// the proof, are not inputs, because every user who can write the metadata can change them.
#[derive(Debug, Hash)]
pub(in crate::reconcile) struct UnpackInputs<'a> {
    /// Digest of the normalized spec of the Bundle.
    pub(in crate::reconcile) spec: &'a Digest,
    pub(in crate::reconcile) requester: &'a Requester,
    pub(in crate::reconcile) class: &'a Class,
}

/// The last failed attempt of each Bundle, by uid of the Bundle.
#[derive(Debug)]
pub(in crate::reconcile) struct FailedUnpacks {
    start: Instant,
    hasher: RandomState,
    failed: Mutex<HashMap<String, FailedUnpack>>,
}

impl Default for FailedUnpacks {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            hasher: RandomState::new(),
            failed: Mutex::default(),
        }
    }
}

impl FailedUnpacks {
    /// Returns the hash of `inputs`. In another process, the hash of the same inputs differs.
    pub(in crate::reconcile) fn hash(&self, inputs: &UnpackInputs<'_>) -> u64 {
        self.hasher.hash_one(inputs)
    }

    /// Returns the time of the next attempt. `inputs` is the hash of the inputs of this attempt.
    pub(in crate::reconcile) fn next(&self, bundle: &DynamicObject, inputs: u64) -> NextUnpack {
        let failed = self.failed();
        let failed = failed.get(uid(bundle));
        let now = self.start.elapsed();
        failed.map_or(NextUnpack::Now, |failed| {
            failed.next(inputs, self.metadata(bundle), now)
        })
    }

    /// Records a failed attempt. `wait` is the delay of the next attempt. `None` means that only a
    /// change starts the next attempt.
    pub(in crate::reconcile) fn record(
        &self,
        bundle: &DynamicObject,
        inputs: u64,
        wait: Option<Duration>,
    ) {
        let failed_at = self.start.elapsed();
        let record = FailedUnpack {
            inputs,
            metadata: self.metadata(bundle),
            failed_at,
            due: wait.map(|wait| failed_at.saturating_add(wait)),
        };
        let mut failed = self.failed();
        if failed.len() >= MAX_RECORDS && !failed.contains_key(uid(bundle)) {
            remove_oldest(&mut failed);
        }
        failed.insert(uid(bundle).to_owned(), record);
    }

    /// Removes the record of the Bundle with this uid. After that, the next attempt can start
    /// immediately.
    pub(in crate::reconcile) fn remove(&self, uid: &str) {
        self.failed().remove(uid);
    }

    fn metadata(&self, bundle: &DynamicObject) -> u64 {
        let metadata = &bundle.metadata;
        self.hasher
            .hash_one((&metadata.labels, &metadata.annotations))
    }

    fn failed(&self) -> MutexGuard<'_, HashMap<String, FailedUnpack>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the record of the earliest failure.
fn remove_oldest(failed: &mut HashMap<String, FailedUnpack>) {
    let oldest = failed.iter().min_by_key(|(_, record)| record.failed_at);
    if let Some(uid) = oldest.map(|(uid, _)| uid.clone()) {
        failed.remove(&uid);
    }
}

fn uid(bundle: &DynamicObject) -> &str {
    bundle.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bundle_api::{Bundle, names};
    use kube::ResourceExt as _;
    use kube::core::discovery::ApiResource;
    use serde_json::json;

    use super::*;

    fn bundle(uid: &str) -> DynamicObject {
        let mut bundle = DynamicObject::new("web", &ApiResource::erase::<Bundle>(&()));
        bundle.metadata.uid = Some(uid.to_owned());
        bundle
    }

    #[test]
    fn metadata_and_status_keep_the_delay_and_another_bundle_has_none() {
        let failed = FailedUnpacks::default();
        let mut web = bundle("u-1");
        failed.record(&web, 7, Some(Duration::from_hours(1)));
        let is_later = |bundle: &DynamicObject, inputs| {
            matches!(failed.next(bundle, inputs), NextUnpack::Later(Some(_)))
        };
        assert!(is_later(&web, 7));
        web.metadata.resource_version = Some("8".to_owned());
        web.metadata.generation = Some(8);
        web.data = json!({"status": {"phase": "Failing"}});
        assert!(is_later(&web, 7));
        let proof = names::ANNOTATION_PROOF.to_owned();
        web.annotations_mut().insert(proof, "b".to_owned());
        let NextUnpack::Later(Some(wait)) = failed.next(&web, 7) else {
            panic!("the attempt starts without a delay");
        };
        assert!(wait <= Duration::from_secs(10));
        assert_eq!(failed.next(&web, 8), NextUnpack::Now);
        assert_eq!(failed.next(&bundle("u-2"), 7), NextUnpack::Now);
        failed.remove("u-1");
        assert_eq!(failed.next(&web, 7), NextUnpack::Now);
    }

    #[test]
    fn failures_of_many_bundles_do_not_remove_the_delays_of_others() {
        let failed = FailedUnpacks::default();
        let wait = Some(Duration::from_hours(1));
        for number in 0..=MAX_RECORDS {
            failed.record(&bundle(&number.to_string()), 7, wait);
        }
        let newest = bundle(&MAX_RECORDS.to_string());
        failed.record(&newest, 7, wait);
        assert_eq!(failed.failed().len(), MAX_RECORDS);
        assert_eq!(failed.next(&bundle("0"), 7), NextUnpack::Now);
        assert_ne!(failed.next(&bundle("1"), 7), NextUnpack::Now);
    }

    #[test]
    fn each_input_changes_the_hash() {
        let failed = FailedUnpacks::default();
        let class = |signatures: &str| {
            let spec = json!({
                "provisioner": "core.rukpak.io/plain", "signatures": signatures,
            });
            Class::parse("plain", &spec).unwrap()
        };
        let requester = |user: &str| Requester {
            user: user.to_owned(),
            ..Requester::default()
        };
        let (specs, users) = ([b"a", b"b"].map(|text| Digest::of(text)), ["ana", "ben"]);
        let (classes, users) = (["IfPolicy", "Required"].map(class), users.map(requester));
        let hash = |spec: usize, user: usize, class: usize| {
            failed.hash(&UnpackInputs {
                spec: &specs[spec],
                requester: &users[user],
                class: &classes[class],
            })
        };
        let first = hash(0, 0, 0);
        assert_eq!(hash(0, 0, 0), first);
        for other in [hash(1, 0, 0), hash(0, 1, 0), hash(0, 0, 1)] {
            assert_ne!(other, first);
        }
    }
}
