//! `spec.config` of operators.

use serde_json::json;

use super::*;
use crate::diagnostic::{Findings, codes};
use crate::format::CommandOutput;

/// Renders the operator with these install modes in the namespace `own`.
fn render(modes: &[&str], config: Option<Value>) -> Result<Content, Findings> {
    let modes: Vec<String> = modes
        .iter()
        .map(|mode| format!("{{type: {mode}, supported: true}}"))
        .collect();
    let supported =
        "  - {type: OwnNamespace, supported: false}\n  - {type: AllNamespaces, supported: true}\n";
    assert!(CSV.contains(supported));
    let csv = CSV.replace(supported, &format!("  - {}\n", modes.join("\n  - ")));
    let target = RenderTarget {
        config,
        ..RenderTarget::in_namespace(Some("own"))
    };
    format::render(&RenderInput {
        files: &bundle(&csv, &[]),
        target: &target,
        output: CommandOutput::Missing,
    })
}

/// Returns the value of `olm.targetNamespaces`, and the namespaces of the Roles.
fn targets(content: &Content) -> (String, Vec<String>) {
    let deployment = find(content, "Deployment.apps/own/cache-operator");
    let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
    let roles = content.objects.iter();
    let roles = roles.filter(|object| object.id.kind == "Role");
    (
        annotations["olm.targetNamespaces"]
            .as_str()
            .unwrap()
            .to_owned(),
        roles
            .map(|role| role.id.namespace.clone().unwrap())
            .collect(),
    )
}

#[test]
fn operator_watches_the_namespaces_that_the_configuration_names() {
    let all: (&str, &[&str]) = ("", &[]);
    for (modes, config, expected) in [
        (&["AllNamespaces"][..], Some(json!({})), all),
        (
            &["AllNamespaces", "OwnNamespace"],
            Some(json!({"watchNamespace": ""})),
            all,
        ),
        (
            &["AllNamespaces"],
            Some(json!({"watchNamespace": null})),
            all,
        ),
        (
            &["AllNamespaces", "OwnNamespace"],
            Some(json!({"watchNamespace": "own"})),
            ("own", &["own"]),
        ),
        (
            &["SingleNamespace"],
            Some(json!({"watchNamespaces": ["a"]})),
            ("a", &["a"]),
        ),
        (
            &["MultiNamespace"],
            Some(json!({"watchNamespaces": ["b", "a"]})),
            ("b,a", &["b", "a"]),
        ),
        // The configuration is not known when a bundle is built.
        (&["SingleNamespace"], None, ("own", &["own"])),
        (&["AllNamespaces", "SingleNamespace"], None, all),
    ] {
        let content = render(modes, config).unwrap_or_else(|findings| panic!("{findings}"));
        let (annotation, roles) = targets(&content);
        assert_eq!(
            (annotation.as_str(), roles.as_slice()),
            (
                expected.0,
                &expected
                    .1
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()[..]
            )
        );
    }
}

#[test]
fn wrong_configurations_are_rejected_with_the_path_of_each_error() {
    let prefix = "convert registry+v1 bundle to plain+v0 bundle: ";
    let many = vec![json!({"name": "a", "value": "b".repeat(1_000)}); 70];
    for (modes, config, expected) in [
        (
            &["OwnNamespace"][..],
            json!({}),
            format!("spec.config.watchNamespace: {prefix}AllNamespace install mode must be enabled"),
        ),
        (
            &["OwnNamespace"],
            json!({"watchNamespace": "a"}),
            format!("spec.config.watchNamespace: {prefix}supported install modes [OwnNamespace] do not support target namespaces [a]"),
        ),
        (
            &["AllNamespaces"],
            json!({"watchNamespaces": ["a", "b"]}),
            format!("spec.config.watchNamespaces: {prefix}supported install modes [AllNamespaces] do not support target namespaces [a b]"),
        ),
        (
            &["SingleNamespace"],
            json!({"watchNamespace": "a", "watchNamespaces": ["b"]}),
            "spec.config.watchNamespaces: watchNamespace and watchNamespaces are both set".to_owned(),
        ),
        (
            &["SingleNamespace"],
            json!({"watchNamespace": "A_"}),
            "spec.config.watchNamespace: \"A_\" is not the name of a namespace".to_owned(),
        ),
        (
            &["AllNamespaces"],
            json!({"values": "a: b", "watchNamespace": 1}),
            "spec.config.watchNamespace: 1 is not of type \"string\"\nspec.config: Additional properties are not allowed ('values' was unexpected)".to_owned(),
        ),
        (
            &["AllNamespaces"],
            json!({"deploymentConfig": {
                "env": [{"name": "A", "valeu": "b"}, {"value": "b"}], "resources": {"limits": {"cpu": true}},
                "replicas": 2, "nodeSelector": {"a": 1}, "volumeMounts": [{"name": "a"}],
            }}),
            "spec.config.deploymentConfig.env[0]: Additional properties are not allowed ('valeu' was unexpected)\n\
             spec.config.deploymentConfig.env[1]: \"name\" is a required property\n\
             spec.config.deploymentConfig.nodeSelector.a: 1 is not of type \"string\"\n\
             spec.config.deploymentConfig.resources.limits.cpu: true is not of types \"number\", \"string\"\n\
             spec.config.deploymentConfig.volumeMounts[0]: \"mountPath\" is a required property\n\
             spec.config.deploymentConfig: Additional properties are not allowed ('replicas' was unexpected)".to_owned(),
        ),
        (
            &["AllNamespaces"],
            json!({"deploymentConfig": {"env": many}}),
            "spec.config: the configuration has more than the limit of 65536 bytes, or too many values".to_owned(),
        ),
    ] {
        let findings = render(modes, Some(config)).unwrap_err();
        let mut lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        lines.sort();
        assert_eq!(lines.join("\n"), expected);
        for finding in &findings {
            assert_eq!(finding.code, codes::format::INVALID_CONFIGURATION);
            assert!(finding.hint.is_some());
        }
    }
}

#[test]
fn values_that_are_copied_into_many_objects_are_limited() {
    let namespaces: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    let config = json!({"watchNamespaces": namespaces});
    let small = render(&["MultiNamespace"], Some(config.clone())).unwrap();
    assert_eq!(targets(&small).1.len(), 100);

    let rules = (0..2_000)
        .map(|number| format!("{{apiGroups: [''], resources: [r{number}], verbs: [get]}}"));
    let rules = rules.collect::<Vec<_>>().join(", ");
    let csv = CSV
        .replace(
            "{apiGroups: [\"\"], resources: [configmaps], verbs: [get, create]}",
            &rules,
        )
        .replace("type: AllNamespaces", "type: MultiNamespace");
    let files = bundle(&csv, &[]);
    let target = RenderTarget {
        config: Some(config),
        ..RenderTarget::in_namespace(Some("own"))
    };
    let input = RenderInput {
        files: &files,
        target: &target,
        output: CommandOutput::Missing,
    };
    let findings = format::render(&input).unwrap_err().to_string();
    assert!(
        findings.contains("need more than the limit of 4 MiB"),
        "{findings}"
    );
}

#[test]
fn malformed_pod_templates_are_left_to_the_api_server() {
    for template in [
        "text",
        "[1]",
        "{spec: text, metadata: [1]}",
        "{spec: {containers: [text], volumes: text}}",
    ] {
        let csv = format!(
            "{}          template: {template}\n",
            CSV.split("          template:").next().unwrap()
        );
        let csv = csv.replace(
            "  install:\n",
            "  webhookdefinitions: [{type: MutatingAdmissionWebhook, generateName: m, deploymentName: cache-operator, admissionReviewVersions: [v1]}]\n  install:\n",
        );
        let target = RenderTarget {
            config: Some(json!({"deploymentConfig": {
                "env": [{"name": "A"}], "annotations": {"a": "b"}, "volumes": [{"name": "v"}], "affinity": {"podAffinity": {}},
            }})),
            ..RenderTarget::in_namespace(Some("own"))
        };
        let input = RenderInput {
            files: &bundle(&csv, &[]),
            target: &target,
            output: CommandOutput::Missing,
        };
        format::render(&input).unwrap_or_else(|findings| panic!("{template}: {findings}"));
    }
}
