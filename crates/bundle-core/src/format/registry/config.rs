//! Configuration of an operator (`spec.config`): the namespaces that it watches, and changes of its
//! Deployments.

use serde_json::{Map, Value};

use super::{
    csv::without_nulls,
    install_modes::{ALL_NAMESPACES, SupportedModes, TargetNamespaces, in_brackets},
};
use crate::{
    configuration::{self, ConfigSchema, FIELD},
    diagnostic::{Finding, Findings, codes},
    field_path,
    footprint::Footprint,
    json, object,
};

/// JSON Schema of the configuration.
const SCHEMA: &str = include_str!("config.schema.json");
/// Field with one watched namespace.
const WATCH_NAMESPACE: &str = "watchNamespace";
/// Field with several watched namespaces.
const WATCH_NAMESPACES: &str = "watchNamespaces";
/// Maximum memory of a configuration, in bytes.
const MAX_MEMORY: u64 = 1 << 20;
/// Memory of a configuration, its copies and its validation, in bytes.
pub(super) const MEMORY: u64 = 4 << 20;

/// Valid configuration of an operator.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OperatorConfig {
    /// Namespaces that the operator watches.
    pub(super) targets: TargetNamespaces,
    /// `deploymentConfig`; empty if it is not set.
    pub(super) deployment: Map<String, Value>,
}

/// Returns the configuration of an operator that runs in `namespace`. `None` means that the
/// configuration is unknown. In this case, returns an example, so that the objects can be listed
/// without an installation.
pub(super) fn resolve(
    given: Option<&Value>,
    modes: &SupportedModes<'_>,
    namespace: &str,
) -> Result<OperatorConfig, Findings> {
    let Some(given) = given else {
        return Ok(OperatorConfig {
            targets: modes.example(namespace),
            deployment: Map::new(),
        });
    };
    if json::length(given) > configuration::MAX_BYTES || Footprint::of(given).0 > MAX_MEMORY {
        let message = format!(
            "the configuration has more than the limit of {} bytes, or too many values",
            configuration::MAX_BYTES
        );
        return Err(invalid(FIELD, message, "shorten the configuration").into());
    }
    let mut config = given.clone();
    // Nulls are removed before the validation, because the API server ignores null fields in a
    // Deployment.
    without_nulls(&mut config);
    validate(&config)?;
    let targets = target_namespaces(&config, modes, namespace)?;
    let deployment = match config["deploymentConfig"].take() {
        Value::Object(deployment) => deployment,
        _ => Map::new(),
    };
    Ok(OperatorConfig {
        targets,
        deployment,
    })
}

fn validate(config: &Value) -> Result<(), Findings> {
    let schema = serde_json::from_str(SCHEMA).map_err(|error| error.to_string());
    let schema = schema.and_then(|schema| ConfigSchema::compile(&schema, SCHEMA.len()));
    let schema = schema.map_err(|message| invalid(FIELD, message, "report this error"))?;
    let mut findings = Findings::default();
    for (field, message) in schema.errors(FIELD, config) {
        findings.push(invalid(
            &field,
            message,
            "registry+v1 bundles have the fields watchNamespace, watchNamespaces and deploymentConfig: see `Configuration of operators` in the reference of bundle formats",
        ));
    }
    if findings.has_errors() {
        return Err(findings);
    }
    Ok(())
}

/// Returns the namespaces that the configuration names. The messages are the unchanged messages of
/// RukPak.
fn target_namespaces(
    config: &Value,
    modes: &SupportedModes<'_>,
    namespace: &str,
) -> Result<TargetNamespaces, Findings> {
    // An empty name means all namespaces, as in the Operator Lifecycle Manager.
    let one = config[WATCH_NAMESPACE].as_str();
    let one = one.filter(|name| !name.is_empty());
    let several = config[WATCH_NAMESPACES].as_array();
    let (field, listed) = match (one, several) {
        (None, None) => {
            return modes.default().ok_or_else(|| {
                let supported = modes.listed();
                refused(
                    WATCH_NAMESPACE,
                    "AllNamespace install mode must be enabled",
                    &format!(
                        "the operator supports the install modes {supported} only: set {FIELD}.{WATCH_NAMESPACE} to the namespace that it watches, or {WATCH_NAMESPACES} to a list"
                    ),
                )
                .into()
            });
        }
        (Some(_), Some(_)) => {
            return Err(invalid(
                &field_path::child(FIELD, WATCH_NAMESPACES),
                format!("{WATCH_NAMESPACE} and {WATCH_NAMESPACES} are both set"),
                "remove one of them",
            )
            .into());
        }
        (Some(one), None) => (WATCH_NAMESPACE, vec![one.to_owned()]),
        (None, Some(several)) => {
            let names = several.iter().filter_map(Value::as_str);
            (WATCH_NAMESPACES, names.map(str::to_owned).collect())
        }
    };
    let mut findings = Findings::default();
    for name in listed.iter().filter(|name| !object::is_dns_label(name)) {
        findings.push(invalid(
            &field_path::child(FIELD, field),
            format!("{name:?} is not the name of a namespace"),
            "use at most 63 lower-case letters, digits and `-`",
        ));
    }
    if findings.has_errors() {
        return Err(findings);
    }
    if modes.support(&listed, namespace) {
        return Ok(TargetNamespaces::Listed(listed));
    }
    let hint = if modes.has(ALL_NAMESPACES) {
        format!(
            "remove {FIELD}.{field} to watch all namespaces, or name namespaces that the install modes allow; the operator runs in {namespace}"
        )
    } else {
        format!(
            "OwnNamespace allows {namespace}, in which the operator runs; SingleNamespace allows one other namespace, and MultiNamespace several in {WATCH_NAMESPACES}"
        )
    };
    let message = format!(
        "supported install modes {} do not support target namespaces {}",
        modes.listed(),
        in_brackets(&listed)
    );
    Err(refused(field, &message, &hint).into())
}

/// Returns an error about a field of the configuration, with RukPak's prefix.
fn refused(field: &str, message: &str, hint: &str) -> Finding {
    invalid(
        &field_path::child(FIELD, field),
        format!("{}{message}", super::PREFIX),
        hint,
    )
}

pub(super) fn invalid(field: &str, message: impl Into<String>, hint: &str) -> Finding {
    Finding::error(codes::format::INVALID_CONFIGURATION, message)
        .at_field(field)
        .hint(hint)
}
