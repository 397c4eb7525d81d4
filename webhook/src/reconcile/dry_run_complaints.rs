//! The failed dry runs of a content, as one error that names the objects.

use bundle_core::diagnostic::{Code, codes};
use bundle_core::rights::DryRunVerdict;

use super::apply::NotAllowed;
use super::items::Item;
use super::trouble::{self, Retry, Trouble};

/// How many objects a message names.
const NAMED: usize = 20;

/// The dry runs that were not allowed, by what the API server answered.
#[derive(Default)]
pub(super) struct DryRunComplaints {
    pub(super) refused: Vec<String>,
    pub(super) differs: Vec<String>,
    pub(super) unsupported: Vec<String>,
    pub(super) not_impersonated: Vec<String>,
    pub(super) unknown: Vec<String>,
    /// What the installer may not do.
    pub(super) installer: Vec<String>,
    pub(super) by_rbac: u64,
}

impl DryRunComplaints {
    /// Adds the result for one object.
    pub(super) fn add(&mut self, item: &Item, refusal: NotAllowed) {
        let told = |words: String| format!("{}: {words}", item.key);
        let verdict = match refusal {
            NotAllowed::Verdict(verdict) | NotAllowed::Conflict(verdict) => verdict,
            NotAllowed::Differs(_) => return self.differs.push(told(refusal.message())),
            NotAllowed::Installer(words) => return self.installer.push(told(words)),
            NotAllowed::Moved => return self.unknown.push(told(refusal.message())),
        };
        match verdict {
            DryRunVerdict::Allowed => {}
            DryRunVerdict::Refused { message, by_rbac } => {
                self.by_rbac += u64::from(by_rbac);
                self.refused.push(told(message));
            }
            DryRunVerdict::Unsupported(words) => self.unsupported.push(told(words)),
            DryRunVerdict::NotImpersonated(words) => self.not_impersonated.push(words),
            DryRunVerdict::Missing(words) | DryRunVerdict::Unknown(words) => {
                self.unknown.push(told(words));
            }
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            refused,
            differs,
            unsupported,
            not_impersonated,
            unknown,
            installer,
            by_rbac: _,
        } = self;
        [
            refused,
            differs,
            unsupported,
            not_impersonated,
            unknown,
            installer,
        ]
        .iter()
        .all(|list| list.is_empty())
    }

    /// Returns an error for the worst kind of answer: a refusal counts even if other objects could not be checked.
    pub(super) fn into_result(self, users: &str, reason: &'static str) -> Result<(), Trouble> {
        let kinds: [(Vec<String>, Code, String, Retry); 6] = [
            (
                self.refused,
                codes::install::REQUESTER_REFUSED,
                format!("the API server refuses content of {users}: "),
                Retry::Slowly,
            ),
            (
                self.differs,
                codes::install::REQUESTER_DIFFERS,
                format!("the API server would store other objects for {users}: "),
                Retry::Slowly,
            ),
            (
                self.unsupported,
                codes::install::DRY_RUN_UNSUPPORTED,
                format!("whether {users} may write the content cannot be checked by dry run: "),
                Retry::Slowly,
            ),
            (
                self.not_impersonated,
                codes::install::NOT_IMPERSONATED,
                format!("the pod may not send dry runs as {users}: "),
                Retry::Slowly,
            ),
            (
                self.installer,
                codes::install::APPLY_FAILED,
                String::new(),
                Retry::Slowly,
            ),
            (
                self.unknown,
                codes::install::RIGHTS_UNKNOWN,
                format!("whether {users} may write the content is not known yet: "),
                Retry::Soon,
            ),
        ];
        for (told, code, begin, retry) in kinds {
            if !told.is_empty() {
                let message = format!("{begin}{}", trouble::list(told, NAMED));
                return Err(Trouble::new(code, reason, message, retry));
            }
        }
        Ok(())
    }
}
