//! ClusterServiceVersion: install modes, permissions, deployments, webhooks and description. The
//! module `validation` rejects unsupported values.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{diagnostic::Finding, object::Manifest};

/// Parsed ClusterServiceVersion.
#[derive(Debug, Clone, PartialEq)]
pub struct Csv {
    /// Name, such as `memcached-operator.v0.1.0`.
    pub name: String,
    /// Annotations of the ClusterServiceVersion.
    pub annotations: BTreeMap<String, String>,
    /// File and line of the ClusterServiceVersion, for findings.
    pub(super) place: (String, usize),
    /// `spec` of the ClusterServiceVersion.
    pub(super) spec: Spec,
}

/// Link or maintainer, with a name and an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct LinkOrMaintainer {
    /// Name of the link or maintainer.
    pub name: String,
    /// URL of the link.
    pub url: String,
    /// Email address of the maintainer.
    pub email: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) version: String,
    pub(super) display_name: String,
    pub(super) min_kube_version: String,
    /// Name of the replaced ClusterServiceVersion. Installations ignore this name.
    pub(super) replaces: Value,
    pub(super) keywords: Vec<String>,
    pub(super) links: Vec<LinkOrMaintainer>,
    pub(super) maintainers: Vec<LinkOrMaintainer>,
    pub(super) install_modes: Vec<InstallMode>,
    pub(super) install: Install,
    pub(super) webhookdefinitions: Vec<WebhookDefinition>,
    pub(super) apiservicedefinitions: Definitions,
    pub(super) customresourcedefinitions: Definitions,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct InstallMode {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) supported: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Install {
    pub(super) strategy: String,
    pub(super) spec: Strategy,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Strategy {
    pub(super) deployments: Vec<Deployment>,
    pub(super) permissions: Vec<Permission>,
    pub(super) cluster_permissions: Vec<Permission>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Deployment {
    pub(super) name: String,
    pub(super) label: BTreeMap<String, String>,
    pub(super) spec: Value,
    /// Annotations that the configuration adds to the Deployment.
    #[serde(skip)]
    pub(super) annotations: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Permission {
    pub(super) service_account_name: String,
    pub(super) rules: Vec<Value>,
}

/// Kind of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebhookKind {
    Validating,
    Mutating,
    Conversion,
}

/// Webhook that a Deployment serves.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WebhookDefinition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) generate_name: String,
    pub(super) deployment_name: String,
    pub(super) container_port: u16,
    pub(super) target_port: Option<Value>,
    pub(super) rules: Value,
    pub(super) failure_policy: Option<Value>,
    pub(super) match_policy: Option<Value>,
    pub(super) object_selector: Option<Value>,
    pub(super) side_effects: Option<Value>,
    pub(super) timeout_seconds: Option<Value>,
    pub(super) admission_review_versions: Vec<String>,
    pub(super) reinvocation_policy: Option<Value>,
    pub(super) webhook_path: Option<String>,
    #[serde(rename = "conversionCRDs")]
    pub(super) conversion_crds: Vec<String>,
}

impl WebhookDefinition {
    /// Returns the kind of the webhook; `None` for an unknown kind.
    pub(super) fn kind(&self) -> Option<WebhookKind> {
        match self.type_.as_str() {
            "ValidatingAdmissionWebhook" => Some(WebhookKind::Validating),
            "MutatingAdmissionWebhook" => Some(WebhookKind::Mutating),
            "ConversionWebhook" => Some(WebhookKind::Conversion),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Definitions {
    pub(super) owned: Vec<Value>,
    pub(super) required: Vec<Value>,
}

impl Csv {
    /// Parses the object. Its values move into the result.
    pub(super) fn read(manifest: Manifest) -> Result<Self, Finding> {
        let Manifest {
            id,
            mut value,
            file,
            line,
        } = manifest;
        let unreadable = |error: serde_json::Error| {
            super::refused(format!("invalid ClusterServiceVersion: {error}"))
                .in_file(&file)
                .at_line(line)
                .about(id.to_string())
                .hint("`operator-sdk bundle validate` shows the errors")
        };
        let annotations = match value["metadata"]["annotations"].take() {
            Value::Null => BTreeMap::new(),
            annotations => serde_json::from_value(annotations).map_err(unreadable)?,
        };
        let mut spec = value["spec"].take();
        without_nulls(&mut spec);
        let spec = match spec {
            Value::Null => Spec::default(),
            spec => serde_json::from_value(spec).map_err(unreadable)?,
        };
        Ok(Self {
            name: id.name,
            annotations,
            place: (file, line),
            spec,
        })
    }

    /// Returns the version of the operator, as written.
    pub fn version(&self) -> &str {
        &self.spec.version
    }

    /// Returns the display name.
    pub fn display_name(&self) -> &str {
        &self.spec.display_name
    }

    /// Returns the oldest supported Kubernetes version as written; empty if it is not declared.
    pub fn min_kubernetes(&self) -> &str {
        &self.spec.min_kube_version
    }

    /// Returns the keywords for searches.
    pub fn keywords(&self) -> &[String] {
        &self.spec.keywords
    }

    /// Returns the links to documentation.
    pub fn links(&self) -> &[LinkOrMaintainer] {
        &self.spec.links
    }

    /// Returns the maintainers.
    pub fn maintainers(&self) -> &[LinkOrMaintainer] {
        &self.spec.maintainers
    }

    /// Returns the names of the CustomResourceDefinitions that the operator owns.
    pub(super) fn owned_crds(&self) -> impl Iterator<Item = &str> {
        let owned = &self.spec.customresourcedefinitions.owned;
        owned
            .iter()
            .map(|one| one["name"].as_str().unwrap_or_default())
    }

    /// Returns the required custom resources of other operators, as `group/version/Kind`.
    pub fn required_apis(&self) -> Vec<String> {
        let definitions = &self.spec.customresourcedefinitions.required;
        definitions
            .iter()
            .filter_map(|one| {
                let (_, group) = one["name"].as_str()?.split_once('.')?;
                let (version, kind) = (one["version"].as_str()?, one["kind"].as_str()?);
                Some(format!("{group}/{version}/{kind}"))
            })
            .collect()
    }
}

/// Removes null fields, which the API server ignores.
pub(super) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}
