//! Names, versions, subresources, columns, selectable fields and conversion of a definition.

use serde_json::json;

use super::Case;

/// Name, expected result, and change of the definition.
pub(super) const CASES: &[Case] = &[
    ("as it is", true, |_| {}),
    ("a name that is not plural and group", false, |crd| {
        crd["metadata"]["name"] = json!("shop.checks.example.com");
    }),
    ("a group without a dot", false, |crd| {
        crd["spec"]["group"] = json!("checks");
        crd["metadata"]["name"] = json!("shops.checks");
    }),
    ("a group of the community", false, |crd| {
        crd["spec"]["group"] = json!("checks.k8s.io");
        crd["metadata"]["name"] = json!("shops.checks.k8s.io");
    }),
    ("a group of the community, not approved", true, |crd| {
        crd["spec"]["group"] = json!("checks.k8s.io");
        crd["metadata"] = json!({"name": "shops.checks.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}});
    }),
    ("another scope", false, |crd| {
        crd["spec"]["scope"] = json!("Global");
    }),
    ("no scope", false, |crd| {
        drop(crd["spec"].as_object_mut().unwrap().remove("scope"));
    }),
    ("a plural in capitals", false, |crd| {
        crd["spec"]["names"]["plural"] = json!("Shops");
    }),
    ("a short name with a dot", false, |crd| {
        crd["spec"]["names"]["shortNames"] = json!(["s.h"]);
    }),
    ("kind and listKind the same", false, |crd| {
        crd["spec"]["names"]["listKind"] = json!("Shop");
    }),
    ("names that the server makes", true, |crd| {
        crd["spec"]["names"] = json!({"plural": "shops", "kind": "Shop"});
    }),
    ("no stored version", false, |crd| {
        crd["spec"]["versions"][0]["storage"] = json!(false);
    }),
    ("two stored versions", false, |crd| {
        let mut second = crd["spec"]["versions"][0].clone();
        second["name"] = json!("v2");
        crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    }),
    ("a version twice", false, |crd| {
        let mut second = crd["spec"]["versions"][0].clone();
        second["storage"] = json!(false);
        crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    }),
    ("two versions", true, |crd| {
        let mut second = crd["spec"]["versions"][0].clone();
        second["storage"] = json!(false);
        second["name"] = json!("v2alpha1");
        crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    }),
    ("a version with a dot", false, |crd| {
        crd["spec"]["versions"][0]["name"] = json!("v1.0");
    }),
    ("served as text", false, |crd| {
        crd["spec"]["versions"][0]["served"] = json!("true");
    }),
    ("an unknown field", false, |crd| {
        crd["spec"]["versions"][0]["stored"] = json!(true);
    }),
    ("nothing served", true, |crd| {
        crd["spec"]["versions"][0]["served"] = json!(false);
    }),
    ("no schema", false, |crd| {
        drop(
            crd["spec"]["versions"][0]
                .as_object_mut()
                .unwrap()
                .remove("schema"),
        );
    }),
    ("preserveUnknownFields", false, |crd| {
        crd["spec"]["preserveUnknownFields"] = json!(true);
    }),
    ("a deprecation without being deprecated", false, |crd| {
        crd["spec"]["versions"][0]["deprecationWarning"] = json!("old");
    }),
    ("a deprecation", true, |crd| {
        crd["spec"]["versions"][0]["deprecated"] = json!(true);
        crd["spec"]["versions"][0]["deprecationWarning"] = json!("old");
    }),
    ("a column", true, |crd| {
        crd["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]);
    }),
    ("a column of another type", false, |crd| {
        crd["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "Size", "type": "int", "jsonPath": ".spec.size"}]);
    }),
    ("a column without a dot", false, |crd| {
        crd["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "Size", "type": "integer", "jsonPath": "spec.size"}]);
    }),
    ("a column without path", false, |crd| {
        crd["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "Size", "type": "integer"}]);
    }),
    ("scale", true, |crd| {
        crd["spec"]["versions"][0]["subresources"]["scale"] =
            json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"});
    }),
    ("scale elsewhere", false, |crd| {
        crd["spec"]["versions"][0]["subresources"]["scale"] =
            json!({"specReplicasPath": ".size", "statusReplicasPath": ".status.size"});
    }),
    ("fields to select by", true, |crd| {
        crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.size"}]);
    }),
    ("unknown fields to select by", false, |crd| {
        crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.nope"}]);
    }),
    ("objects to select by", false, |crd| {
        crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec"}]);
    }),
    ("a field to select by twice", false, |crd| {
        crd["spec"]["versions"][0]["selectableFields"] =
            json!([{"jsonPath": ".spec.size"}, {"jsonPath": ".spec.size"}]);
    }),
    (
        "a webhook",
        true,
        |crd| crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "a", "namespace": "b", "path": "/convert"}}}}),
    ),
    (
        "a webhook nowhere",
        false,
        |crd| crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {}}}),
    ),
    (
        "a webhook in two places",
        false,
        |crd| crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a.example.com", "service": {"name": "a", "namespace": "b"}}}}),
    ),
    (
        "a webhook by plain HTTP",
        false,
        |crd| crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "http://a.example.com"}}}),
    ),
    (
        "a webhook of another age",
        false,
        |crd| crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v2"], "clientConfig": {"url": "https://a.example.com"}}}),
    ),
    (
        "a webhook without strategy",
        false,
        |crd| crd["spec"]["conversion"] = json!({"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a.example.com"}}}),
    ),
    ("another strategy", false, |crd| {
        crd["spec"]["conversion"] = json!({"strategy": "Magic"});
    }),
];
