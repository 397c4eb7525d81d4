use serde_json::json;

use super::*;

fn class(spec: &Value) -> Class {
    Class::parse("plain", spec).unwrap()
}

fn image(reference: &str) -> Source {
    Source::Image {
        reference: reference.parse().unwrap(),
        pull_secret: None,
    }
}

#[test]
fn class_with_provisioner_only_has_defaults() {
    let class = class(&json!({"provisioner": "core.rukpak.io/plain"}));
    assert_eq!(class.provisioner, Provisioner::Plain);
    assert_eq!(class.authorization, Authorization::Requester);
    assert_eq!(class.requester_check, RequesterCheck::DryRun);
    assert_eq!(class.approval, Approval::None);
    assert_eq!(class.signatures, ClassSignatures::IfPolicy);
    assert_eq!(class.namespaces, ["*"]);
    assert!(class.cluster_scoped && !class.private_addresses);
    assert!(
        class
            .source_rejection(&Source::Upload, "spec.source")
            .is_none()
    );
}

#[test]
fn reports_errors_of_an_invalid_class() {
    let findings = Class::parse(
        "x",
        &json!({"signatures": "Sometimes", "sources": {"types": "image"}}),
    )
    .unwrap_err();
    assert_eq!(findings.len(), 3);
    assert!(
        findings
            .iter()
            .all(|f| f.code == codes::review::CLASS_UNREADABLE)
    );
    assert!(
        findings
            .to_string()
            .contains("ProvisionerClass/x: spec.signatures: `Sometimes` is not one of")
    );
}

#[test]
fn sources_are_limited_by_type_and_host() {
    let class = class(
        &json!({"provisioner": "core.rukpak.io/plain", "sources": {"types": ["image"], "hosts": ["registry.example.com", "*.internal.example.com:5000"]}}),
    );
    for (reference, taken) in [
        ("registry.example.com/web:1", true),
        ("registry.example.com:5000/web:1", true),
        ("a.internal.example.com:5000/web:1", true),
        ("a.internal.example.com/web:1", false),
        ("registry.example.com.evil.example.net/web:1", false),
    ] {
        assert_eq!(
            class
                .source_rejection(&image(reference), "spec.source")
                .is_none(),
            taken,
            "{reference}"
        );
    }
    let finding = class
        .source_rejection(&Source::Upload, "spec.source")
        .unwrap();
    assert_eq!(
        finding.message,
        "provisioner class \"plain\" does not allow sources of type upload"
    );
}

#[test]
fn rejects_private_addresses_unless_the_class_allows_them() {
    let http = |url: &str| Source::Http {
        url: url.to_owned(),
        auth: super::super::source::Auth::default(),
    };
    let class = class(&json!({"provisioner": "core.rukpak.io/plain"}));
    for (url, taken) in [
        ("http://169.254.169.254/latest", false),
        ("http://[::1]:80/a", false),
        ("http://[::ffff:10.0.0.1]/a", false),
        ("http://localhost/a", false),
        ("http://10.1.2.3/a", false),
        ("https://files.example.com/a", true),
    ] {
        assert_eq!(
            class.source_rejection(&http(url), "spec.source").is_none(),
            taken,
            "{url}"
        );
    }
    assert!(
        class
            .source_rejection(&image("127.0.0.1:5000/web:1"), "spec.source")
            .is_none()
    );
}

#[test]
fn no_class_allows_sources_without_verification() {
    let sources = |is_insecure: bool| {
        let auth = json!({"insecureSkipVerify": is_insecure});
        [
            json!({"type": "git", "git": {
                "repository": "https://git.example.com/web", "ref": {"branch": "main"}, "auth": auth,
            }}),
            json!({"type": "git", "git": {
                "repository": "git@git.example.com:web", "ref": {"branch": "main"}, "auth": auth,
            }}),
            json!({"type": "http", "http": {"url": "https://files.example.com/a", "auth": auth}}),
        ]
    };
    let parse = |source: &Value| {
        let spec = json!({"provisionerClassName": "plain", "source": source});
        super::super::CheckedBundleSpec::parse(&spec)
            .unwrap()
            .source
    };
    let class = class(&json!({"provisioner": "core.rukpak.io/plain"}));
    for source in &sources(false) {
        let rejection = class.source_rejection(&parse(source), "spec.source");
        assert_eq!(rejection, None, "{source}");
    }
    for source in &sources(true) {
        let finding = class.source_rejection(&parse(source), "spec.source");
        let finding = finding.unwrap();
        assert_eq!(finding.code, codes::review::SOURCE_NOT_ALLOWED);
        let kind = source["type"].as_str().unwrap();
        assert_eq!(
            finding.to_string(),
            format!(
                "spec.source.{kind}.auth.insecureSkipVerify: provisioner class \"plain\" does not allow insecureSkipVerify: no class can allow it in this version"
            )
        );
    }
}

#[test]
fn each_provisioner_accepts_only_its_format() {
    for (provisioner, own, other) in [
        ("core.rukpak.io/plain", Format::PlainV0, Format::RegistryV1),
        (
            "core.rukpak.io/registry",
            Format::RegistryV1,
            Format::PlainV0,
        ),
        ("core.rukpak.io/helm", Format::HelmV3, Format::RegistryV1),
    ] {
        let class = class(&json!({ "provisioner": provisioner }));
        assert_eq!(class.reads(own), Ok(()));
        let finding = class.reads(other).unwrap_err();
        assert!(finding.message.contains(&format!(
            "the content has the format {other}, but provisioner class"
        )));
    }
}

#[test]
fn content_without_a_sign_of_a_format_is_a_chart_for_the_provisioner_of_charts() {
    let class = |name: &str| {
        let provisioner = format!("core.rukpak.io/{name}");
        Class::parse("web", &json!({ "provisioner": provisioner })).unwrap()
    };
    for (provisioner, found, is_declared, expected) in [
        ("helm", Format::PlainV0, false, Some(Format::HelmV3)),
        ("helm", Format::HelmV3, false, Some(Format::HelmV3)),
        ("helm", Format::PlainV0, true, None),
        ("helm", Format::RegistryV1, false, None),
        ("plain", Format::PlainV0, false, Some(Format::PlainV0)),
        ("plain", Format::HelmV3, false, None),
        ("registry", Format::PlainV0, false, None),
    ] {
        let format = class(provisioner).format(found, is_declared);
        assert_eq!(format.ok(), expected, "{provisioner} {found}");
    }
}
