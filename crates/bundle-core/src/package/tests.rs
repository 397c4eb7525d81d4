//! What `bundle.yaml` may say, in which words the rest is refused, and that annotations carry it.
//! Not here: single helpers, which are tested beside them.

use std::collections::BTreeMap;

use super::*;
use crate::version::{ServerVersion, Unsupported};

const FULL: &str = r#"
apiVersion: bundle.core.rukpak.io/v1alpha1
kind: Package
name: web
version: 1.4.0
format: plain+v0
description: One line that `inspect` shows.
kubernetes: {baseline: "1.33", supported: ">=1.31 <1.38", unsupported: Reject}
requires: {apis: [monitoring.coreos.com/v1/ServiceMonitor, v1/Node], packages: [{name: cert-manager, version: ^1.14}]}
upgrades: {from: ">=1.2"}
images: [{name: agent, image: registry.example.com/agent:2.1.0}]
config: {schema: config.schema.json, default: config.yaml}
resources: [{name: dashboards, type: grafana-dashboard, path: dashboards/}]
source: https://git.example.com/web
revision: 3f2c1a
licenses: Apache-2.0
url: https://example.com/web
"#;

const HEAD: &str = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\n";
const SMALL: &str = "name: web\nversion: 1.4.0\nformat: plain+v0\n";

fn said(text: &str) -> Vec<String> {
    let findings = parse(text.as_bytes()).unwrap_err();
    findings
        .0
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
    let kubernetes = package.kubernetes.unwrap();
    assert_eq!(kubernetes.to_string(), ">=1.31 <1.38");
    assert_eq!(kubernetes.unsupported, Unsupported::Reject);
    assert_eq!(
        package.requires.unwrap().packages[0].version.as_str(),
        "^1.14"
    );
    assert_eq!(package.upgrades.unwrap().from.as_str(), ">=1.2");
    assert_eq!(package.resources[0].path, "dashboards/");
}

#[test]
fn needs_little() {
    let package = parse(format!("{HEAD}{SMALL}").as_bytes()).unwrap();
    assert_eq!((package.kubernetes, package.images.len()), (None, 0));
}

#[test]
fn says_what_is_wrong_with_its_place_and_what_to_do() {
    for (text, expected) in [
        (
            "verison: 1.0.0\n",
            "bundle.yaml:6: verison: `verison` is not a field of a package (did you mean `version`?)",
        ),
        (
            "owner: x\n",
            "bundle.yaml:6: owner: `owner` is not a field of a package (the fields here are apiVersion, kind, name, version, format, description, kubernetes, requires, upgrades, images, config, resources, source, revision, licenses, url)",
        ),
        (
            "kubernetes: {suported: '*'}\n",
            "bundle.yaml:6: kubernetes.suported: `suported` is not a field of a package (did you mean `supported`?)",
        ),
        (
            "kubernetes: {supported: '>=1.38 <1.31'}\n",
            "bundle.yaml:6: kubernetes.supported: `>=1.38 <1.31` is not a range of versions: no version can meet it (write a range like `>=1.31 <1.38`, `~1.31`, `1.31.x` or `1.29 - 1.31 || 1.33`)",
        ),
        (
            "kubernetes: {baseline: 1.33}\n",
            "bundle.yaml:6: kubernetes.baseline: text belongs here, and this reads as the number 1.33 (put the value in quotes)",
        ),
        (
            "kubernetes: {baseline: '1.30', supported: '>=1.31'}\n",
            "bundle.yaml:6: kubernetes.baseline: the baseline 1.30 lies outside of what is supported, >=1.31 (widen `supported`, or name a baseline within it)",
        ),
        (
            "kubernetes: {unsupported: Ignore}\n",
            "bundle.yaml:6: kubernetes.unsupported: `Ignore` is neither Reject nor Warn (write `unsupported: Reject` or `unsupported: Warn`)",
        ),
        (
            "requires: {apis: [ServiceMonitor]}\n",
            "bundle.yaml:6: requires.apis[0]: `ServiceMonitor` is not an API (write group, version and kind: `monitoring.coreos.com/v1/ServiceMonitor`, or `v1/Node`)",
        ),
        (
            "requires: {packages: [{name: x}]}\n",
            "bundle.yaml:6: requires.packages[0].version: the field is missing (add `version: ^1.14`)",
        ),
        (
            "images: {name: x}\n",
            "bundle.yaml:6: images: a list belongs here, and this is a map (start each item with `- `)",
        ),
        (
            "config: {schema: ../x}\n",
            "bundle.yaml:6: config.schema: `../x` is not a path within the bundle (write it relative to bundle.yaml, without `..`)",
        ),
        (
            "upgrades: x\n",
            "bundle.yaml:6: upgrades: a map belongs here, and this is text (its fields are from)",
        ),
        (
            "---\na: 1\n",
            "bundle.yaml:7: a second document follows, and a package is one (manifests belong into manifests/)",
        ),
    ] {
        assert_eq!(said(&format!("{HEAD}{SMALL}{text}")), [expected]);
    }
}

#[test]
fn says_all_at_once() {
    assert_eq!(
        said("apiVersion: v1\nkind: Package\nname: Web\nversion: v1.4\nformat: helm+v3\n"),
        [
            "bundle.yaml:1: apiVersion: `v1` is not known here (write `apiVersion: bundle.core.rukpak.io/v1alpha1`)",
            "bundle.yaml:3: name: `Web` cannot be the name of a package: only lower-case letters, digits and `-` are, and it starts and ends with a letter or digit (choose a name such as `web` or `cert-manager`)",
            "bundle.yaml:4: version: `v1.4` is not a semantic version: unexpected character 'v' while parsing major version number (try with `1.4.0`)",
            "bundle.yaml:5: format: detected unsupported bundle format \"helm+v3\" (this version of kubectl-bundle cannot read helm+v3 yet; it reads plain+v0)",
        ]
    );
    assert_eq!(said("{}").len(), 5);
    assert_eq!(said("- a\n").len(), 1);
}

#[test]
fn versions_are_strict_and_say_what_was_meant() {
    for (text, hint) in [
        ("'1.4'", "try with `1.4.0`"),
        ("v1.4.0", "try with `1.4.0`"),
        ("01.4.0-rc.1", "try with `1.4.0-rc.1`"),
        ("latest", "try with `1.4.0`"),
        ("1.2.3.4", "try with `1.4.0`"),
    ] {
        let text = format!("{HEAD}name: web\nversion: {text}\nformat: plain+v0\n");
        assert!(said(&text)[0].contains(hint), "{:?}", said(&text));
    }
    let long = format!(
        "{HEAD}name: {}\nversion: 1.0.0\nformat: plain+v0\n",
        "a".repeat(46)
    );
    assert!(said(&long)[0].contains("it has 46 characters, and at most 45 fit"));
}

#[test]
fn annotations_carry_what_the_package_says() {
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
            r#"{"apis":["monitoring.coreos.com/v1/ServiceMonitor","v1/Node"],"packages":[{"name":"cert-manager","version":"^1.14"}]}"#,
        ),
        (keys::UPGRADES, r#"{"from":">=1.2"}"#),
        (keys::DESCRIPTION, "One line that `inspect` shows."),
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

    let facts = Facts::from_annotations(&annotations).unwrap();
    assert_eq!(facts.title(), package.title());
    assert_eq!(facts.kubernetes, package.kubernetes);
    assert_eq!(facts.requires, package.requires);
    assert_eq!(facts.format, Some(Format::PlainV0));
    let server = ServerVersion::parse("v1.30.2-eks-1552ad0").unwrap();
    assert_eq!(
        facts.fits(&server).unwrap().message,
        "bundle web 1.4.0 supports Kubernetes >=1.31 <1.38, and this server is v1.30.2-eks-1552ad0; \
         upgrade the cluster, or use a version of the bundle made for 1.30"
    );
}

#[test]
fn images_of_others_have_no_facts_and_broken_ones_are_told() {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    let foreign = map(&[(keys::TITLE, "nginx"), (keys::VERSION, "latest")]);
    assert_eq!(Facts::from_annotations(&foreign).unwrap(), Facts::default());
    for broken in [
        map(&[(keys::FORMAT, "zip")]),
        map(&[(keys::FORMAT, "plain+v0"), (keys::TITLE, "No Name\n")]),
        map(&[(keys::FORMAT, "plain+v0"), (keys::VERSION, "latest")]),
        map(&[
            (keys::FORMAT, "plain+v0"),
            (keys::KUBERNETES, "{\"supported\":\"nonsense\"}"),
        ]),
        map(&[(keys::FORMAT, "plain+v0"), (keys::KUBERNETES, "[[[")]),
    ] {
        assert!(Facts::from_annotations(&broken).unwrap_err().hint.is_some());
    }
}
