//! The required content of a registration, and the faults of an existing one. The table corresponds
//! to webhook/deploy/admission; a test compares them.

use std::fmt;

use bundle_api::names::{GROUP, VERSION};
use serde_json::Value;

use super::identity::Identity;
use super::{Registration, address};

/// A fault of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    message: String,
    /// True if the webhook repairs it: token and authority, which other replicas can have renewed.
    pub(super) is_repaired: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

struct ExpectedWebhook {
    name: &'static str,
    resource: &'static str,
    operations: &'static [&'static str],
}

const fn expected(
    name: &'static str,
    resource: &'static str,
    operations: &'static [&'static str],
) -> ExpectedWebhook {
    ExpectedWebhook {
        name,
        resource,
        operations,
    }
}

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const WRITES_AND_DELETE: &[&str] = &["CREATE", "UPDATE", "DELETE"];

const VALIDATING: &[ExpectedWebhook] = &[
    expected("vbundles.core.rukpak.io", "bundles", WRITES_AND_DELETE),
    expected(
        "vbundledeployments.core.rukpak.io",
        "bundledeployments",
        WRITES_AND_DELETE,
    ),
    expected(
        "vprovisionerclasses.core.rukpak.io",
        "provisionerclasses",
        WRITES,
    ),
    expected(
        "vsignaturepolicies.core.rukpak.io",
        "signaturepolicies",
        WRITES,
    ),
    expected(
        "vbundleapprovals.core.rukpak.io",
        "bundleapprovals",
        WRITES_AND_DELETE,
    ),
];

const MUTATING: &[ExpectedWebhook] = &[
    expected("mbundles.core.rukpak.io", "bundles", WRITES),
    expected(
        "mbundledeployments.core.rukpak.io",
        "bundledeployments",
        WRITES,
    ),
    expected("mbundleapprovals.core.rukpak.io", "bundleapprovals", WRITES),
];

/// Returns all faults because of which the API server could skip the review of a write. Empty for
/// an intact registration. `object` is `None` if it does not exist.
///
/// `timeoutSeconds`, `reinvocationPolicy`, labels and annotations belong to the administrator: they
/// let no write pass without a review.
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
    let table = match registration {
        Registration::Validating => VALIDATING,
        Registration::Mutating => MUTATING,
    };
    let mut faults = Vec::new();
    for expected in table {
        let webhooks = object["webhooks"].as_array().into_iter().flatten();
        let mut fault = |problem: &str, is_repaired: bool| {
            let webhook = expected.name;
            faults.push(Fault {
                message: format!("{registration} {name}: {webhook}: {problem}"),
                is_repaired,
            });
        };
        let Some(found) = webhooks
            .into_iter()
            .find(|found| found["name"] == expected.name)
        else {
            fault("the webhook is missing", false);
            continue;
        };
        for operation in expected.operations {
            if !is_asked(&found["rules"], expected.resource, operation) {
                let resource = expected.resource;
                fault(
                    &format!("no rule covers {operation} of {resource}.{GROUP}/{VERSION}"),
                    false,
                );
            }
        }
        for (field, allowed) in [
            ("failurePolicy", &["Fail"][..]),
            ("matchPolicy", &["Equivalent"]),
            ("sideEffects", &["None", "NoneOnDryRun"]),
        ] {
            // The API server sets defaults, which for the first two fields are the allowed values.
            let value = found[field].as_str().unwrap_or(allowed[0]);
            if !allowed.contains(&value) {
                fault(&format!("{field} is {value}, not {}", allowed[0]), false);
            }
        }
        for field in ["namespaceSelector", "objectSelector"] {
            let selector = &found[field];
            if !is_empty(&selector["matchLabels"]) || !is_empty(&selector["matchExpressions"]) {
                fault(&format!("{field} excludes objects"), false);
            }
        }
        if !is_empty(&found["matchConditions"]) {
            fault("matchConditions exclude writes", false);
        }
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
        if !token.is_some_and(|token| identity.knows(token)) {
            fault("the path does not contain the current token", true);
        }
        if !identity.trusts(&client["caBundle"]) {
            fault("caBundle is not the authority of this installation", true);
        }
    }
    faults
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// Returns true if one of `rules` covers this operation for all objects of this resource.
fn is_asked(rules: &Value, resource: &str, operation: &str) -> bool {
    let names = |list: &Value, wanted: &[&str]| {
        let listed = list.as_array().into_iter().flatten();
        listed
            .filter_map(Value::as_str)
            .any(|found| wanted.contains(&found))
    };
    let with_subresources = format!("{resource}/*");
    rules.as_array().into_iter().flatten().any(|rule| {
        names(&rule["apiGroups"], &[GROUP, "*"])
            && names(&rule["apiVersions"], &[VERSION, "*"])
            && names(&rule["operations"], &[operation, "*"])
            && names(
                &rule["resources"],
                &[resource, &with_subresources, "*", "*/*"],
            )
            && matches!(rule["scope"].as_str(), None | Some("*" | "Cluster"))
    })
}

#[cfg(test)]
mod tests;
