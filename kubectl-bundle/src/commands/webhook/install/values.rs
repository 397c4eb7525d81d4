//! Values of `install`: some of the values of the Helm chart, with the same names, defaults and
//! effect.

use std::collections::BTreeMap;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::yaml;
use serde::Deserialize;
use serde_json::{Value, json};

use super::manifests::{DEPLOYMENT, EmbeddedManifest};
use crate::failure::Outcome;

/// Values that differ from the defaults. Unknown keys are errors.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ChartValues {
    image: ImageValues,
    replicas: Option<u32>,
    resources: Option<Value>,
    priority_class_name: String,
    node_selector: BTreeMap<String, String>,
    tolerations: Vec<Value>,
    affinity: Option<Value>,
    topology_spread_constraints: Option<Vec<Value>>,
    pod_labels: BTreeMap<String, String>,
    pod_annotations: BTreeMap<String, String>,
    proxy: ProxyValues,
    log: LogValues,
    cache: CacheValues,
    settings: SettingsValues,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ImageValues {
    repository: String,
    digest: String,
    tag: String,
    variant: ImageVariant,
    pull_policy: Option<String>,
    pull_secrets: Vec<String>,
}

/// Variant of the image.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ImageVariant {
    /// The image without external commands.
    #[default]
    #[serde(rename = "")]
    Plain,
    /// The full image, with helm, git and ssh.
    Full,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ProxyValues {
    https: String,
    http: String,
    no_proxy: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LogValues {
    format: Option<String>,
    level: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct CacheValues {
    size_limit: Option<String>,
    limit: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct SettingsValues {
    drain_delay: String,
    drain_timeout: String,
    lease_duration: String,
    path_rotation_interval: String,
    review_deadline: String,
    rights_check_interval: String,
    source_check_interval: String,
}

impl SettingsValues {
    /// Returns the flags of bundle-webhook with their values, sorted by name. The value is empty if
    /// the flag is not set.
    fn all(&self) -> [(&str, &str); 7] {
        [
            ("drain-delay", &self.drain_delay),
            ("drain-timeout", &self.drain_timeout),
            ("lease-duration", &self.lease_duration),
            ("path-rotation-interval", &self.path_rotation_interval),
            ("review-deadline", &self.review_deadline),
            ("rights-check-interval", &self.rights_check_interval),
            ("source-check-interval", &self.source_check_interval),
        ]
    }
}

impl ChartValues {
    /// Parses a file of values. Returns an error if the file is not a single YAML document, or has
    /// an unknown key or a wrong type.
    pub(crate) fn parse(text: &[u8], file: &str) -> Outcome<Self> {
        let mut documents = yaml::documents(text, file)?;
        let unusable = |message: String| {
            Finding::error(codes::usage::BAD_ARGUMENT, message)
                .in_file(file)
                .hint("kubectl bundle install --help lists the supported keys; use the Helm chart for other values")
        };
        if documents.len() != 1 {
            return Err(unusable("values are one YAML document".to_owned()).into());
        }
        serde_json::from_value(documents.remove(0).value)
            .map_err(|error| unusable(format!("these values cannot be used: {error}")).into())
    }

    /// Returns the image in the values.
    pub(crate) fn image(&self) -> Option<String> {
        let ImageValues {
            repository,
            digest,
            tag,
            variant,
            ..
        } = &self.image;
        if repository.is_empty() {
            return None;
        }
        let tag = match variant {
            ImageVariant::Full if !tag.is_empty() => &format!("{tag}-full"),
            _ => tag,
        };
        let mut image = repository.clone();
        for (separator, part) in [(':', tag), ('@', digest)] {
            if !part.is_empty() {
                image.push(separator);
                image.push_str(part);
            }
        }
        Some(image)
    }

    /// Changes the manifests in the same way as the chart for these values.
    pub(crate) fn apply(&self, image: &str, manifests: &mut [EmbeddedManifest]) {
        for manifest in manifests {
            if manifest.kind() == "Deployment" && manifest.name() == DEPLOYMENT {
                self.apply_to(image, &mut manifest.object);
            }
        }
    }

    fn apply_to(&self, image: &str, deployment: &mut Value) {
        if let Some(replicas) = self.replicas {
            deployment["spec"]["replicas"] = replicas.into();
        }
        let template = &mut deployment["spec"]["template"];
        for (name, value) in &self.pod_labels {
            template["metadata"]["labels"][name] = value.as_str().into();
        }
        if !self.pod_annotations.is_empty() {
            template["metadata"]["annotations"] = json!(self.pod_annotations);
        }
        let pod = &mut template["spec"];
        if !self.image.pull_secrets.is_empty() {
            let names = self.image.pull_secrets.iter();
            pod["imagePullSecrets"] = names.map(|name| json!({"name": name})).collect();
        }
        if let Some(constraints) = &self.topology_spread_constraints {
            set_or_remove(pod, "topologySpreadConstraints", json!(constraints));
        }
        for (name, value) in [
            ("affinity", self.affinity.clone().unwrap_or_default()),
            ("nodeSelector", json!(self.node_selector)),
            ("tolerations", json!(self.tolerations)),
            ("priorityClassName", json!(self.priority_class_name)),
        ] {
            set_or_remove(pod, name, value);
        }
        if let Some(limit) = &self.cache.size_limit {
            for volume in pod["volumes"].as_array_mut().into_iter().flatten() {
                if volume["name"] == "cache" {
                    volume["emptyDir"]["sizeLimit"] = limit.as_str().into();
                }
            }
        }
        let container = &mut pod["containers"][0];
        container["image"] = image.into();
        if let Some(policy) = &self.image.pull_policy {
            container["imagePullPolicy"] = policy.as_str().into();
        }
        if let Some(resources) = &self.resources {
            merge(&mut container["resources"], resources);
        }
        let arguments = self.arguments();
        if !arguments.is_empty() {
            container["args"] = json!(arguments);
        }
        if let Some(variables) = container["env"].as_array_mut() {
            for (name, value) in [
                ("HTTPS_PROXY", &self.proxy.https),
                ("HTTP_PROXY", &self.proxy.http),
                ("NO_PROXY", &self.proxy.no_proxy),
            ] {
                if !value.is_empty() {
                    variables.push(json!({"name": name, "value": value}));
                }
            }
        }
    }

    /// Returns the flags of bundle-webhook that differ from its defaults.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        for (flag, value, default) in [
            ("log-format", &self.log.format, "json"),
            ("log-level", &self.log.level, "info"),
            ("cache-limit", &self.cache.limit, "512Mi"),
        ] {
            if let Some(value) = value.as_deref().filter(|value| *value != default) {
                arguments.push(format!("--{flag}={value}"));
            }
        }
        for (flag, value) in self.settings.all() {
            if !value.is_empty() {
                arguments.push(format!("--{flag}={value}"));
            }
        }
        arguments
    }
}

/// Sets a field, or removes the field if the value is empty.
fn set_or_remove(object: &mut Value, name: &str, value: Value) {
    let is_empty = match &value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    if let Some(fields) = object.as_object_mut() {
        if is_empty {
            fields.remove(name);
        } else {
            fields.insert(name.to_owned(), value);
        }
    }
}

/// Merges `values` into `target` as Helm does. `null` removes a key. A value that is not a map is
/// replaced.
fn merge(target: &mut Value, values: &Value) {
    match (target.as_object_mut(), values) {
        (Some(target), Value::Object(values)) => {
            for (name, value) in values {
                if value.is_null() {
                    target.remove(name);
                } else {
                    merge(target.entry(name).or_insert(Value::Null), value);
                }
            }
        }
        _ => *target = values.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::webhook::install::manifests;

    fn parse(value: &Value) -> Outcome<ChartValues> {
        ChartValues::parse(value.to_string().as_bytes(), "values.yaml")
    }

    #[test]
    fn unknown_keys_are_rejected_by_name() {
        for (value, key) in [
            (json!({"replica": 1}), "replica"),
            (json!({"image": {"digst": ""}}), "digst"),
            (json!({"settings": {"lease": ""}}), "lease"),
            (json!({"classes": {}}), "classes"),
        ] {
            let failure = format!("{:?}", parse(&value).unwrap_err());
            assert!(
                failure.contains(&format!("unknown field `{key}`")),
                "{failure}"
            );
        }
    }

    #[test]
    fn image_of_values_has_tag_and_digest() {
        let values = parse(
            &json!({"image": {"repository": "r.example.com/w", "tag": "1", "digest": "sha256:a"}}),
        );
        assert_eq!(
            values.unwrap().image().as_deref(),
            Some("r.example.com/w:1@sha256:a")
        );
        assert_eq!(ChartValues::default().image(), None);
    }

    #[test]
    fn resources_are_merged_with_the_defaults() {
        let mut all = manifests::all("bundle-system").unwrap();
        let values = parse(&json!({"resources": {"limits": {"memory": "256Mi"}}})).unwrap();
        values.apply("r.example.com/w:1", &mut all);
        let deployment = all.iter().find(|one| one.kind() == "Deployment").unwrap();
        let container = &deployment.object["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "r.example.com/w:1");
        assert_eq!(
            container["resources"],
            json!({"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}})
        );
    }
}
