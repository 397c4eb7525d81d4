use serde_json::json;

use super::*;

fn class(spec: &Value) -> Class {
    Class::parse("plain", spec).unwrap()
}

fn image(reference: &str) -> Source {
    Source::Image {
        reference: reference.parse().unwrap(),
        credentials: super::super::source::PullCredentials::Class("plain".parse().unwrap()),
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
    for (url, expected) in [
        ("https://169.254.169.254/latest", "the private address"),
        ("http://[::1]:80/a", "the private address"),
        ("https://[::ffff:10.0.0.1]/a", "the private address"),
        ("http://localhost/a", "the private address"),
        ("https://10.1.2.3/a", "the private address"),
        ("https://files.example.com/a", ""),
    ] {
        let found = class.source_rejection(&http(url), "spec.source");
        let found = found.map(|finding| finding.message).unwrap_or_default();
        assert!(found.contains(expected), "{url}: {found}");
        assert_eq!(found.is_empty(), expected.is_empty(), "{url}: {found}");
    }
    assert!(
        class
            .source_rejection(&image("127.0.0.1:5000/web:1"), "spec.source")
            .is_none()
    );
}

#[test]
fn connections_without_verified_tls_need_a_class_that_lists_the_host() {
    let parse = |source: Value| {
        let spec = json!({"provisionerClassName": "plain", "source": source});
        super::super::CheckedBundleSpec::parse(&spec)
            .unwrap()
            .source
    };
    let git = |repository: &str, is_insecure: bool| {
        parse(json!({"type": "git", "git": {
            "repository": repository, "ref": {"branch": "main"},
            "auth": {"insecureSkipVerify": is_insecure},
        }}))
    };
    let http = |url: &str, is_insecure: bool| {
        let auth = json!({"insecureSkipVerify": is_insecure});
        parse(json!({"type": "http", "http": {"url": url, "auth": auth}}))
    };
    let secure = [
        git("https://git.example.com/web", false),
        http("https://files.example.com/a", false),
    ];
    let skip = "auth.insecureSkipVerify: provisioner class \"plain\" does not allow insecureSkipVerify for";
    let no_tls = "url: provisioner class \"plain\" does not allow a URL without TLS for";
    let insecure = [
        (
            git("https://git.example.com/web", true),
            format!("git.{skip} git.example.com"),
        ),
        (
            git("git@git.example.com:web", true),
            format!("git.{skip} git.example.com"),
        ),
        (
            http("https://files.example.com:8443/a", true),
            format!("http.{skip} files.example.com:8443"),
        ),
        (
            http("http://files.example.com/a", false),
            format!("http.{no_tls} files.example.com"),
        ),
        (
            http("http://[2001:db8::1]/a", false),
            format!("http.{no_tls} [2001:db8::1]"),
        ),
    ];
    let with = |hosts: Value| {
        class(&json!({
            "provisioner": "core.rukpak.io/plain", "sources": {"insecureHosts": hosts},
        }))
    };
    for hosts in [
        json!(null),
        json!([]),
        json!(["other.example.com", "files.example.com:1"]),
    ] {
        let class = with(hosts);
        for source in &secure {
            assert_eq!(class.source_rejection(source, "spec.source"), None);
        }
        for (source, expected) in &insecure {
            let finding = class.source_rejection(source, "spec.source").unwrap();
            assert_eq!(finding.code, codes::review::SOURCE_NOT_ALLOWED);
            assert_eq!(finding.to_string(), format!("spec.source.{expected}"));
        }
    }
    let class = with(json!(["*.example.com", "[2001:db8::1]"]));
    for (source, _) in &insecure {
        assert_eq!(class.source_rejection(source, "spec.source"), None);
    }
    // A listed host is still limited by the other rules.
    let class = self::class(&json!({"provisioner": "core.rukpak.io/plain", "sources": {
        "hosts": ["git.example.com"], "insecureHosts": ["*"],
    }}));
    for (url, expected) in [
        (
            "https://files.example.com/a",
            "content from files.example.com",
        ),
        ("http://169.254.169.254/a", "content from 169.254.169.254"),
    ] {
        let finding = class.source_rejection(&http(url, false), "spec.source");
        let message = finding.unwrap().message;
        assert!(message.contains(expected), "{message}");
    }
    let class = with(json!(["*"]));
    let finding = class.source_rejection(&http("http://10.1.2.3/a", true), "spec.source");
    let message = finding.unwrap().message;
    assert!(message.contains("the private address"), "{message}");
}

#[test]
fn pull_secrets_are_names_and_limited() {
    let parse = |names: Value| {
        let spec =
            json!({"provisioner": "core.rukpak.io/plain", "sources": {"pullSecrets": names}});
        Class::parse("plain", &spec).map(|class| class.pull_secrets)
    };
    assert!(parse(json!(null)).unwrap().is_empty());
    let names = parse(json!(["login", "mirror.login"])).unwrap();
    let names: Vec<_> = names.iter().map(KubeName::as_str).collect();
    assert_eq!(names, ["login", "mirror.login"]);
    for (names, expected) in [
        (json!("login"), "spec.sources.pullSecrets: must be a list"),
        (
            json!(["?watch=true"]),
            "spec.sources.pullSecrets[0]: Invalid value",
        ),
        (json!(["login", ""]), "spec.sources.pullSecrets[1]"),
        (json!(vec!["login"; 17]), "must have at most 16 items"),
    ] {
        let found = parse(names).unwrap_err().to_string();
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn requests_to_the_pod_itself_need_no_tls() {
    let class = class(&json!({
        "provisioner": "core.rukpak.io/plain", "sources": {"privateAddresses": "Allow"},
    }));
    for (url, is_allowed) in [
        ("http://127.0.0.1:8080/a", true),
        ("http://[::1]/a", true),
        ("http://localhost:1/a", true),
        ("http://10.1.2.3/a", false),
    ] {
        let source = Source::Http {
            url: url.to_owned(),
            auth: super::super::source::Auth::default(),
        };
        let found = class.source_rejection(&source, "spec.source");
        assert_eq!(found.is_none(), is_allowed, "{url}: {found:?}");
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

#[test]
fn class_of_a_deployment_must_allow_the_connection_of_the_class_of_its_bundle() {
    let with = |hosts: Value| {
        class(&json!({
            "provisioner": "core.rukpak.io/plain", "sources": {"insecureHosts": hosts},
        }))
    };
    let (strict, open) = (with(json!([])), with(json!(["registry.example.com"])));
    let digest = crate::reference::Digest::of(b"web");
    let tag = image("registry.example.com/web:1");
    let pinned = image(&format!("registry.example.com/web:1@{digest}"));
    for (class, source, is_insecure, is_rejected) in [
        (&strict, &tag, true, true),
        (&strict, &tag, false, false),
        (&strict, &pinned, true, false),
        (&strict, &Source::Upload, true, false),
        (&open, &tag, true, false),
    ] {
        let finding = class.insecure_image_rejection(source, is_insecure, "spec.source");
        assert_eq!(finding.is_some(), is_rejected, "{source:?} {is_insecure}");
    }
}

#[test]
fn unknown_fields_of_our_classes_are_errors() {
    let with = |provisioner: &str, more: &Value| {
        let mut spec = json!({"provisioner": provisioner});
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        Class::parse("plain", &spec)
    };
    for (more, path) in [
        (json!({"signature": "Required"}), "spec.signature"),
        (
            json!({"sources": {"host": ["a.example.com"]}}),
            "spec.sources.host",
        ),
        (
            json!({"targets": {"namespace": ["a"]}}),
            "spec.targets.namespace",
        ),
        (
            json!({"approval": {"mod": "Required"}}),
            "spec.approval.mod",
        ),
    ] {
        let findings = with("core.rukpak.io/plain", &more).unwrap_err();
        let text = findings.to_string();
        assert!(text.contains(&format!("{path}: unknown field")), "{text}");
        assert!(with("example.com/other", &more).is_ok());
    }
}
