//! ServiceAccount for a removal, and the permissions that the removal may use.

use crate::plan::consent::ActingAccount;
use crate::service_account::ServiceAccount;

/// ServiceAccount for a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemovingAccount {
    /// The spec of a sealed object names the ServiceAccount. The requesters of the content need
    /// permission to impersonate it.
    OfSpec(ServiceAccount),
    /// The ServiceAccount is recorded as the installer, or the class names it. Contains the
    /// permission of the requesters to use it.
    Known(ServiceAccount, ActingAccount),
}

/// Returns the ServiceAccount for a removal: the ServiceAccount of the spec, else the recorded
/// installer, else the ServiceAccount of the class. Returns `None` if none of these ServiceAccounts
/// is set.
pub fn removing_account(
    of_spec: Option<ServiceAccount>,
    recorded: Option<ServiceAccount>,
    of_class: Option<ServiceAccount>,
) -> Option<RemovingAccount> {
    if let Some(of_spec) = of_spec {
        return Some(RemovingAccount::OfSpec(of_spec));
    }
    let acting = if recorded.is_none() || recorded == of_class {
        ActingAccount::Granted
    } else {
        ActingAccount::Former
    };
    let account = recorded.or(of_class)?;
    Some(RemovingAccount::Known(account, acting))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{KubeName, NameKind};

    fn named(name: &str) -> ServiceAccount {
        let parse = |kind, text: &str| KubeName::parse(kind, text).unwrap();
        ServiceAccount {
            namespace: parse(NameKind::Label, "system"),
            name: parse(NameKind::Subdomain, name),
        }
    }

    #[test]
    fn account_of_the_spec_precedes_the_recorded_one_and_that_of_the_class() {
        use ActingAccount::{Former, Granted};
        let account = |name| Some(named(name));
        let spec = || Some(RemovingAccount::OfSpec(named("spec")));
        let known = |name, acting| Some(RemovingAccount::Known(named(name), acting));
        for (of_spec, recorded, of_class, expected) in [
            (None, None, None, None),
            (account("spec"), None, None, spec()),
            (account("spec"), account("old"), account("class"), spec()),
            (None, None, account("class"), known("class", Granted)),
            (None, account("old"), None, known("old", Former)),
            (None, account("old"), account("class"), known("old", Former)),
            (
                None,
                account("class"),
                account("class"),
                known("class", Granted),
            ),
        ] {
            assert_eq!(removing_account(of_spec, recorded, of_class), expected);
        }
    }
}
