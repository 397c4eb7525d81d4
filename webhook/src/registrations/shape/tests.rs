//! Tests that the shipped registrations are intact. Each alteration that allows a write without a
//! review must be a fault.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bundle_core::registration::GUARDS;
use serde_json::json;

use super::*;
use crate::caller::Token;

const NAME: &str = "bundle-webhook";

fn shipped(registration: Registration) -> Value {
    let text = match registration {
        Registration::Validating => include_str!("../../../deploy/admission/validating.yaml"),
        Registration::Mutating => include_str!("../../../deploy/admission/mutating.yaml"),
    };
    bundle_core::yaml::documents(text.as_bytes(), "shipped")
        .unwrap()
        .remove(0)
        .value
}

fn authority() -> String {
    rcgen::generate_simple_self_signed(["hook".to_owned()])
        .unwrap()
        .cert
        .pem()
}

/// Alters the shipped registration after its address was set, and returns its faults.
fn altered(registration: Registration, alter: impl Fn(&mut Value)) -> Vec<String> {
    let (current, previous) = (Token::random(), Token::random());
    let (old, trusted) = (authority(), authority());
    let trusted = format!("{trusted}{old}");
    let identity = Identity {
        namespace: "bundle-system",
        service: "bundle-webhook",
        trusted: &trusted,
        current: &current,
        previous: Some(&previous),
    };
    let mut object = shipped(registration);
    // The registration has the previous token, and only one of two authorities. Another replica
    // will update both.
    for webhook in object["webhooks"].as_array_mut().unwrap() {
        let path = format!("/{}/{}", registration.action(), previous.as_str());
        webhook["clientConfig"]["service"]["path"] = path.into();
        webhook["clientConfig"]["caBundle"] = STANDARD.encode(&old).into();
    }
    alter(&mut object);
    faults(registration, NAME, Some(&object), &identity)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn shipped_registrations_are_intact_and_the_table_has_all_of_their_webhooks() {
    for (registration, table) in [
        (Registration::Validating, VALIDATING),
        (Registration::Mutating, MUTATING),
    ] {
        assert_eq!(altered(registration, |_| {}), Vec::<String>::new());
        let object = shipped(registration);
        let webhooks = object["webhooks"].as_array().unwrap();
        let guards = match registration {
            Registration::Validating => GUARDS,
            Registration::Mutating => &[],
        };
        assert_eq!(webhooks.len(), table.len() + guards.len());
        for guard in inspect(guards, &object) {
            assert_eq!(guard.faults, Vec::<String>::new(), "{}", guard.name);
        }
        for (webhook, expected) in webhooks.iter().zip(table.iter().chain(guards)) {
            assert_eq!(webhook["name"], expected.name);
            assert_eq!(
                webhook["rules"][0]["operations"],
                json!(expected.operations)
            );
        }
    }
}

#[test]
fn names_each_alteration_that_lets_a_write_pass_without_review() {
    let set = |field: &'static str, value: Value| {
        altered(Registration::Validating, move |object| {
            object["webhooks"][0][field] = value.clone();
        })
    };
    let rule = |field: &str, value: Value| {
        let mut rule = shipped(Registration::Validating)["webhooks"][0]["rules"][0].clone();
        rule[field] = value;
        set("rules", json!([rule]))
    };
    let client = |client: Value| set("clientConfig", client);
    for (found, expected) in [
        (
            set("name", json!("v.example.com")),
            "the webhook is missing",
        ),
        (
            set("failurePolicy", json!("Ignore")),
            "failurePolicy is Ignore, not Fail",
        ),
        (
            set("matchPolicy", json!("Exact")),
            "matchPolicy is Exact, not Equivalent",
        ),
        (
            set("sideEffects", json!("Some")),
            "sideEffects is Some, not None",
        ),
        (
            set("namespaceSelector", json!({"matchLabels": {"a": "b"}})),
            "namespaceSelector excludes objects",
        ),
        (
            set(
                "objectSelector",
                json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
            ),
            "objectSelector excludes objects",
        ),
        (
            set(
                "matchConditions",
                json!([{"name": "never", "expression": "false"}]),
            ),
            "matchConditions exclude writes",
        ),
        (
            set("rules", json!([])),
            "no rule covers CREATE of bundles.core.rukpak.io/v1alpha1",
        ),
        (
            rule("operations", json!(["CREATE", "UPDATE"])),
            "no rule covers DELETE of bundles.core.rukpak.io/v1alpha1",
        ),
        (
            rule("resources", json!(["bundles/status"])),
            "no rule covers CREATE of bundles.core.rukpak.io/v1alpha1",
        ),
        (
            rule("apiGroups", json!(["apps"])),
            "no rule covers CREATE of bundles.core.rukpak.io/v1alpha1",
        ),
        (
            rule("apiVersions", json!(["v1"])),
            "no rule covers CREATE of bundles.core.rukpak.io/v1alpha1",
        ),
        (
            rule("scope", json!("Namespaced")),
            "no rule covers CREATE of bundles.core.rukpak.io/v1alpha1",
        ),
        (
            client(json!({"service": {"namespace": "bundle-system", "name": "other"}})),
            "clientConfig names neither Service bundle-system/bundle-webhook nor a url",
        ),
        (
            client(json!({"service": {"namespace": "bundle-system", "name": "bundle-webhook"}})),
            "the path does not contain the current token",
        ),
        (
            client(json!({"url": "https://hook.example.com/validate/guess"})),
            "caBundle is not the authority of this installation",
        ),
    ] {
        let whole = format!(
            "{} {NAME}: vbundles.core.rukpak.io: {expected}",
            Registration::Validating
        );
        assert!(found.contains(&whole), "{whole} is not in {found:?}");
    }
}

#[test]
fn guards_of_other_kinds_are_optional_and_select_only_by_label() {
    let guard = VALIDATING.len();
    let removed = altered(Registration::Validating, |object| {
        object["webhooks"].as_array_mut().unwrap().remove(guard);
    });
    let ignored = altered(Registration::Validating, |object| {
        object["webhooks"][guard]["failurePolicy"] = "Ignore".into();
    });
    assert_eq!((removed, ignored), (Vec::new(), Vec::new()));
    let selecting = |labels: Value| {
        let mut object = shipped(Registration::Validating);
        object["webhooks"][guard]["objectSelector"] = json!({ "matchLabels": labels });
        inspect(GUARDS, &object).remove(0).faults
    };
    for (labels, faults) in [
        (
            json!({"core.rukpak.io/owner-kind": "BundleDeployment"}),
            vec![],
        ),
        (json!({}), vec![]),
        (
            json!({"core.rukpak.io/owner-kind": "BundleDeployment", "a": "b"}),
            vec!["objectSelector excludes objects"],
        ),
        (
            json!({"core.rukpak.io/owner-kind": "Bundle"}),
            vec!["objectSelector excludes objects"],
        ),
    ] {
        assert_eq!(selecting(labels), faults);
    }
}

#[test]
fn accepts_fields_of_the_administrator_and_wider_rules() {
    let wide = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"], "scope": "*"}]);
    let found = altered(Registration::Mutating, |object| {
        object["metadata"]["labels"]["team"] = "platform".into();
        let webhook = &mut object["webhooks"][1];
        webhook["rules"] = wide.clone();
        webhook["timeoutSeconds"] = 5.into();
        webhook["reinvocationPolicy"] = "Never".into();
        webhook["namespaceSelector"] = json!({});
        webhook["objectSelector"] = json!({"matchLabels": {}});
        webhook["failurePolicy"] = Value::Null;
        webhook["matchPolicy"] = Value::Null;
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn foreign_or_invalid_authority_is_a_fault() {
    for extra in [authority(), "-----BEGIN CERTIFICATE-----\n!\n".to_owned()] {
        let found = altered(Registration::Mutating, |object| {
            let bundle = &mut object["webhooks"][0]["clientConfig"]["caBundle"];
            let ours = STANDARD.decode(bundle.as_str().unwrap()).unwrap();
            let both = [ours, extra.clone().into_bytes()].concat();
            *bundle = STANDARD.encode(both).into();
        });
        assert_eq!(
            found,
            [format!(
                "{} {NAME}: mbundles.core.rukpak.io: caBundle is not the authority of this installation",
                Registration::Mutating
            )]
        );
    }
}

#[test]
fn missing_registration_is_a_fault() {
    let token = Token::random();
    let identity = Identity {
        namespace: "a",
        service: "b",
        trusted: "",
        current: &token,
        previous: None,
    };
    let found = faults(Registration::Mutating, NAME, None, &identity);
    assert_eq!(
        found[0].to_string(),
        "MutatingWebhookConfiguration bundle-webhook does not exist"
    );
}
