//! Checks that a schema is structural and that its keywords are allowed: types, extensions,
//! defaults.

use serde_json::Value;

use super::shape;
use crate::{
    check::cel::Rules,
    structural::{Problem, child, compare, flag, item, prune, text, unknown_fields},
};

/// Keywords that are allowed at the root of the schema if the version has a status subresource.
const AT_ROOT: &[&str] = &[
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// Returns the reasons why the API server would reject the schema.
pub(super) fn check(root: &Value, path: &str, status: bool, rules: &mut Rules) -> Vec<Problem> {
    let mut walk = SchemaCheck {
        problems: Vec::new(),
        rules,
    };
    if flag(root, "nullable") {
        walk.report(&child(path, "nullable"), "it must not be true at the root");
    }
    if status {
        for (key, value) in root.as_object().into_iter().flatten() {
            let empty = *value == Value::Bool(false)
                || value.is_null()
                || value.as_array().is_some_and(Vec::is_empty)
                || value.as_str() == Some("");
            if !empty && !AT_ROOT.contains(&key.as_str()) {
                walk.report(
                    &child(path, key),
                    "it is not allowed at the root of a schema with a status subresource",
                );
            }
        }
    }
    let place = SchemaPosition {
        level: Level::Root,
        ..SchemaPosition::default()
    };
    walk.node(root, path, place);
    if walk.problems.is_empty() {
        walk.compile_rules(root, path, None);
    }
    walk.problems
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    #[default]
    Field,
}

/// Position of a schema within the schema of a version.
#[derive(Debug, Clone, Copy, Default)]
struct SchemaPosition {
    level: Level,
    /// `true` within apiVersion, kind or metadata of an object.
    meta: bool,
    /// Reason why the schema must not have a default; `None` if a default is allowed.
    no_default: Option<&'static str>,
}

pub(super) struct SchemaCheck<'a> {
    pub(super) problems: Vec<Problem>,
    pub(super) rules: &'a mut Rules,
}

impl SchemaCheck<'_> {
    pub(super) fn report(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(path, message));
    }

    /// Checks a schema that specifies types.
    fn node(&mut self, schema: &Value, path: &str, place: SchemaPosition) {
        if !self.shape(schema, path) {
            return;
        }
        self.forbidden(schema, path);
        self.kind(schema, path, place);
        if place.meta && flag(schema, "x-kubernetes-embedded-resource") {
            self.report(
                &child(path, "x-kubernetes-embedded-resource"),
                "it is not allowed within the metadata of an object",
            );
        }
        self.lists(schema, path);
        self.texts_of_rules(schema, path);
        // Only at the root, the API server checks that all fields that branches restrict are
        // specified outside of the branches.
        let outer = (place.level == Level::Root).then_some(schema);
        self.values(schema, outer, path, path);
        self.default(schema, path, place);
        self.children(schema, path, place);
    }

    /// Checks the JSON types of the schema's fields. Returns `true` if all types are correct.
    pub(super) fn shape(&mut self, schema: &Value, path: &str) -> bool {
        unknown_fields(&shape::NODE, schema, path, false, &mut self.problems);
        let wrong = compare(&shape::NODE, schema, path);
        let fine = wrong.is_empty();
        self.problems.extend(wrong);
        fine
    }

    /// Reports keywords of JSON Schema that CRDs must not use.
    pub(super) fn forbidden(&mut self, schema: &Value, path: &str) {
        let set = |key: &str| {
            schema.get(key).is_some_and(|value| match value {
                Value::Null => false,
                Value::String(text) => !text.is_empty(),
                Value::Object(map) => !map.is_empty() || key == "dependencies",
                _ => true,
            })
        };
        for key in [
            "id",
            "additionalItems",
            "patternProperties",
            "definitions",
            "dependencies",
            "$ref",
            "$schema",
        ] {
            // The server accepts `$schema` and ignores it.
            if key != "$schema" && set(key) {
                self.report(
                    &child(path, key),
                    "a CustomResourceDefinition does not allow it",
                );
            }
        }
        if flag(schema, "uniqueItems") {
            self.report(
                &child(path, "uniqueItems"),
                "it cannot be true; use x-kubernetes-list-type: set",
            );
        }
        if schema.get("items").is_some_and(Value::is_array) {
            self.report(&child(path, "items"), "it must be a schema and not a list");
        }
        let fields = schema
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|map| !map.is_empty());
        if fields
            && schema
                .get("additionalProperties")
                .is_some_and(|others| matches!(others, Value::Object(_) | Value::Bool(false)))
        {
            self.report(
                &child(path, "additionalProperties"),
                "additionalProperties and properties exclude each other",
            );
        }
        if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            self.report(
                &child(path, "x-kubernetes-preserve-unknown-fields"),
                "it must be true or absent",
            );
        }
    }

    fn kind(&mut self, schema: &Value, path: &str, place: SchemaPosition) {
        let kind = text(schema, "type").unwrap_or_default();
        let at = child(path, "type");
        let embedded = flag(schema, "x-kubernetes-embedded-resource");
        let either = flag(schema, "x-kubernetes-int-or-string");
        let keeps = flag(schema, "x-kubernetes-preserve-unknown-fields");
        if ![
            "", "array", "boolean", "integer", "number", "object", "string",
        ]
        .contains(&kind)
        {
            self.report(
                &at,
                format!("`{kind}` is not one of array, boolean, integer, number, object, string"),
            );
        } else if embedded && kind != "object" {
            self.report(
                &at,
                "type must be `object` if x-kubernetes-embedded-resource is true",
            );
        } else if kind.is_empty() && !either && !keeps {
            let what = match place.level {
                Level::Root => "at the root",
                Level::Item => "for items",
                Level::Field => "for fields",
            };
            self.report(&at, format!("the field is required {what}"));
        }
        if place.level == Level::Root && !kind.is_empty() && kind != "object" {
            self.report(&at, "it must be object at the root");
        }
        if either && keeps {
            self.report(
                &child(path, "x-kubernetes-preserve-unknown-fields"),
                "it and x-kubernetes-int-or-string exclude each other",
            );
        }
        if either && embedded {
            self.report(
                &child(path, "x-kubernetes-embedded-resource"),
                "it and x-kubernetes-int-or-string exclude each other",
            );
        }
        if kind == "array" && schema.get("items").is_none() {
            self.report(&child(path, "items"), "the field is required for arrays");
        }
        let others = schema
            .get("additionalProperties")
            .is_some_and(|value| !value.is_null());
        if others && (place.level == Level::Root || embedded) {
            self.report(
                &child(path, "additionalProperties"),
                "it is not allowed at the root of an object",
            );
        }
        if place.level == Level::Root || embedded {
            self.object(schema, path, place.level);
        }
        let fields = schema
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|map| !map.is_empty());
        if embedded && !keeps && !fields {
            self.report(
                &child(path, "properties"),
                "embedded objects require properties, or x-kubernetes-preserve-unknown-fields",
            );
        }
    }

    /// Checks the schema of `apiVersion`, `kind` and `metadata` at an object's root.
    fn object(&mut self, schema: &Value, path: &str, level: Level) {
        let path = child(path, "properties");
        let field = |key: &str| schema.get("properties").and_then(|fields| fields.get(key));
        for (key, wanted) in [
            ("apiVersion", "string"),
            ("kind", "string"),
            ("metadata", "object"),
        ] {
            if let Some(field) = field(key)
                && text(field, "type") != Some(wanted)
            {
                self.report(
                    &format!("{}.type", child(&path, key)),
                    format!("it must be {wanted}"),
                );
            }
        }
        if level != Level::Root {
            return;
        }
        let Some(Value::Object(meta)) = field("metadata") else {
            return;
        };
        let only_names = meta.iter().all(|(key, value)| match key.as_str() {
            "type" => true,
            "properties" => value.as_object().is_some_and(|fields| {
                fields
                    .keys()
                    .all(|key| matches!(key.as_str(), "name" | "generateName"))
            }),
            _ => value.is_null(),
        });
        if !only_names {
            self.report(
                &child(&path, "metadata"),
                "only name and generateName of metadata can be restricted",
            );
        }
    }

    fn lists(&mut self, schema: &Value, path: &str) {
        let kind = text(schema, "type").unwrap_or_default();
        if let Some(map) = text(schema, "x-kubernetes-map-type") {
            let at = child(path, "x-kubernetes-map-type");
            if kind != "object" {
                self.report(&at, "only type object allows it");
            }
            if !matches!(map, "atomic" | "granular") {
                self.report(&at, format!("`{map}` is neither atomic nor granular"));
            }
        }
        let list = text(schema, "x-kubernetes-list-type");
        let keys: Vec<&str> = schema
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
            .map(|keys| keys.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let at_keys = child(path, "x-kubernetes-list-map-keys");
        if !keys.is_empty() && list != Some("map") {
            self.report(&at_keys, "only x-kubernetes-list-type: map allows keys");
        }
        let Some(list) = list else {
            return;
        };
        let at = child(path, "x-kubernetes-list-type");
        if kind != "array" {
            self.report(&at, "only type array allows it");
        }
        if !matches!(list, "atomic" | "map" | "set") {
            self.report(&at, format!("`{list}` is not one of atomic, map, set"));
        }
        let items = schema.get("items").unwrap_or(&Value::Null);
        let at_items = child(path, "items");
        if matches!(list, "map" | "set") && flag(items, "nullable") {
            self.report(
                &child(&at_items, "nullable"),
                format!("items of a {list} cannot be null"),
            );
        }
        match list {
            "set" => {
                let granular = match text(items, "type") {
                    Some("array") => {
                        text(items, "x-kubernetes-list-type").is_some_and(|kind| kind != "atomic")
                    }
                    Some("object") => text(items, "x-kubernetes-map-type") != Some("atomic"),
                    _ => false,
                };
                if granular {
                    self.report(&at_items, "items of a set must be scalars, or atomic");
                }
            }
            "map" => {
                if keys.is_empty() {
                    self.report(
                        &at_keys,
                        "the field is required for x-kubernetes-list-type: map",
                    );
                }
                if text(items, "type") != Some("object") {
                    self.report(
                        &child(&at_items, "type"),
                        "items of a map must be of type object",
                    );
                    return;
                }
                self.keys(&keys, items, &at_keys, &at_items);
            }
            _ => {}
        }
    }

    fn keys(&mut self, keys: &[&str], items: &Value, at_keys: &str, at_items: &str) {
        let required = items.get("required").and_then(Value::as_array);
        let required = required.map(Vec::as_slice).unwrap_or_default();
        for (index, key) in keys.iter().enumerate() {
            if keys[..index].contains(key) {
                self.report(&item(at_keys, index), format!("`{key}` appears twice"));
            }
            let Some(field) = items.get("properties").and_then(|fields| fields.get(*key)) else {
                self.report(
                    &item(at_keys, index),
                    format!("items have no field `{key}`"),
                );
                continue;
            };
            let at = child(&child(at_items, "properties"), key);
            if matches!(text(field, "type"), Some("array" | "object")) {
                self.report(&at, "a key must be of a scalar type");
            }
            if flag(field, "nullable") {
                self.report(&at, "a key cannot be null");
            }
            let there = required.iter().any(|name| name == key);
            if !there && field.get("default").is_none_or(Value::is_null) {
                self.report(&at, "a key must be required, or have a default");
            }
        }
    }

    fn default(&mut self, schema: &Value, path: &str, place: SchemaPosition) {
        let Some(default) = schema.get("default").filter(|value| !value.is_null()) else {
            return;
        };
        let at = child(path, "default");
        if let Some(why) = place.no_default {
            self.report(&at, why);
            return;
        }
        let mut pruned = default.clone();
        prune(
            schema,
            &mut pruned,
            flag(schema, "x-kubernetes-embedded-resource"),
        );
        if pruned != *default {
            let mut unknown = Vec::new();
            unknown_fields(schema, default, &at, false, &mut unknown);
            self.problems.extend(unknown);
        }
        self.problems.extend(compare(schema, default, &at));
        let mut failed = Vec::new();
        self.rules.evaluate(schema, default, &at, &mut failed);
        self.problems.extend(failed);
    }

    fn children(&mut self, schema: &Value, path: &str, place: SchemaPosition) {
        let whole = place.level == Level::Root || flag(schema, "x-kubernetes-embedded-resource");
        for (key, field) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let mut inner = SchemaPosition {
                level: Level::Field,
                ..place
            };
            if whole && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                inner.meta = true;
                if place.level == Level::Root {
                    inner.no_default = Some("apiVersion, kind and metadata cannot have defaults");
                }
            }
            self.node(field, &child(&child(path, "properties"), key), inner);
        }
        if let Some(items @ Value::Object(_)) = schema.get("items") {
            let level = Level::Item;
            self.node(
                items,
                &child(path, "items"),
                SchemaPosition { level, ..place },
            );
        }
        if let Some(others @ Value::Object(_)) = schema.get("additionalProperties") {
            let mut inner = SchemaPosition {
                level: Level::Field,
                ..place
            };
            if place.meta {
                inner.no_default = Some("maps within metadata cannot have defaults");
            }
            self.node(others, &child(path, "additionalProperties"), inner);
        }
    }
}
