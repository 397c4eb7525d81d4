//! Cache of allowed dry runs, so that repeated attempts do not repeat these dry runs. Denied and
//! unknown results are not cached.

use std::time::Duration;

use bundle_core::json;
use bundle_core::object::ObjectId;
use bundle_core::review::Requester;
use moka::future::Cache;
use serde_json::Value;

use crate::budget::CACHE_ENTRY;
use crate::clients::cluster::ServiceAccount;
use crate::reconcile::apply::Target;

/// Time for which an allowed dry run is cached. A changed policy is effective at the latest after
/// this time. A check that uses cached dry runs sends all access reviews, so changed RBAC is
/// effective immediately.
const CACHE_TTL: Duration = Duration::from_secs(60);
/// Maximum number of cached results. One requester can install this number of objects at the
/// default memory limit.
const MAX_CACHED: usize = 8192;
/// Maximum memory of the cached results, in bytes.
pub(in crate::reconcile) const MAX_BYTES: usize =
    MAX_CACHED * (CACHE_ENTRY + size_of::<DryRunKey>());

/// A hash that identifies a dry run. The hash covers the requester, the class, the object and the
/// values. For an existing object, the hash also covers the uid and the resourceVersion. If the dry
/// run of the installer was compared, the hash also covers the installer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::reconcile) struct DryRunKey([u8; 32]);

impl DryRunKey {
    /// Returns the key of a dry run. `compared_with` is the installer if the dry runs of requester
    /// and installer were compared.
    ///
    /// `version` is the resourceVersion in the apply request. If `version` is set, the apply
    /// changes only this version of the object.
    ///
    /// Returns `None` if the dry run must not be cached. This applies to existing objects without
    /// `version`, and to kinds whose dry-run result depends on other objects in the cluster.
    pub(in crate::reconcile) fn of(
        requester: &Requester,
        class: &str,
        id: &ObjectId,
        value: &Value,
        (target, version): (&Target, Option<&str>),
        compared_with: Option<&ServiceAccount>,
    ) -> Option<Self> {
        if matches!(
            id.group.as_str(),
            "rbac.authorization.k8s.io" | "admissionregistration.k8s.io" | "core.rukpak.io"
        ) {
            return None;
        }
        let changed = match (target, version) {
            (Target::Uid(uid), Some(version)) => Some([uid.as_str(), version]),
            // Without a resourceVersion, the result depends on the current values of the object.
            (Target::Uid(_), None) => return None,
            (Target::Absent, _) => None,
        };
        let compared_with = compared_with.map(ServiceAccount::user_name);
        let inputs = (requester, class, id, value, changed, compared_with);
        Some(Self(json::sha256(&inputs)))
    }
}

/// The cached dry runs that the API server allowed.
pub(in crate::reconcile) struct AllowedDryRuns(Cache<DryRunKey, ()>);

impl Default for AllowedDryRuns {
    fn default() -> Self {
        let cache = Cache::builder()
            .max_capacity(MAX_CACHED as u64)
            .time_to_live(CACHE_TTL)
            .build();
        Self(cache)
    }
}

impl AllowedDryRuns {
    pub(in crate::reconcile) async fn contains(&self, key: Option<DryRunKey>) -> bool {
        match key {
            Some(key) => self.0.get(&key).await.is_some(),
            None => false,
        }
    }

    pub(in crate::reconcile) async fn insert(&self, key: Option<DryRunKey>) {
        if let Some(key) = key {
            self.0.insert(key, ()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(group: &str) -> ObjectId {
        ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: "Thing".to_owned(),
            namespace: Some("a".to_owned()),
            name: "b".to_owned(),
        }
    }

    #[tokio::test]
    async fn cached_dry_run_is_scoped_to_requester_class_object_and_operation() {
        let ana = Requester {
            user: "ana".to_owned(),
            groups: vec!["dev".to_owned()],
            ..Requester::default()
        };
        let other_group = Requester {
            groups: Vec::new(),
            ..ana.clone()
        };
        let scoped = Requester {
            extra: [("scopes".to_owned(), vec!["read".to_owned()])].into(),
            ..ana.clone()
        };
        let (core, value) = (id(""), json!({"data": {"a": "b"}}));
        let key = |who: &Requester, class: &str, value: &Value, target: &Target| {
            DryRunKey::of(who, class, &core, value, (target, Some("7")), None)
        };
        let absent = &Target::Absent;
        let (one, two) = (Target::Uid("1".to_owned()), Target::Uid("2".to_owned()));
        let memory = AllowedDryRuns::default();
        memory.insert(key(&ana, "plain", &value, absent)).await;
        assert!(memory.contains(key(&ana, "plain", &value, absent)).await);
        for other in [
            key(&other_group, "plain", &value, absent),
            key(&scoped, "plain", &value, absent),
            key(&ana, "other", &value, absent),
            key(&ana, "plain", &json!({}), absent),
            key(&ana, "plain", &value, &one),
        ] {
            assert!(!memory.contains(other).await);
        }
        memory.insert(key(&ana, "plain", &value, &one)).await;
        assert!(memory.contains(key(&ana, "plain", &value, &one)).await);
        assert!(!memory.contains(key(&ana, "plain", &value, &two)).await);
        let role = DryRunKey::of(
            &ana,
            "plain",
            &id("rbac.authorization.k8s.io"),
            &value,
            (absent, None),
            None,
        );
        assert_eq!(role, None);
        let of = |version| DryRunKey::of(&ana, "plain", &core, &value, (&one, version), None);
        assert!(!memory.contains(of(Some("8"))).await);
        assert_eq!(of(None), None);
    }
}
