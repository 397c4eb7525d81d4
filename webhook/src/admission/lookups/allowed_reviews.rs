//! Cache of allowed access reviews. Each result is cached for one second, so that a burst of writes
//! by one user needs one request. Denied and unknown results are not cached.

use std::time::Duration;

use bundle_core::diagnostic::Finding;
use bundle_core::review::Requester;
use bundle_core::rights::AccessReview;
use moka::future::Cache;

/// Lifetime of an allowed result. The authorizer of the API server also sees RBAC changes with a
/// delay.
const ALLOWED_TTL: Duration = Duration::from_secs(1);

/// The cached results of access reviews.
pub(in crate::admission) struct AllowedReviews {
    confirmed: Cache<(Requester, AccessReview), ()>,
}

/// A denied or unknown result. It is not cached.
#[derive(Debug, Clone)]
enum UncachedReview {
    Denied,
    Unknown(Finding),
}

impl Default for AllowedReviews {
    fn default() -> Self {
        Self {
            confirmed: Cache::builder()
                .max_capacity(1024)
                .time_to_live(ALLOWED_TTL)
                .build(),
        }
    }
}

impl AllowedReviews {
    /// Returns true if `requester` has the permission of `question`. `asking` sends the access
    /// review if no result is cached. Concurrent calls with the same question share one request.
    pub(in crate::admission) async fn ask(
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
        let key = (requester.clone(), question.clone());
        match self.confirmed.try_get_with(key, asked).await {
            Ok(()) => Ok(true),
            Err(unconfirmed) => match &*unconfirmed {
                UncachedReview::Denied => Ok(false),
                UncachedReview::Unknown(why) => Err(why.clone()),
            },
        }
    }
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
    }
}
