//! Checks the rights of the requesters before every change and on a slow cycle.
//! The questions themselves are in `authorize` and `requester_check`.

use std::time::{Duration, Instant};

use bundle_api::names::{self, condition, reason};
use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::State;
use bundle_core::review::Requester;
use bundle_core::review::class::{Authorization, RequesterCheck as Check};
use bundle_core::rights::Question;

use super::authorize;
use super::deployment::Turn;
use super::items::Item;
use super::place::Placing;
use super::remove::{Kept, Present};
use super::requester_check::{self, RequesterCheck, Subject};
use super::trouble::{Retry, Trouble};

/// How many objects are compared where the access reviews refuse a content.
const COMPARED: usize = 20;
/// How soon the cycle asks again after it could not find out.
const UNKNOWN_AGAIN: Duration = Duration::from_secs(30);

impl<'a> Turn<'a> {
    /// The requesters whose rights the content needs.
    fn content_requesters(&self) -> Vec<Requester> {
        self.parts.content().into_iter().cloned().collect()
    }

    /// Checks whether the requesters may install `items`. Returns the check that the phases continue; `None` where the class asks for none.
    /// `first` says that this content was not installed before.
    pub(super) async fn authorize(
        &mut self,
        placing: &Placing<'_>,
        items: &[Item],
        first: bool,
    ) -> Result<Option<RequesterCheck<'a>>, Trouble> {
        let asked = self.ask(placing, items, true).await;
        let asked = asked.map_err(|trouble| Trouble {
            reason: self.install_reason(),
            ..trouble
        });
        let check = if first {
            asked
        } else {
            asked.map_err(withdrawn)
        }?;
        self.set_authorized();
        Ok(check)
    }

    /// Checks whether the requesters may write `items`, installed objects that have drifted.
    pub(super) async fn authorize_repair(
        &self,
        placing: &Placing<'_>,
        items: &[Item],
    ) -> Result<Option<RequesterCheck<'a>>, Trouble> {
        self.ask(placing, items, false)
            .await
            .map_err(withdrawn_from_installed)
    }

    /// Runs the slow cycle: repeats the access reviews if they are due, and returns the time until the next run. An unknown result changes nothing, since
    /// every change is preceded by a check of its own.
    pub(super) async fn rights_cycle(
        &mut self,
        placing: &Placing<'_>,
    ) -> Result<Duration, Trouble> {
        let interval = self.room.shared.settings.rights_check_interval;
        let uid = self.object.metadata.uid.clone().unwrap_or_default();
        let schedule = &self.room.rights_schedule;
        let wait = schedule.wait(&uid, Instant::now(), interval);
        if !wait.is_zero() && self.said.is_true(condition::AUTHORIZED) {
            return Ok(wait);
        }
        match self
            .ask_again(placing)
            .await
            .map_err(withdrawn_from_installed)
        {
            Ok(()) => {
                schedule.asked(&uid, Instant::now(), interval);
                self.set_authorized();
                Ok(super::spread(interval))
            }
            Err(trouble) if trouble.code == codes::install::RIGHTS_WITHDRAWN => Err(trouble),
            Err(trouble) => {
                tracing::warn!(
                    deployment = self.name,
                    why = trouble.message,
                    "the rights of the requesters cannot be asked again now"
                );
                Ok(super::spread(UNKNOWN_AGAIN))
            }
        }
    }

    async fn ask_again(&mut self, placing: &Placing<'_>) -> Result<(), Trouble> {
        self.ask_terms(placing).await?;
        let items = self.items(placing).await?;
        self.ask_reviews(placing, &items).await
    }

    /// Runs all checks, the cheapest first.
    async fn ask(
        &self,
        placing: &Placing<'_>,
        items: &[Item],
        remembers: bool,
    ) -> Result<Option<RequesterCheck<'a>>, Trouble> {
        self.ask_terms(placing).await?;
        if self.class.authorization == Authorization::Class {
            return Ok(None);
        }
        let mut check = match self.class.requester_check {
            Check::AccessReview => None,
            Check::DryRun => {
                let requesters = self.content_requesters();
                let subject = Subject {
                    requesters: &requesters,
                    class: &self.class.name,
                    reason: placing.reason,
                    installer: placing.client,
                    ignore: &self.spec.drift_ignore,
                    remembers,
                };
                let present = self.room.watches.seen_of(&self.name);
                Some(RequesterCheck::new(self.room, &subject, &present)?)
            }
        };
        let reviewed = self.ask_reviews(placing, items).await;
        if let (Err(trouble), Some(check)) = (&reviewed, &check)
            && trouble.code == codes::install::NOT_AUTHORIZED
        {
            self.compare(check, placing, items).await;
        }
        reviewed?;
        if let Some(check) = &mut check {
            check.before_all(items).await?;
        }
        Ok(check)
    }

    /// Checks verb `use` on the classes and verb `impersonate` on `spec.serviceAccount`.
    async fn ask_terms(&self, placing: &Placing<'_>) -> Result<(), Trouble> {
        let system = self.room.shared.settings.namespace.as_str();
        let on_class = |name: &str| {
            Question::resource(
                names::verb::USE,
                names::GROUP,
                &self.room.classes.plural,
                Some(system),
                Some(name),
            )
        };
        let of_bundle = &self.spec.template.bundle.class;
        // Of everybody who asked for a part: the terms of others are not theirs to use.
        let requesters = self.content_requesters();
        let mut questions: Vec<_> = requesters
            .iter()
            .map(|who| (who, on_class(&self.class.name)))
            .collect();
        if of_bundle.as_str() != self.class.name {
            questions.extend(requesters.iter().map(|who| (who, on_class(of_bundle))));
        }
        if let Some(account) = &self.spec.service_account {
            let question = Question::resource(
                "impersonate",
                "",
                "serviceaccounts",
                Some(&account.namespace),
                Some(&account.name),
            );
            questions.extend(requesters.iter().map(|who| (who, question.clone())));
        }
        for (requester, question) in questions {
            if !authorize::may(&self.room.own, requester, &question).await? {
                let rules = authorize::rules(std::slice::from_ref(&question));
                let message = format!("{} may not do this any more: {rules}", requester.user);
                return Err(Trouble::new(
                    codes::install::RIGHTS_WITHDRAWN,
                    placing.reason,
                    message,
                    Retry::Slowly,
                ));
            }
        }
        Ok(())
    }

    /// Runs the access reviews for the content, which list all missing rights at once.
    async fn ask_reviews(&self, placing: &Placing<'_>, items: &[Item]) -> Result<(), Trouble> {
        if self.class.authorization == Authorization::Class {
            return Ok(());
        }
        let installer = (placing.account, placing.client);
        for requester in &self.content_requesters() {
            authorize::authorize(&self.room.own, installer, requester, items).await?;
        }
        Ok(())
    }

    /// Logs and counts objects that the access reviews refuse and the dry run allows. They stay refused.
    async fn compare(&self, check: &RequesterCheck<'_>, placing: &Placing<'_>, items: &[Item]) {
        let installer = (placing.account, placing.client);
        let mut refused = Vec::new();
        for item in items.iter().take(COMPARED) {
            for requester in &self.content_requesters() {
                // What cannot be asked now is compared another time.
                let asked = authorize::patch_is_refused(&self.room.own, requester, item).await;
                if asked.unwrap_or(false) {
                    refused.push(item);
                }
            }
        }
        let allowed = check.allowed(refused).await;
        if allowed > 0 {
            tracing::warn!(
                deployment = self.name,
                installer = %installer.0,
                objects = allowed,
                "the access reviews refuse what the API server allows in the dry run"
            );
            let metrics = &self.room.shared.metrics;
            metrics.authorization_disagreed(allowed);
        }
    }

    /// Returns those of `objects` that a requester of the content may not delete, with the reason.
    pub(super) async fn undeletable(
        &self,
        objects: &[Present],
        reason: &'static str,
    ) -> Result<Vec<Kept>, Trouble> {
        let mut kept: Vec<Kept> = Vec::new();
        if self.class.authorization == Authorization::Class {
            return Ok(kept);
        }
        let requesters = self.content_requesters();
        for requester in &requesters {
            let refused = authorize::undeletable(&self.room.own, requester, objects).await?;
            kept.extend(refused.into_iter().map(|id| Kept {
                why: format!("{} may not delete it", requester.user),
                id,
            }));
        }
        if self.class.requester_check == Check::DryRun {
            let rest: Vec<&Present> = objects
                .iter()
                .filter(|present| kept.iter().all(|kept| kept.id != present.id))
                .collect();
            let refused =
                requester_check::undeletable(self.room, &requesters, &rest, reason).await?;
            kept.extend(refused);
        }
        Ok(kept)
    }

    fn set_authorized(&mut self) {
        let (found, message) = match self.class.authorization {
            Authorization::Class => (
                "Delegated",
                format!("class {} decides for whoever may use it", self.class.name),
            ),
            Authorization::Requester => {
                let users: Vec<String> = self
                    .content_requesters()
                    .into_iter()
                    .map(|requester| requester.user)
                    .collect();
                (
                    "RequesterMay",
                    format!("{} may do all that the content does", users.join(", ")),
                )
            }
        };
        self.said
            .set(condition::AUTHORIZED, State::True, found, &message);
    }

    /// Whether the condition says that rights of the requesters are gone.
    pub(super) fn rights_are_withdrawn(&self) -> bool {
        self.said
            .get(condition::AUTHORIZED)
            .is_some_and(|found| found.reason == reason::RIGHTS_WITHDRAWN)
    }

    /// Sets the condition `Authorized` if `trouble` is about rights.
    pub(super) fn set_rights_condition(&mut self, trouble: &Trouble) {
        let about_rights = [
            (
                codes::install::NOT_AUTHORIZED,
                State::False,
                "RightsMissing",
            ),
            (
                codes::install::RIGHTS_WITHDRAWN,
                State::False,
                reason::RIGHTS_WITHDRAWN,
            ),
            (
                codes::install::REQUESTER_REFUSED,
                State::False,
                "RequesterRefused",
            ),
            (
                codes::install::DRY_RUN_UNSUPPORTED,
                State::False,
                "DryRunUnsupported",
            ),
            (
                codes::install::NOT_IMPERSONATED,
                State::Unknown,
                "RequesterNotImpersonated",
            ),
            (
                codes::install::RIGHTS_UNKNOWN,
                State::Unknown,
                "RightsUnknown",
            ),
        ];
        for (code, state, found) in about_rights {
            if code == trouble.code {
                self.said
                    .set(condition::AUTHORIZED, state, found, &trouble.message);
            }
        }
    }
}

/// Turns a refusal of content that was allowed before into withdrawn rights.
fn withdrawn(trouble: Trouble) -> Trouble {
    let refused = [
        codes::install::NOT_AUTHORIZED,
        codes::install::REQUESTER_REFUSED,
    ];
    if !refused.contains(&trouble.code) {
        return trouble;
    }
    Trouble {
        code: codes::install::RIGHTS_WITHDRAWN,
        ..trouble
    }
}

/// The same for installed objects, with reasons that leave the condition `Installed` alone.
fn withdrawn_from_installed(trouble: Trouble) -> Trouble {
    let trouble = withdrawn(trouble);
    if trouble.code != codes::install::RIGHTS_WITHDRAWN {
        return Trouble {
            reason: reason::RECONCILE_FAILED,
            ..trouble
        };
    }
    Trouble {
        reason: reason::RIGHTS_WITHDRAWN,
        message: format!(
            "nothing is changed any more, and what is installed stays: {}",
            trouble.message
        ),
        ..trouble
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_become_withdrawn_rights() {
        let with = |code| Trouble::new(code, reason::INSTALL_FAILED, "why", Retry::Slowly);
        let found = withdrawn_from_installed(with(codes::install::REQUESTER_REFUSED));
        assert_eq!(
            (found.code, found.reason),
            (codes::install::RIGHTS_WITHDRAWN, reason::RIGHTS_WITHDRAWN)
        );
        let unknown = with(codes::install::RIGHTS_UNKNOWN);
        assert_eq!(withdrawn_from_installed(unknown.clone()).code, unknown.code);
    }
}
