//! Rights that the API server has just confirmed, for a second: a burst of writes by one person asks once.
//! Not here: asking (live). What was denied, or could not be told, is never remembered.

use std::time::Duration;

use bundle_core::diagnostic::Finding;
use moka::future::Cache;

use super::lookups::Right;
use super::review::UserInfo;

/// RBAC reaches the authorizer of the API server with a delay too; this adds no more than a person would notice.
const CONFIRMED: Duration = Duration::from_secs(1);

/// What was confirmed.
pub(super) struct Permits {
    confirmed: Cache<(UserInfo, Right), ()>,
}

/// Why nothing was confirmed.
#[derive(Debug, Clone)]
enum Unconfirmed {
    Denied,
    Unknown(Finding),
}

impl Default for Permits {
    fn default() -> Self {
        Self {
            confirmed: Cache::builder()
                .max_capacity(1024)
                .time_to_live(CONFIRMED)
                .build(),
        }
    }
}

impl Permits {
    /// Whether `user` has `right`, asking `question` if that was not confirmed just now. Those who ask the same at the same time share one answer.
    pub(super) async fn ask(
        &self,
        user: &UserInfo,
        right: &Right,
        question: impl Future<Output = Result<bool, Finding>>,
    ) -> Result<bool, Finding> {
        let asked = async {
            match question.await {
                Ok(true) => Ok(()),
                Ok(false) => Err(Unconfirmed::Denied),
                Err(why) => Err(Unconfirmed::Unknown(why)),
            }
        };
        let key = (user.clone(), right.clone());
        match self.confirmed.try_get_with(key, asked).await {
            Ok(()) => Ok(true),
            Err(unconfirmed) => match &*unconfirmed {
                Unconfirmed::Denied => Ok(false),
                Unconfirmed::Unknown(why) => Err(why.clone()),
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
    async fn only_a_yes_is_remembered_and_only_for_that_question() {
        let permits = Permits::default();
        let right = |name: &str| Right {
            verb: "use",
            group: "core.rukpak.io",
            resource: "provisionerclasses",
            namespace: "bundle-system".to_owned(),
            name: name.to_owned(),
        };
        let user = |name: &str| UserInfo {
            username: name.to_owned(),
            ..UserInfo::default()
        };
        let asked = Cell::new(0);
        let ask = async |who: &str, name: &str, answer: Result<bool, Finding>| {
            permits
                .ask(&user(who), &right(name), async {
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
