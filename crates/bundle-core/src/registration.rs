//! Names, resources and operations that the webhook registrations must contain, so that the API
//! server requests a review of every write. The address, token and certificate authority of an
//! installation are not included.

use bundle_api::names::{GROUP, LABEL_OWNER_KIND, VERSION};
use serde_json::Value;

/// A webhook that a registration must have.
#[derive(Debug)]
pub struct ExpectedWebhook {
    /// Name of the webhook.
    pub name: &'static str,
    /// API group of the resource.
    pub group: &'static str,
    /// API version of the resource.
    pub version: &'static str,
    /// Plural of the resource whose writes the webhook reviews.
    pub resource: &'static str,
    /// Operations that the webhook reviews.
    pub operations: &'static [&'static str],
    /// Label of the reviewed objects and its value; `None` for all objects.
    pub label: Option<(&'static str, &'static str)>,
}

const fn expected(
    name: &'static str,
    resource: &'static str,
    operations: &'static [&'static str],
) -> ExpectedWebhook {
    ExpectedWebhook {
        name,
        group: GROUP,
        version: VERSION,
        resource,
        operations,
        label: None,
    }
}

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const WRITES_AND_DELETE: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// The webhooks of the ValidatingWebhookConfiguration.
pub const VALIDATING: &[ExpectedWebhook] = &[
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

/// The webhooks of the MutatingWebhookConfiguration.
pub const MUTATING: &[ExpectedWebhook] = &[
    expected("mbundles.core.rukpak.io", "bundles", WRITES),
    expected(
        "mbundledeployments.core.rukpak.io",
        "bundledeployments",
        WRITES,
    ),
    expected("mbundleapprovals.core.rukpak.io", "bundleapprovals", WRITES),
];

/// The webhooks of the ValidatingWebhookConfiguration that review objects of other API groups. The
/// review of the project's own objects does not depend on these webhooks, so an administrator may
/// remove them.
pub const GUARDS: &[ExpectedWebhook] = &[ExpectedWebhook {
    name: "vcustomresourcedefinitions.core.rukpak.io",
    group: "apiextensions.k8s.io",
    version: "v1",
    resource: "customresourcedefinitions",
    operations: &["UPDATE"],
    label: Some((LABEL_OWNER_KIND, "BundleDeployment")),
}];

/// A webhook of a registration, with its differences from the expected webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedWebhook<'a> {
    /// Name of the expected webhook.
    pub name: &'static str,
    /// The webhook of this name in the registration; `None` if the registration does not contain
    /// it.
    pub found: Option<&'a Value>,
    /// Differences that could make the API server skip the review of a write.
    pub faults: Vec<String>,
}

/// Compares the webhooks of `registration` with the expected webhooks.
///
/// `timeoutSeconds`, `reinvocationPolicy`, labels and annotations are not compared. Administrators
/// may change these fields, because the API server calls the webhook with any values of these
/// fields.
pub fn inspect<'a>(
    expected: &'static [ExpectedWebhook],
    registration: &'a Value,
) -> Vec<InspectedWebhook<'a>> {
    let each = expected.iter().map(|expected| {
        let webhooks = registration["webhooks"].as_array().into_iter().flatten();
        let found = webhooks
            .into_iter()
            .find(|found| found["name"] == expected.name);
        InspectedWebhook {
            name: expected.name,
            found,
            faults: match found {
                Some(found) => faults(expected, found),
                None => vec!["the webhook is missing".to_owned()],
            },
        }
    });
    each.collect()
}

fn faults(expected: &ExpectedWebhook, found: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for operation in expected.operations {
        if !is_reviewed(&found["rules"], expected, operation) {
            let ExpectedWebhook {
                group,
                version,
                resource,
                ..
            } = expected;
            faults.push(format!(
                "no rule covers {operation} of {resource}.{group}/{version}"
            ));
        }
    }
    for (field, allowed) in [
        ("failurePolicy", &["Fail"][..]),
        ("matchPolicy", &["Equivalent"]),
        ("sideEffects", &["None", "NoneOnDryRun"]),
    ] {
        // The API server sets an absent field to its default. The defaults of `failurePolicy` and
        // `matchPolicy` are allowed. `sideEffects` has no default.
        let value = found[field].as_str().unwrap_or(allowed[0]);
        if !allowed.contains(&value) {
            faults.push(format!("{field} is {value}, not {}", allowed[0]));
        }
    }
    for field in ["namespaceSelector", "objectSelector"] {
        let selector = &found[field];
        let label = expected.label.filter(|_| field == "objectSelector");
        if !is_selected(&selector["matchLabels"], label) || !is_empty(&selector["matchExpressions"])
        {
            faults.push(format!("{field} excludes objects"));
        }
    }
    if !is_empty(&found["matchConditions"]) {
        faults.push("matchConditions exclude writes".to_owned());
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

/// Returns true if the label selector `labels` matches every object that has `label`. If `label` is
/// `None`, the selector must match every object.
fn is_selected(labels: &Value, label: Option<(&str, &str)>) -> bool {
    let labels = labels.as_object().into_iter().flatten();
    let mut labels = labels.map(|(name, value)| (name.as_str(), value));
    labels.all(|(name, value)| label.is_some_and(|label| label.0 == name && value == label.1))
}

/// Returns true if one of `rules` covers this operation for all objects of the expected resource.
fn is_reviewed(rules: &Value, expected: &ExpectedWebhook, operation: &str) -> bool {
    let resource = expected.resource;
    let names = |list: &Value, wanted: &[&str]| {
        let listed = list.as_array().into_iter().flatten();
        listed
            .filter_map(Value::as_str)
            .any(|found| wanted.contains(&found))
    };
    let with_subresources = format!("{resource}/*");
    rules.as_array().into_iter().flatten().any(|rule| {
        names(&rule["apiGroups"], &[expected.group, "*"])
            && names(&rule["apiVersions"], &[expected.version, "*"])
            && names(&rule["operations"], &[operation, "*"])
            && names(
                &rule["resources"],
                &[resource, &with_subresources, "*", "*/*"],
            )
            && matches!(rule["scope"].as_str(), None | Some("*" | "Cluster"))
    })
}
