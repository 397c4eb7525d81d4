//! The example that `init` writes: a complete package that can be built and installed.

use bundle_core::package::{Config, ConfigPatch, Package};

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "greeting": {
      "type": "string",
      "description": "Text of the greeting."
    }
  },
  "additionalProperties": false
}
"#;

const DEFAULTS: &str = "greeting: hello\n";

/// Returns the files, `bundle.yaml` first.
pub(super) fn files(mut package: Package) -> Vec<(String, String)> {
    let name = package.name.clone();
    package.description = Some(format!("Summary of {name} in one line"));
    package.config = Some(Config {
        schema: Some("config.schema.json".to_owned()),
        default: Some("config.yaml".to_owned()),
        patches: vec![ConfigPatch {
            kind: "ConfigMap".to_owned(),
            name: name.clone(),
            namespace: None,
            path: "/data/greeting".to_owned(),
            value: "/greeting".to_owned(),
        }],
    });
    let manifests = format!(
        "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  namespace: default
  labels: {{app.kubernetes.io/name: {name}}}
data:
  greeting: hello
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  namespace: default
  labels: {{app.kubernetes.io/name: {name}}}
spec:
  replicas: 1
  selector:
    matchLabels: {{app.kubernetes.io/name: {name}}}
  template:
    metadata:
      labels: {{app.kubernetes.io/name: {name}}}
    spec:
      automountServiceAccountToken: false
      containers:
      - name: {name}
        # A program that only waits: replace it with your own image. `build` requires a tag that does not change.
        image: registry.k8s.io/pause:3.10
        envFrom:
        - configMapRef: {{name: {name}}}
        resources:
          requests: {{cpu: 10m, memory: 16Mi}}
          limits: {{memory: 16Mi}}
        securityContext:
          allowPrivilegeEscalation: false
          runAsNonRoot: true
          runAsUser: 65535
          capabilities: {{drop: [ALL]}}
          seccompProfile: {{type: RuntimeDefault}}
"
    );
    vec![
        ("bundle.yaml".to_owned(), package.to_yaml()),
        (format!("manifests/{name}.yaml"), manifests),
        ("config.schema.json".to_owned(), SCHEMA.to_owned()),
        ("config.yaml".to_owned(), DEFAULTS.to_owned()),
    ]
}
