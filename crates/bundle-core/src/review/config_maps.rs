//! Rules that protect ConfigMaps to which Bundles refer, with the messages of RukPak
//! (`internal/webhook/configmaps.go`). Such a ConfigMap must be created as immutable, and must not
//! be deleted.

use serde_json::Value;

use crate::diagnostic::{Finding, codes};

/// Maximum number of Bundles in a message.
const SHOWN: usize = 20;

/// The reviewed operation on a ConfigMap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigMapOperation {
    /// The ConfigMap is created.
    Create {
        /// Value of `immutable`.
        is_immutable: bool,
    },
    /// The ConfigMap is deleted.
    Delete,
}

/// Returns the names of the ConfigMaps that the `spec` of a Bundle references.
pub fn referenced_config_maps(spec: &Value) -> impl Iterator<Item = &str> {
    let source = &spec["source"];
    let parts = source["configMaps"].as_array();
    let parts = parts.filter(|_| source["type"] == "configMaps");
    let names = parts.into_iter().flatten();
    names.filter_map(|part| part["configMap"]["name"].as_str())
}

/// Returns the reason why `operation` on the ConfigMap `name` is rejected; `None` if the operation
/// is admitted. `bundles` contains the names of the Bundles that reference the ConfigMap.
pub fn judge_config_map(
    name: &str,
    operation: ConfigMapOperation,
    bundles: &[String],
) -> Option<Finding> {
    let first = bundles.first()?;
    match operation {
        ConfigMapOperation::Create { is_immutable: true } => None,
        ConfigMapOperation::Create {
            is_immutable: false,
        } => {
            let shown: Vec<&str> = bundles.iter().take(SHOWN).map(String::as_str).collect();
            let more = if bundles.len() > SHOWN { " …" } else { "" };
            let shown = shown.join(" ");
            Some(Finding::error(
                codes::review::CONFIGMAP_MUTABLE,
                format!(
                    "configmap {name:?} is referenced in .spec.source.configMaps[].configMap.name by bundles [{shown}{more}]; referenced configmaps must have .immutable == true"
                ),
            ))
        }
        ConfigMapOperation::Delete => Some(Finding::error(
            codes::review::CONFIGMAP_IN_USE,
            format!("configmap {name:?} is in-use by bundle {first:?}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MUTABLE: ConfigMapOperation = ConfigMapOperation::Create {
        is_immutable: false,
    };
    const IMMUTABLE: ConfigMapOperation = ConfigMapOperation::Create { is_immutable: true };

    fn message(operation: ConfigMapOperation, bundles: &[&str]) -> Option<String> {
        let bundles: Vec<String> = bundles.iter().map(ToString::to_string).collect();
        judge_config_map("files", operation, &bundles).map(|finding| finding.message)
    }

    #[test]
    fn referenced_config_map_is_created_immutable_and_not_deleted() {
        assert_eq!(message(MUTABLE, &[]), None);
        assert_eq!(message(IMMUTABLE, &["web"]), None);
        assert_eq!(message(ConfigMapOperation::Delete, &[]), None);
        assert_eq!(
            message(MUTABLE, &["api", "web"]).unwrap(),
            r#"configmap "files" is referenced in .spec.source.configMaps[].configMap.name by bundles [api web]; referenced configmaps must have .immutable == true"#
        );
        assert_eq!(
            message(ConfigMapOperation::Delete, &["api", "web"]).unwrap(),
            r#"configmap "files" is in-use by bundle "api""#
        );
        let many = vec!["web"; SHOWN + 1];
        assert!(message(MUTABLE, &many).unwrap().contains("web web …];"));
    }

    #[test]
    fn references_are_those_of_the_set_source() {
        let parts = json!([{"configMap": {"name": "a"}, "path": "manifests"}, {"configMap": {"name": "b"}}]);
        let spec = json!({"source": {"type": "configMaps", "configMaps": parts}});
        let names: Vec<&str> = referenced_config_maps(&spec).collect();
        assert_eq!(names, ["a", "b"]);
        let other = json!({"source": {"type": "image", "configMaps": parts}});
        assert_eq!(referenced_config_maps(&other).count(), 0);
        assert_eq!(referenced_config_maps(&json!({})).count(), 0);
    }
}
