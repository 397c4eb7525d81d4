//! Accepted and rejected `bundle.yaml` files, with messages, and their round trip through
//! annotations.

use std::collections::BTreeMap;

use super::*;
use crate::version::{ServerVersion, Unsupported};

pub(super) const FULL: &str = r#"
apiVersion: bundle.core.rukpak.io/v1alpha1
kind: Package
name: web
version: 1.4.0
format: plain+v0
description: One line that `inspect` shows.
kubernetes: {baseline: "1.33", supported: ">=1.31 <1.38", unsupported: Reject}
requires: {apis: [monitoring.coreos.com/v1/ServiceMonitor, v1/Node], packages: [{name: cert-manager, version: ^1.14, digest: "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}]}
upgrades: {from: ">=1.2", minimum: 1.2.1}
images: [{name: agent, image: registry.example.com/agent:2.1.0}]
config: {schema: config.schema.json, default: config.yaml}
resources: [{name: dashboards, type: grafana-dashboard, path: dashboards/}]
probes: [{selector: {group: example.com, kind: Widget}, assertions: [{conditionEqual: {type: Ready, status: "True"}}]}]
source: https://git.example.com/web
revision: 3f2c1a
licenses: Apache-2.0
url: https://example.com/web
maintainers: [{name: Team Web, email: web@example.com}, {name: Ana, url: https://example.com/ana}, {name: Bo}]
links: [{name: repository, url: https://git.example.com/web}, {name: Documentation, url: https://example.com/docs}]
icon: icon.svg
keywords: [web, page]
security: {scan: enabled, languages: [go], exclude: ["**/*_test.go"], images: [registry.example.com/agent:2.1.0], branch: main, candidate: 1.4.0-rc.1}
"#;

const HEAD: &str = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\n";
const SMALL: &str = "name: web\nversion: 1.4.0\nformat: plain+v0\n";

fn messages_of(text: &str) -> Vec<String> {
    let findings = parse(text.as_bytes()).unwrap_err();
    findings
        .iter()
        .map(|finding| {
            format!(
                "{finding} ({})",
                finding.hint.as_deref().unwrap_or("NO HINT")
            )
        })
        .collect()
}

#[test]
fn reads_all_fields() {
    let package = parse(FULL.as_bytes()).unwrap();
    assert_eq!(package.title(), "bundle web 1.4.0");
    let kubernetes = package.kubernetes.clone().unwrap();
    assert_eq!(kubernetes.to_string(), ">=1.31 <1.38");
    assert_eq!(kubernetes.unsupported, Unsupported::Reject);
    assert_eq!(
        package.requires.as_ref().unwrap().packages[0]
            .version
            .as_str(),
        "^1.14"
    );
    let upgrades = package.upgrades.clone().unwrap();
    assert_eq!(upgrades.from.unwrap().as_str(), ">=1.2");
    assert_eq!(upgrades.minimum.unwrap().to_string(), "1.2.1");
    assert_eq!(
        package.named_paths(),
        ["config.schema.json", "config.yaml", "icon.svg"]
    );
    assert_eq!(package.about.maintainers.len(), 3);
    assert_eq!(package.about.security.unwrap().scan, Scan::Enabled);
}

#[test]
fn accepts_minimal_package() {
    let package = parse(format!("{HEAD}{SMALL}").as_bytes()).unwrap();
    assert_eq!((package.kubernetes, package.images.len()), (None, 0));
}

#[test]
fn reports_problems_with_location_and_hint() {
    for (text, expected) in [
        (
            "verison: 1.0.0\n",
            "bundle.yaml:6: verison: unknown field `verison` (did you mean `version`?)",
        ),
        (
            "owner: x\n",
            "bundle.yaml:6: owner: unknown field `owner` (the allowed fields are apiVersion, kind, name, version, format, description, kubernetes, requires, upgrades, images, config, resources, probes, maintainers, links, icon, keywords, security, source, revision, licenses, url)",
        ),
        (
            "kubernetes: {suported: '*'}\n",
            "bundle.yaml:6: kubernetes.suported: unknown field `suported` (did you mean `supported`?)",
        ),
        (
            "kubernetes: {supported: '>=1.38 <1.31'}\n",
            "bundle.yaml:6: kubernetes.supported: invalid version range `>=1.38 <1.31`: no version matches it (write a range like `>=1.31 <1.38`, `~1.31`, `1.31.x` or `1.29 - 1.31 || 1.33`)",
        ),
        (
            "kubernetes: {baseline: 1.33}\n",
            "bundle.yaml:6: kubernetes.baseline: the value is the number 1.33, but must be a string (put the value in quotes)",
        ),
        (
            "kubernetes: {baseline: '1.30', supported: '>=1.31'}\n",
            "bundle.yaml:6: kubernetes.baseline: the baseline 1.30 is outside of the supported range >=1.31 (extend `supported`, or set a baseline within it)",
        ),
        (
            "kubernetes: {unsupported: Ignore}\n",
            "bundle.yaml:6: kubernetes.unsupported: `Ignore` is neither Reject nor Warn (write `unsupported: Reject` or `unsupported: Warn`)",
        ),
        (
            "requires: {apis: [ServiceMonitor]}\n",
            "bundle.yaml:6: requires.apis[0]: invalid API `ServiceMonitor` (write group, version and kind: `monitoring.coreos.com/v1/ServiceMonitor`, or `v1/Node`)",
        ),
        (
            "requires: {packages: [{name: x}]}\n",
            "bundle.yaml:6: requires.packages[0].version: the field is missing (add `version: ^1.14`)",
        ),
        (
            "images: {name: x}\n",
            "bundle.yaml:6: images: the value is a map, but must be a list (start each item with `- `)",
        ),
        (
            "config: {schema: ../x}\n",
            "bundle.yaml:6: config.schema: invalid path `../x` (write a path relative to bundle.yaml, without `..`)",
        ),
        (
            "upgrades: x\n",
            "bundle.yaml:6: upgrades: the value is text, but must be a map (its fields are from, minimum)",
        ),
        (
            "upgrades: {}\n",
            "bundle.yaml:6: upgrades.from: neither `from` nor `minimum` is set (add `from: \">=1.2\"` or `minimum: 1.2.0`)",
        ),
        (
            "maintainers: [{name: Ana, email: ana}]\n",
            "bundle.yaml:6: maintainers[0].email: invalid mail address `ana` (write only the address, such as `team@example.com`; put the name in `name`)",
        ),
        (
            "links: [{name: docs, url: example.com}]\n",
            "bundle.yaml:6: links[0].url: invalid URL `example.com` (write it with its scheme: `https://example.com/docs`)",
        ),
        (
            "icon: http://example.com/icon.svg\n",
            "bundle.yaml:6: icon: `http://example.com/icon.svg` has no encryption (use an https URL, or add the file to the bundle)",
        ),
        (
            "security: {scan: yes}\n",
            "bundle.yaml:6: security.scan: the value is the boolean true, but must be a string (put the value in quotes)",
        ),
        (
            "security: {scan: on demand}\n",
            "bundle.yaml:6: security.scan: `on demand` is neither enabled nor disabled (write `scan: enabled` or `scan: disabled`)",
        ),
        (
            "keywords: ['', web]\n",
            "bundle.yaml:6: keywords[0]: the text is empty (write a word, or remove the item)",
        ),
        (
            "---\na: 1\n",
            "bundle.yaml:7: the file has more than one document (move manifests to manifests/)",
        ),
    ] {
        assert_eq!(messages_of(&format!("{HEAD}{SMALL}{text}")), [expected]);
    }
}

#[test]
fn reports_all_findings_of_a_package_together() {
    assert_eq!(
        messages_of("apiVersion: v1\nkind: Package\nname: Web\nversion: v1.4\nformat: helm+v9\n"),
        [
            "bundle.yaml:1: apiVersion: unknown value `v1` (write `apiVersion: bundle.core.rukpak.io/v1alpha1`)",
            "bundle.yaml:3: name: invalid package name `Web`: a name has lower-case letters, digits and `-`, and begins and ends with a letter or digit (choose a name such as `web` or `cert-manager`)",
            "bundle.yaml:4: version: `v1.4` is not a semantic version: unexpected character 'v' while parsing major version number (did you mean `1.4.0`?)",
            "bundle.yaml:5: format: detected unsupported bundle format \"helm+v9\" (did you mean `helm+v3`?)",
        ]
    );
    assert_eq!(messages_of("{}").len(), 5);
    assert_eq!(messages_of("- a\n").len(), 1);
}

#[test]
fn rejects_loose_versions_with_suggestion() {
    for (text, hint) in [
        ("'1.4'", "did you mean `1.4.0`?"),
        ("v1.4.0", "did you mean `1.4.0`?"),
        ("01.4.0-rc.1", "did you mean `1.4.0-rc.1`?"),
        ("latest", "such as `1.4.0`"),
        ("1.2.3.4", "such as `1.4.0`"),
    ] {
        let text = format!("{HEAD}name: web\nversion: {text}\nformat: plain+v0\n");
        assert!(
            messages_of(&text)[0].contains(hint),
            "{:?}",
            messages_of(&text)
        );
    }
    let long = format!(
        "{HEAD}name: {}\nversion: 1.0.0\nformat: plain+v0\n",
        "a".repeat(46)
    );
    assert!(messages_of(&long)[0].contains("it has 46 characters, more than the limit of 45"));
}

#[test]
fn package_survives_round_trip_through_annotations() {
    let package = parse(FULL.as_bytes()).unwrap();
    let annotations = annotations(&package);
    let expected = [
        (keys::FORMAT, "plain+v0"),
        (
            keys::KUBERNETES,
            r#"{"baseline":"1.33","supported":">=1.31 <1.38","unsupported":"Reject"}"#,
        ),
        (
            keys::REQUIRES,
            r#"{"apis":["monitoring.coreos.com/v1/ServiceMonitor","v1/Node"],"packages":[{"name":"cert-manager","version":"^1.14","digest":"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}]}"#,
        ),
        (
            keys::SECURITY,
            r#"{"scan":"enabled","languages":["go"],"exclude":["**/*_test.go"],"images":["registry.example.com/agent:2.1.0"],"branch":"main","candidate":"1.4.0-rc.1"}"#,
        ),
        (keys::UPGRADES, r#"{"from":">=1.2","minimum":"1.2.1"}"#),
        (
            keys::AUTHORS,
            "Team Web <web@example.com>, Ana <https://example.com/ana>, Bo",
        ),
        (keys::DESCRIPTION, "One line that `inspect` shows."),
        (keys::DOCUMENTATION, "https://example.com/docs"),
        (keys::LICENSES, "Apache-2.0"),
        (keys::REVISION, "3f2c1a"),
        (keys::SOURCE, "https://git.example.com/web"),
        (keys::TITLE, "web"),
        (keys::URL, "https://example.com/web"),
        (keys::VERSION, "1.4.0"),
    ];
    let annotated: Vec<(&str, &str)> = annotations
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(annotated, expected);

    let facts = PackageDescription::from_annotations(&annotations).unwrap();
    assert_eq!(facts.title(), package.title());
    assert_eq!(facts.kubernetes, package.kubernetes);
    assert_eq!(facts.requires, package.requires);
    assert_eq!(facts.format, Some(Format::PlainV0));
    let server = ServerVersion::parse("v1.30.2-eks-1552ad0").unwrap();
    assert_eq!(
        facts.fits(&server).unwrap().message,
        "bundle web 1.4.0 supports Kubernetes >=1.31 <1.38, but the version of the API server is v1.30.2-eks-1552ad0; \
         upgrade the cluster, or use a version of the bundle that supports 1.30"
    );
}

#[test]
fn foreign_images_have_no_facts_and_invalid_annotations_are_reported() {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    let other_image = map(&[(keys::TITLE, "nginx"), (keys::VERSION, "latest")]);
    assert_eq!(
        PackageDescription::from_annotations(&other_image).unwrap(),
        PackageDescription::default()
    );
    let long = format!("{{\"apis\":[{}\"\"]}}", "\"\",".repeat(64 << 10));
    for broken in [
        map(&[(keys::FORMAT, "plain+v0"), (keys::REQUIRES, &long)]),
        map(&[(keys::FORMAT, "zip")]),
        map(&[(keys::FORMAT, "plain+v0"), (keys::TITLE, "No Name\n")]),
        map(&[(keys::FORMAT, "plain+v0"), (keys::VERSION, "latest")]),
        map(&[
            (keys::FORMAT, "plain+v0"),
            (keys::KUBERNETES, "{\"supported\":\"nonsense\"}"),
        ]),
        map(&[(keys::FORMAT, "plain+v0"), (keys::KUBERNETES, "[[[")]),
    ] {
        assert!(
            PackageDescription::from_annotations(&broken)
                .unwrap_err()
                .hint
                .is_some()
        );
    }
}

/// Files in three groups:
/// - accepted by parser and schema
/// - rejected by parser and schema
/// - rejected only by the parser, because a schema cannot express the rule
#[test]
fn parser_and_schema_agree() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let valid = |text: &str| {
        let documents = crate::yaml::documents(text.as_bytes(), FILE).unwrap();
        validator.is_valid(&documents[0].value)
    };
    let with = |text: &str| format!("{HEAD}{SMALL}{text}");
    let instead = |line: &str| {
        let key = line.split(':').next().unwrap();
        let kept: String = format!("{HEAD}{SMALL}")
            .split_inclusive('\n')
            .filter(|other| !other.starts_with(&format!("{key}:")))
            .collect();
        format!("{kept}{line}\n")
    };
    let good = [
        FULL.to_owned(),
        with(""),
        instead("version: 1.4.0-rc.1+build.5"),
        instead("format: registry+v1"),
        instead("format: helm+v3"),
        instead("name: a"),
        with("kubernetes: {}\n"),
        with("kubernetes: {supported: '1.29 - 1.31 || ^1.33'}\n"),
        with("upgrades: {minimum: 0.0.1}\n"),
        with("config: {}\n"),
        with(
            "config: {schema: s.json, patches: [{kind: Deployment.apps, name: web, path: /spec/replicas, value: /replicas}]}\n",
        ),
        with(
            "config: {schema: s.json, patches: [{kind: Shop.a-b.example.com, namespace: a, name: web, path: '/a~1b/~0', value: /a/0}]}\n",
        ),
        with("icon: https://example.com/i.png?size=64\n"),
        with("icon: images/a..b/.icon\n"),
        with("resources: [{name: a, type: b, path: c/}]\n"),
        with("requires: {apis: [v1/Node, example.com/v1alpha1/MyKind]}\n"),
        with("description: ''\n"),
        with(
            "probes: [{selector: {kind: Pod, namespace: a, name: b}, assertions: [{fieldValue: {fieldPath: /a, value: ''}}, {fieldsEqual: {fieldA: /a, fieldB: /b}}]}]\n",
        ),
        with(&format!("description: {}\n", "x".repeat(2048))),
        with("keywords: [müller]\n"),
    ];
    for text in good {
        assert!(parse(text.as_bytes()).is_ok() && valid(&text), "{text}");
    }
    let bad = [
        "{}".to_owned(),
        "[]".to_owned(),
        HEAD.to_owned(),
        with("colour: red\n"),
        with("kubernetes: {suported: '*'}\n"),
        with("kubernetes: {baseline: 1.33}\n"),
        with("kubernetes: {baseline: v1.33}\n"),
        with("kubernetes: {unsupported: Ignore}\n"),
        with("kubernetes: {supported: ''}\n"),
        with("kubernetes: {supported: 'a/b'}\n"),
        instead("name: Web"),
        instead("name: web-"),
        instead(&format!("name: {}", "a".repeat(46))),
        instead("name: 5"),
        instead("version: '1.4'"),
        instead("version: v1.4.0"),
        instead("version: 01.4.0"),
        instead("version: 1.4.0-01"),
        instead("format: plain"),
        instead("kind: Bundle"),
        instead("apiVersion: v1"),
        with("requires: {apis: [ServiceMonitor]}\n"),
        with("requires: {apis: [a/b/c/D]}\n"),
        with("requires: {packages: [{name: x}]}\n"),
        with("requires: {packages: [{name: x, version: '1', digest: sha256:0}]}\n"),
        with("images: {name: x}\n"),
        with("images: [{name: x}]\n"),
        with(
            "config: {schema: s, patches: [{kind: deployment, name: web, path: /a, value: /a}]}\n",
        ),
        with(
            "config: {schema: s, patches: [{kind: Deployment., name: web, path: /a, value: /a}]}\n",
        ),
        with("config: {schema: s, patches: [{kind: Deployment.apps, path: /a, value: /a}]}\n"),
        with("config: {schema: s, patches: [{kind: Pod, name: web, path: a, value: /a}]}\n"),
        with("config: {schema: s, patches: [{kind: Pod, name: web, path: /, value: /a}]}\n"),
        with("config: {schema: s, patches: [{kind: Pod, name: web, path: '/a~2', value: /a}]}\n"),
        with("probes: [{selector: {kind: Pod}}]\n"),
        with("probes: [{assertions: []}]\n"),
        with("probes: [{selector: {kind: pod}, assertions: []}]\n"),
        with("probes: [{selector: {kind: Pod, group: A}, assertions: []}]\n"),
        with("probes: [{selector: {kind: Pod}, assertions: [{}]}]\n"),
        with("probes: [{selector: {kind: Pod}, assertions: [{cel: {rule: a}}]}]\n"),
        with(
            "probes: [{selector: {kind: Pod}, assertions: [{conditionEqual: {type: A, status: x}}]}]\n",
        ),
        with("config: {schema: ../x}\n"),
        with("config: {schema: /x}\n"),
        with("config: {schema: a//b}\n"),
        with("config: {schema: 'a\\b'}\n"),
        with("upgrades: {}\n"),
        with("upgrades: {minimum: '1.2'}\n"),
        with("maintainers: [{email: a@example.com}]\n"),
        with("maintainers: [{name: Ana, email: a@b@c}]\n"),
        with("links: [{name: docs}]\n"),
        with("links: [{name: docs, url: 'javascript:alert(1)'}]\n"),
        with("icon: http://example.com/i.png\n"),
        with("icon: ../i.png\n"),
        with("icon: https://\n"),
        with("keywords: [' ']\n"),
        with("keywords: web\n"),
        with("security: {}\n"),
        with("security: {scan: enabled, protecode: []}\n"),
        with("description: \"a\\nb\"\n"),
        with(&format!("description: {}\n", "x".repeat(2049))),
        with(&format!("keywords: [{}]\n", vec!["x"; 501].join(","))),
    ];
    for text in bad {
        assert!(parse(text.as_bytes()).is_err(), "the parser takes {text}");
        assert!(!valid(&text), "the schema takes {text}");
    }
    let only_the_parser_refuses = [
        with("config: {patches: [{kind: Pod, name: web, path: /a, value: /a}]}\n"),
        instead("format: helm+v3")
            + "config: {schema: s, patches: [{kind: Pod, name: web, path: /a, value: /a}]}\n",
        instead("version: 99999999999999999999.0.0"),
        with("probes: [{selector: {kind: Pod}, assertions: []}]\n"),
        with(
            "probes: [{selector: {kind: Secret}, assertions: [{fieldValue: {fieldPath: /a, value: b}}]}]\n",
        ),
        with(
            "probes: [{selector: {kind: Pod}, assertions: [{fieldValue: {fieldPath: /a, value: b}, fieldsEqual: {fieldA: /a, fieldB: /b}}]}]\n",
        ),
        with("kubernetes: {supported: '>1 <1'}\n"),
        with("kubernetes: {baseline: '1.30', supported: '>=1.31'}\n"),
        with(&format!("requires: {{apis: [v1/{}]}}\n", "A".repeat(64))),
        // Each field is within its limit, but together they exceed the limit of the manifest.
        with(&format!(
            "security: {{scan: enabled, exclude: [{}]}}\n",
            vec!["y".repeat(2000); 99].join(",")
        )),
    ];
    for text in only_the_parser_refuses {
        assert!(parse(text.as_bytes()).is_err(), "the parser takes {text}");
        assert!(valid(&text), "the schema refuses {text}");
    }
}

#[test]
fn table_contains_every_parsed_field() {
    let package = serde_json::to_value(parse(FULL.as_bytes()).unwrap()).unwrap();
    let written: std::collections::BTreeSet<&str> = package
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let known: std::collections::BTreeSet<&str> = shape::PACKAGE
        .names()
        .into_iter()
        .filter(|name| !matches!(*name, "apiVersion" | "kind"))
        .collect();
    assert_eq!(written, known);
    assert!(serde_json::to_string(&schema()).unwrap().len() < 32 << 10);
}

#[test]
fn lines_of_many_findings_are_found_in_one_pass() {
    let fields: Vec<_> = (0..5_000).map(|n| format!("k{n}: 1\n")).collect();
    let fields = fields.concat();
    let text = format!("{}{fields}", "#\n".repeat(200_000));
    let findings = parse(text.as_bytes()).unwrap_err();
    let last = findings.iter().rev().find(|one| one.place.line.is_some());
    assert!(last.unwrap().place.line > Some(200_000));
}

/// With a search for the names of all fields, this test would need a minute.
#[test]
fn similar_names_are_searched_only_for_listed_findings() {
    let fields: Vec<_> = (0..100_000)
        .map(|number| format!("{}{number}: 1\n", "x".repeat(40)))
        .collect();
    let findings = parse(fields.concat().as_bytes()).unwrap_err();
    assert!(findings.is_full(crate::diagnostic::Severity::Error));
    assert!(findings.len() < 200, "{}", findings.len());
}
