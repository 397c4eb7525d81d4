//! The faults of an existing registration. `bundle_core::registration` finds most faults. This
//! module adds the faults of the address, the token and the certificate authority. The tables in
//! `bundle_core::registration` correspond to webhook/deploy/admission. A test compares the tables
//! with these files. Webhooks for objects of other API groups are not checked, because no stamp
//! depends on them.

use std::fmt;

use bundle_core::registration::{MUTATING, VALIDATING, inspect};
use serde_json::Value;

use super::identity::Identity;
use super::{Registration, address};

/// A fault of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    message: String,
    /// True if the webhook repairs the fault. The webhook repairs a wrong token or certificate
    /// authority, because another replica may have renewed the token or the certificate authority.
    pub(super) is_repaired: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Returns all faults that could let the API server skip the review of a write. The list is empty
/// for an intact registration. `object` is `None` if the registration does not exist.
///
/// `timeoutSeconds`, `reinvocationPolicy`, labels and annotations are not faults. Administrators
/// may change them, because with every value the API server requests a review for each write.
pub(crate) fn faults(
    registration: Registration,
    name: &str,
    object: Option<&Value>,
    identity: &Identity<'_>,
) -> Vec<Fault> {
    let Some(object) = object else {
        return vec![Fault {
            message: format!("{registration} {name} does not exist"),
            is_repaired: false,
        }];
    };
    let expected = match registration {
        Registration::Validating => VALIDATING,
        Registration::Mutating => MUTATING,
    };
    let mut faults = Vec::new();
    for webhook in inspect(expected, object) {
        let mut fault = |problem: &str, is_repaired: bool| {
            let webhook = webhook.name;
            faults.push(Fault {
                message: format!("{registration} {name}: {webhook}: {problem}"),
                is_repaired,
            });
        };
        for problem in &webhook.faults {
            fault(problem, false);
        }
        let Some(found) = webhook.found else {
            continue;
        };
        let client = &found["clientConfig"];
        if !identity.is_called_by(client) {
            let (namespace, service) = (identity.namespace, identity.service);
            fault(
                &format!("clientConfig names neither Service {namespace}/{service} nor a url"),
                false,
            );
            continue;
        }
        let token = address::token_of(client, registration.action());
        if !token.is_some_and(|token| identity.has_token(token)) {
            fault("the path does not contain the current token", true);
        }
        if !identity.trusts(&client["caBundle"]) {
            fault("caBundle is not the authority of this installation", true);
        }
    }
    faults
}

#[cfg(test)]
mod tests;
