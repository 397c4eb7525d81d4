//! Fields of a CRD other than names, versions and schemas: printer columns, subresources,
//! selectable fields, deprecation, conversion.

use serde_json::Value;

use super::{Check, is_label};
use crate::{
    object::{is_dns_label, is_dns_subdomain},
    structural::{item, text},
};

/// Maximum number of selectable fields of a version.
const SELECTABLE: usize = 8;

impl Check<'_> {
    pub(super) fn deprecation(&mut self, version: &Value, path: &str) {
        let path = format!("{path}.deprecationWarning");
        let Some(warning) = text(version, "deprecationWarning") else {
            return;
        };
        if !super::flag(version, "deprecated") {
            self.report(&path, "it may only be set for deprecated versions");
        }
        if warning.is_empty() || warning.len() > 256 || warning.chars().any(char::is_control) {
            self.report(&path, "it must be 1 to 256 bytes of printable text");
        }
    }

    pub(super) fn column(&mut self, column: &Value, path: &str) {
        self.required(column, "name", path);
        if let Some(kind) = self.required(column, "type", path)
            && !["boolean", "date", "integer", "number", "string"].contains(&kind)
        {
            self.report(
                &format!("{path}.type"),
                format!("`{kind}` is not one of boolean, date, integer, number, string"),
            );
        }
        let formats = [
            "byte",
            "date",
            "date-time",
            "double",
            "float",
            "int32",
            "int64",
            "password",
        ];
        if let Some(format) = text(column, "format").filter(|format| !format.is_empty())
            && !formats.contains(&format)
        {
            self.report(
                &format!("{path}.format"),
                format!("`{format}` is not one of {}", formats.join(", ")),
            );
        }
        if let Some(json_path) = self.required(column, "jsonPath", path)
            && !json_path.starts_with('.')
        {
            self.report(
                &format!("{path}.jsonPath"),
                format!("`{json_path}` must be a simple path that starts with a dot"),
            );
        }
    }

    pub(super) fn scale(&mut self, scale: &Value, path: &str) {
        for (key, under, needed) in [
            ("specReplicasPath", &[".spec."][..], true),
            ("statusReplicasPath", &[".status."], true),
            ("labelSelectorPath", &[".spec.", ".status."], false),
        ] {
            let value = if needed {
                self.required(scale, key, path)
            } else {
                text(scale, key).filter(|value| !value.is_empty())
            };
            if let Some(value) = value
                && !under.iter().any(|start| value.starts_with(start))
            {
                self.report(
                    &format!("{path}.{key}"),
                    format!("`{value}` must be a path under {}", under.join(" or ")),
                );
            }
        }
    }

    pub(super) fn selectable(&mut self, version: &Value, schema: &Value, path: &str) {
        let path = format!("{path}.selectableFields");
        let list = version.get("selectableFields").and_then(Value::as_array);
        let list = list.map(Vec::as_slice).unwrap_or_default();
        let mut seen = std::collections::BTreeSet::new();
        for (index, field) in list.iter().enumerate() {
            let at = item(&path, index);
            let Some(json_path) = self.required(field, "jsonPath", &at) else {
                continue;
            };
            let at = format!("{at}.jsonPath");
            if !seen.insert(json_path) {
                self.report(&at, format!("`{json_path}` appears twice"));
            }
            let Some(fields) = json_path.strip_prefix('.') else {
                self.report(&at, format!("`{json_path}` must start with a dot"));
                continue;
            };
            if fields == "metadata" || fields.starts_with("metadata.") {
                self.report(&at, "it must not point into metadata");
                continue;
            }
            let found = fields.split('.').try_fold(schema, |schema, key| {
                schema.get("properties").and_then(|fields| fields.get(key))
            });
            match found {
                None => self.report(&at, format!("the schema has no field `{json_path}`")),
                Some(found) => {
                    let kind = text(found, "type").unwrap_or_default();
                    if !["boolean", "integer", "string"].contains(&kind) {
                        self.report(&at, "it must point to a string, boolean or integer");
                    }
                }
            }
        }
        if seen.len() > SELECTABLE {
            self.report(
                &path,
                format!("{} fields exceed the limit of {SELECTABLE}", seen.len()),
            );
        }
    }

    pub(super) fn conversion(&mut self, conversion: &Value) {
        let webhook = conversion
            .get("webhook")
            .filter(|webhook| !webhook.is_null());
        match text(conversion, "strategy").unwrap_or_default() {
            "None" => {
                if webhook.is_some() {
                    self.report(
                        "spec.conversion.webhook",
                        "only the strategy Webhook allows it",
                    );
                }
                return;
            }
            "Webhook" => {}
            "" => return self.report("spec.conversion.strategy", "the field is required"),
            other => {
                return self.report(
                    "spec.conversion.strategy",
                    format!("`{other}` is neither None nor Webhook"),
                );
            }
        }
        let Some(webhook) = webhook else {
            return self.report(
                "spec.conversion.webhook",
                "the strategy Webhook requires it",
            );
        };
        let path = "spec.conversion.webhook.clientConfig";
        let client = webhook.get("clientConfig").unwrap_or(&Value::Null);
        let service = client.get("service").filter(|service| !service.is_null());
        match (text(client, "url"), service) {
            (Some(url), None) => self.url(url, &format!("{path}.url")),
            (None, Some(service)) => self.service(service, &format!("{path}.service")),
            _ => self.report(path, "exactly one of url and service is required"),
        }
        let path = "spec.conversion.webhook.conversionReviewVersions";
        let versions = webhook
            .get("conversionReviewVersions")
            .and_then(Value::as_array);
        let versions: Vec<&str> = versions
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if versions.is_empty() {
            self.report(path, "the field is required");
        } else if !versions
            .iter()
            .any(|version| matches!(*version, "v1" | "v1beta1"))
        {
            self.report(
                path,
                "it must contain v1 or v1beta1, which API servers support",
            );
        }
        let mut seen = std::collections::BTreeSet::new();
        for (index, version) in versions.iter().enumerate() {
            if !is_label(version) || !seen.insert(version) {
                self.report(
                    &item(path, index),
                    format!("`{version}` is not a version, or appears twice"),
                );
            }
        }
    }

    fn url(&mut self, url: &str, path: &str) {
        let host = url
            .strip_prefix("https://")
            .map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
        let plain = !url.contains(['?', '#']) && !host.is_some_and(|host| host.contains('@'));
        if host.is_none_or(str::is_empty) || !plain {
            self.report(
                path,
                format!("`{url}` must be https://HOST/PATH, without user, query and fragment"),
            );
        }
    }

    fn service(&mut self, service: &Value, path: &str) {
        self.required(service, "name", path);
        self.required(service, "namespace", path);
        if let Some(port) = service.get("port").and_then(Value::as_i64)
            && !(1..=65535).contains(&port)
        {
            self.report(&format!("{path}.port"), format!("{port} is not a port"));
        }
        if let Some(url_path) = text(service, "path") {
            let steps: Vec<&str> = url_path.split('/').skip(1).collect();
            let last = steps.len().saturating_sub(1);
            let fine = url_path.starts_with('/')
                && !url_path.starts_with("//")
                && steps.iter().enumerate().all(|(index, step)| {
                    (index == last && step.is_empty())
                        || is_dns_subdomain(step)
                        || is_dns_label(step)
                });
            if !(fine || url_path == "/") {
                self.report(
                    &format!("{path}.path"),
                    format!("`{url_path}` must be a path of DNS labels that starts with a slash"),
                );
            }
        }
    }
}
