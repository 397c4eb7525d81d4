//! Valid policies, and policies with typos.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::policy::{AcceptedSigner, KeyParser};
use crate::policy::{KeyId, RootId};

fn reference(text: &str) -> Reference {
    text.parse().unwrap()
}

fn good() -> Value {
    json!({
        "images": [{"glob": "registry.example.com/team/**"}],
        "mode": "warn",
        "threshold": 1,
        "authorities": [
            {"name": "release", "key": {"data": "PEM"}},
            {"key": {"secretRef": {"name": "second"}}},
        ],
        "versions": {"allowDowngrade": false},
    })
}

#[test]
fn reads_every_field() {
    let policy = Policy::parse("releases", &good()).unwrap();
    assert_eq!(policy.name(), "releases");
    assert_eq!(policy.mode(), Mode::Warn);
    assert_eq!(policy.threshold(), 1);
    assert!(!policy.allows_downgrade());
    assert_eq!(policy.authorities()[0].name, "release");
    assert_eq!(policy.authorities()[1].name, "authority-1");
    assert_eq!(
        policy.secrets(),
        BTreeSet::from([&"second".parse().unwrap()])
    );
    assert!(policy.matches(&reference("registry.example.com/team/web:1")));
    assert!(!policy.matches(&reference("registry.example.com/other/web:1")));
}

#[test]
fn absent_and_null_fields_have_strict_defaults() {
    let spec = json!({
        "images": [{"glob": "**"}],
        "authorities": [{"name": null, "key": {"data": "PEM", "secretRef": null}, "keyless": null}],
        "mode": null, "threshold": null, "versions": null,
    });
    let policy = Policy::parse("p", &spec).unwrap();
    assert_eq!(policy.mode(), Mode::Enforce);
    assert_eq!(policy.threshold(), 1);
    assert!(policy.allows_downgrade());

    let mut spec = spec;
    spec["versions"] = json!({});
    assert!(!Policy::parse("p", &spec).unwrap().allows_downgrade());
}

#[test]
fn reports_field_of_every_mistake_and_makes_policy_unready() {
    for (pointer, value, field, why) in [
        (
            "/mode",
            json!("audit"),
            "spec.mode",
            "neither `enforce` nor `warn`",
        ),
        ("/mode", json!(1), "spec.mode", "not a string"),
        ("/match", json!([]), "spec.match", "unknown field"),
        ("/threshold", json!(0), "spec.threshold", "at least 1"),
        ("/threshold", json!("2"), "spec.threshold", "at least 1"),
        ("/threshold", json!(-1), "spec.threshold", "at least 1"),
        ("/threshold", json!(3), "spec.threshold", "requires 3"),
        (
            "/authorities",
            json!([]),
            "spec.authorities",
            "no signature satisfies",
        ),
        ("/authorities", json!({}), "spec.authorities", "not a list"),
        (
            "/authorities/0",
            json!("x"),
            "spec.authorities[0]",
            "not an object",
        ),
        (
            "/authorities/0",
            json!({"name": "x"}),
            "spec.authorities[0]",
            "neither `key` nor",
        ),
        (
            "/authorities/0/keyless",
            json!({}),
            "spec.authorities[0]",
            "both `key` and",
        ),
        (
            "/authorities/0",
            json!({"keyless": {"identities": []}}),
            "spec.authorities[0].keyless.identities",
            "1 to 64",
        ),
        (
            "/authorities/0",
            json!({"keyless": {"identities": [{"subject": "ci"}]}}),
            "spec.authorities[0].keyless.identities[0]",
            "neither `issuer` nor",
        ),
        (
            "/authorities/0",
            json!({"keyless": {"identities": [{"issuer": "https://issuer.example.com"}]}}),
            "spec.authorities[0].keyless.identities[0]",
            "neither `subject` nor",
        ),
        (
            "/authorities/0",
            json!({"keyless": {"identities": [{"issuer": "i", "subject": "s", "subjectRegExp": "s"}]}}),
            "spec.authorities[0].keyless.identities[0]",
            "both `subject` and",
        ),
        (
            "/authorities/0",
            json!({"keyless": {"identities": [{"issuer": "i", "subjectRegExp": "a)|(?:b"}]}}),
            "spec.authorities[0].keyless.identities[0].subjectRegExp",
            "invalid regular expression",
        ),
        (
            "/authorities/0",
            json!({"keyless": {"identities": [{"issuer": "", "subject": "s"}]}}),
            "spec.authorities[0].keyless.identities[0].issuer",
            "empty",
        ),
        (
            "/authorities/0",
            json!({"keyless": {"identities": [{"issuer": "i", "subject": "s"}], "url": "x"}}),
            "spec.authorities[0].keyless.url",
            "unknown field",
        ),
        (
            "/authorities/0",
            json!({"keyless": {"identities": [{"issuer": "i", "subject": "s"}], "trustRoot": {}}}),
            "spec.authorities[0].keyless.trustRoot",
            "no `configMapRef`",
        ),
        (
            "/authorities/0/attestations",
            json!([{}]),
            "spec.authorities[0].attestations[0]",
            "no `predicateType`",
        ),
        (
            "/authorities/0/attestations",
            json!([{"predicateType": "https://sigstore.dev/cosign/sign/v1"}]),
            "spec.authorities[0].attestations[0].predicateType",
            "predicate type of a signature",
        ),
        (
            "/authorities/0/ctlog",
            json!({}),
            "spec.authorities[0].ctlog",
            "unknown field",
        ),
        (
            "/authorities/0/name",
            json!("authority-1"),
            "spec.authorities[1].name",
            "same name",
        ),
        (
            "/authorities/0/name",
            json!(""),
            "spec.authorities[0].name",
            "empty",
        ),
        (
            "/authorities/0/key",
            json!({}),
            "spec.authorities[0].key",
            "neither `data` nor",
        ),
        (
            "/authorities/0/key",
            json!({"kms": "x"}),
            "spec.authorities[0].key.kms",
            "unknown field",
        ),
        (
            "/authorities/0/key/data",
            json!(1),
            "spec.authorities[0].key.data",
            "not a string",
        ),
        (
            "/authorities/0/key/secretRef",
            json!({"name": "x"}),
            "spec.authorities[0].key",
            "both `data` and",
        ),
        (
            "/authorities/1/key/secretRef",
            json!({}),
            "spec.authorities[1].key.secretRef",
            "names no Secret",
        ),
        ("/versions", json!(true), "spec.versions", "not an object"),
        (
            "/versions/allowDowngrade",
            json!("no"),
            "spec.versions.allowDowngrade",
            "true or false",
        ),
    ] {
        let mut spec = good();
        set(&mut spec, pointer, value);
        let policy = Policy::read("releases", &spec);
        let problems = policy.problems();
        assert!(
            problems.iter().any(|finding| {
                finding.place.field.as_deref() == Some(field) && finding.message.contains(why)
            }),
            "{pointer}: {problems}"
        );
        // The `images` of the policy are valid, so the policy still matches only these images.
        assert!(!policy.matches(&reference("registry.example.com/other/web:1")));
    }
}

#[test]
fn policy_with_invalid_images_matches_every_reference() {
    for images in [
        Value::Null,
        json!([]),
        json!("registry.example.com/**"),
        json!([{}]),
        json!([{"glob": 1}]),
        json!([{"glob": "registry.example.com/team/**"}, {"glob": "registry.example.com/team/"}]),
        json!(["registry.example.com/**"]),
        // This pattern is rejected. Otherwise it would match no image, and the user would see no
        // error.
        json!([{"glob": "docker.io/*"}]),
        json!([{"glob": "registry.example.com/team/**"}, {"glob": "team/**"}]),
    ] {
        let mut spec = good();
        set(&mut spec, "/images", images);
        let policy = Policy::read("releases", &spec);
        assert!(policy.problems().has_errors());
        assert!(policy.matches(&reference("elsewhere.example.com/web:1")));
    }
    for spec in [Value::Null, json!([]), json!("x")] {
        let policy = Policy::read("releases", &spec);
        assert!(policy.problems().has_errors());
        assert!(policy.matches(&reference("elsewhere.example.com/web:1")));
        assert_eq!(policy.mode(), Mode::Enforce);
    }
}

fn set(spec: &mut Value, pointer: &str, value: Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    match spec.pointer_mut(parent).unwrap() {
        Value::Array(list) => list[field.parse::<usize>().unwrap()] = value,
        parent => parent[field] = value,
    }
}

/// Parser for tests: the text of a key or root is its identity.
struct AsWritten;

impl KeyParser for AsWritten {
    fn key(&mut self, pem: &str) -> Result<KeyId, Finding> {
        Ok(KeyId::new(pem))
    }

    fn root(&mut self, text: Option<&str>) -> Result<RootId, Finding> {
        Ok(RootId::new(text.unwrap_or_default()))
    }
}

#[test]
fn reads_trust_roots_from_config_maps_or_uses_the_public_one() {
    let keyless = |root: Value| {
        json!({
            "images": [{"glob": "**"}],
            "authorities": [{
                "keyless": {
                    "identities": [{"issuer": "i", "subjectRegExp": "s.*"}],
                    "trustRoot": root,
                },
                "attestations": [{"predicateType": "https://slsa.dev/provenance/v1"}],
            }],
        })
    };
    let roots = |policy: &Policy| -> Vec<String> {
        let ready = policy.with_keys(&mut AsWritten);
        assert!(!ready.problems.has_errors(), "{}", ready.problems);
        let each = ready.authorities.iter().map(|authority| &authority.signer);
        each.map(|who| match who {
            AcceptedSigner::Identities { root, .. } => root.to_string(),
            AcceptedSigner::Key(_) => panic!("a key"),
        })
        .collect()
    };
    let public = Policy::parse("p", &keyless(Value::Null)).unwrap();
    assert!(public.config_maps().is_empty());
    assert_eq!(roots(&public), [""]);
    assert_eq!(roots(&public.with_default_root("ours")), ["ours"]);

    let named = Policy::parse("p", &keyless(json!({"configMapRef": {"name": "root"}}))).unwrap();
    assert_eq!(
        named.config_maps(),
        BTreeSet::from([&"root".parse().unwrap()])
    );
    assert!(named.with_keys(&mut AsWritten).problems.has_errors());
    let with = |found: ReferencedText| {
        let found = BTreeMap::from([("root".to_owned(), found)]);
        named.clone().with_config_maps(&found)
    };
    assert_eq!(
        roots(&with(ReferencedText::Found("theirs".into()))),
        ["theirs"]
    );
    // The default root does not replace the trust root of an authority.
    let theirs = with(ReferencedText::Found("theirs".into())).with_default_root("ours");
    assert_eq!(roots(&theirs), ["theirs"]);
    assert!(
        with(ReferencedText::Missing("gone".into()))
            .problems()
            .has_errors()
    );
    let down = Finding::error(codes::cluster::UNREACHABLE, "no answer");
    let waiting = with(ReferencedText::Unavailable(down));
    let ready = waiting.with_keys(&mut AsWritten);
    assert!(!ready.problems.has_errors() && !ready.unavailable.is_empty());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z*/.:]{0,12}".prop_map(Value::from),
    ];
    let field = prop_oneof![
        Just("images"),
        Just("glob"),
        Just("authorities"),
        Just("key"),
        Just("data"),
        Just("secretRef"),
        Just("name"),
        Just("keyless"),
        Just("threshold"),
        Just("mode"),
        Just("versions"),
        Just("allowDowngrade"),
        Just("identities"),
        Just("issuer"),
        Just("subjectRegExp"),
        Just("trustRoot"),
        Just("configMapRef"),
        Just("attestations"),
        Just("other"),
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(field.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn parsing_a_policy_never_panics(spec in any_json()) {
        let policy = Policy::read("p", &spec);
        let _ = policy.matches(&reference("registry.example.com/team/web:1"));
        let ready = policy.with_keys(&mut AsWritten);
        // A ready policy can be satisfied.
        prop_assert!(ready.problems.has_errors() || ready.authorities.len() >= policy.threshold());
    }
}
