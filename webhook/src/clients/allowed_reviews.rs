//! Cache of allowed access reviews, for admission and for first installations. Each result is cached
//! for one second, so that a burst of writes by one user needs one request. Denied and unknown
//! results are not cached.

use std::time::Duration;

use bundle_core::diagnostic::Finding;
use bundle_core::json;
use bundle_core::review::Requester;
use bundle_core::rights::AccessReview;
use moka::future::Cache;

use crate::budget::CACHE_ENTRY;

/// Time for which an allowed result is cached. RBAC changes also reach the authorizer of the API
/// server with a delay.
const ALLOWED_TTL: Duration = Duration::from_secs(1);
/// Maximum number of cached results.
const MAX_RESULTS: usize = 1024;
/// Maximum memory of all cached results, in bytes.
pub(crate) const MAX_BYTES: usize = MAX_RESULTS * (CACHE_ENTRY + size_of::<AllowedKey>());

/// SHA-256 hash of a requester and an access review. The cache contains only this hash, because a
/// requester can have groups and extra fields of many KiB.
type AllowedKey = [u8; 32];

/// Cache of the allowed access reviews.
pub(crate) struct AllowedReviews {
    confirmed: Cache<AllowedKey, ()>,
}

/// A denied or unknown result, which is not cached.
#[derive(Debug, Clone)]
enum UncachedReview {
    Denied,
    Unknown(Finding),
}

impl Default for AllowedReviews {
    fn default() -> Self {
        Self {
            confirmed: Cache::builder()
                .max_capacity(MAX_RESULTS as u64)
                .time_to_live(ALLOWED_TTL)
                .build(),
        }
    }
}

impl AllowedReviews {
    /// Returns true if `requester` has the permission in `question`. If no result is cached,
    /// `asking` sends the access review. Concurrent calls for the same requester and question share
    /// one request.
    pub(crate) async fn ask(
        &self,
        requester: &Requester,
        question: &AccessReview,
        asking: impl Future<Output = Result<bool, Finding>>,
    ) -> Result<bool, Finding> {
        let asked = async {
            match asking.await {
                Ok(true) => Ok(()),
                Ok(false) => Err(UncachedReview::Denied),
                Err(why) => Err(UncachedReview::Unknown(why)),
            }
        };
        match self
            .confirmed
            .try_get_with(key(requester, question), asked)
            .await
        {
            Ok(()) => Ok(true),
            Err(unconfirmed) => match &*unconfirmed {
                UncachedReview::Denied => Ok(false),
                UncachedReview::Unknown(why) => Err(why.clone()),
            },
        }
    }

    /// Returns true if an allowed result of this access review is cached.
    pub(crate) fn contains(&self, requester: &Requester, question: &AccessReview) -> bool {
        self.confirmed.contains_key(&key(requester, question))
    }

    /// Caches the result of an access review that the API server has allowed.
    pub(crate) async fn insert(&self, requester: &Requester, question: &AccessReview) {
        self.confirmed.insert(key(requester, question), ()).await;
    }
}

/// Returns the cache key of an access review. The key covers `question` and all fields of the
/// requester that authorizers read.
fn key(requester: &Requester, question: &AccessReview) -> AllowedKey {
    json::sha256(&(requester, question))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bundle_core::diagnostic::codes;

    use super::*;

    #[tokio::test]
    async fn caches_only_allowed_results_by_requester_and_question() {
        let permits = AllowedReviews::default();
        let question = |name: &str| {
            let resource = "provisionerclasses";
            AccessReview::resource(
                "use",
                "core.rukpak.io",
                resource,
                Some("bundle-system"),
                Some(name),
            )
        };
        let requester = |name: &str| Requester {
            user: name.to_owned(),
            ..Requester::default()
        };
        let asked = Cell::new(0);
        let ask = async |who: &str, name: &str, answer: Result<bool, Finding>| {
            permits
                .ask(&requester(who), &question(name), async {
                    asked.set(asked.get() + 1);
                    answer
                })
                .await
        };
        let away = Finding::error(codes::cluster::UNREACHABLE, "no answer");
        for answer in [Ok(false), Err(away), Ok(true)] {
            assert_eq!(ask("ana", "plain", answer.clone()).await, answer);
        }
        assert_eq!(asked.get(), 3);
        assert_eq!(ask("ana", "plain", Ok(false)).await, Ok(true));
        assert_eq!(asked.get(), 3);
        assert_eq!(ask("ben", "plain", Ok(false)).await, Ok(false));
        assert_eq!(ask("ana", "other", Ok(false)).await, Ok(false));
        assert_eq!(asked.get(), 5);
        assert!(permits.contains(&requester("ana"), &question("plain")));
        assert!(!permits.contains(&requester("ana"), &question("other")));
        permits.insert(&requester("ana"), &question("other")).await;
        assert!(permits.contains(&requester("ana"), &question("other")));
        assert!(!permits.contains(&requester("ben"), &question("other")));
    }

    #[test]
    fn key_differs_for_each_field_of_requester_and_question() {
        let ana = Requester {
            user: "ana".to_owned(),
            ..Requester::default()
        };
        let question = AccessReview::resource("use", "a", "b", None, Some("c"));
        let requesters = [
            Requester {
                uid: "1".to_owned(),
                ..ana.clone()
            },
            Requester {
                groups: vec!["a".to_owned()],
                ..ana.clone()
            },
            Requester {
                extra: [("a".to_owned(), Vec::new())].into(),
                ..ana.clone()
            },
        ];
        let questions = [
            AccessReview::resource("use", "a", "b", Some("c"), None),
            AccessReview::resource("use", "a", "b", None, None),
            AccessReview::Path {
                verb: "use".to_owned(),
                path: "/a".to_owned(),
            },
        ];
        let others = requesters.iter().map(|other| key(other, &question));
        let others = others.chain(questions.iter().map(|other| key(&ana, other)));
        let mut keys: Vec<_> = others.chain([key(&ana, &question)]).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 7);
    }
}
