//! Reading a spec field by field: what is wrong is collected, each with its path, and what can be read is read.
//! Not here: which fields there are (source, deployment, class, approval).

use serde_json::Value;

use crate::{
    diagnostic::{Finding, Findings, codes},
    names::{KubeName, NameKind},
};

/// A field that may be absent.
#[derive(Clone)]
pub(super) struct Field<'v> {
    value: Option<&'v Value>,
    /// `spec.source.image`
    pub(super) path: String,
}

impl<'v> Field<'v> {
    /// The field at `path`. Null is the same as nothing.
    pub(super) fn new(value: &'v Value, path: impl Into<String>) -> Self {
        Self {
            value: Some(value).filter(|value| !value.is_null()),
            path: path.into(),
        }
    }

    /// A member.
    pub(super) fn get(&self, name: &str) -> Self {
        Self {
            value: self
                .value
                .and_then(|value| value.get(name))
                .filter(|value| !value.is_null()),
            path: format!("{}.{name}", self.path),
        }
    }

    /// The value as it stands.
    pub(super) fn value(&self) -> Option<&'v Value> {
        self.value
    }

    /// Whether it is there at all, even empty.
    pub(super) fn is_set(&self) -> bool {
        self.value.is_some()
    }

    /// Says that the value cannot be used.
    pub(super) fn bad(&self, findings: &mut Findings, why: impl std::fmt::Display) {
        findings.push(
            Finding::error(codes::review::BAD_FIELD, why.to_string()).at_field(self.path.clone()),
        );
    }

    /// Says that it is missing.
    pub(super) fn missing(&self, findings: &mut Findings) {
        findings.push(
            Finding::error(codes::review::MISSING_FIELD, "this field is required")
                .at_field(self.path.clone()),
        );
    }

    /// Says so if it is there and is no object.
    pub(super) fn object(&self, findings: &mut Findings) -> bool {
        let is = self.value.is_some_and(Value::is_object);
        if self.is_set() && !is {
            self.bad(findings, "must be an object");
        }
        is
    }

    /// Text; empty text is the same as none.
    pub(super) fn text(&self, findings: &mut Findings) -> Option<&'v str> {
        let text = self.value?.as_str();
        if text.is_none() {
            self.bad(findings, "must be text");
        }
        text.filter(|text| !text.is_empty())
    }

    /// Text that must be there.
    pub(super) fn required(&self, findings: &mut Findings) -> Option<&'v str> {
        let before = findings.0.len();
        let text = self.text(findings);
        if text.is_none() && findings.0.len() == before {
            self.missing(findings);
        }
        text
    }

    /// The name of an object of the cluster; empty text is the same as none.
    pub(super) fn name(&self, kind: NameKind, findings: &mut Findings) -> Option<KubeName> {
        let text = self.text(findings)?;
        match KubeName::parse(kind, text) {
            Ok(name) => Some(name),
            Err(why) => {
                // A name can be as long as the object; what it begins with is enough to find it.
                let start: String = text.chars().take(80).collect();
                self.bad(findings, format_args!("Invalid value: {start:?}: {why}"));
                None
            }
        }
    }

    /// A name that must be there.
    pub(super) fn required_name(
        &self,
        kind: NameKind,
        findings: &mut Findings,
    ) -> Option<KubeName> {
        self.required(findings)?;
        self.name(kind, findings)
    }

    /// True or false; false where nothing is said.
    pub(super) fn flag(&self, findings: &mut Findings) -> bool {
        match self.value {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.bad(findings, "must be true or false");
                false
            }
        }
    }

    /// A generation of an object.
    pub(super) fn generation(&self, findings: &mut Findings) -> Option<i64> {
        let generation = self.value?.as_i64().filter(|generation| *generation >= 1);
        if generation.is_none() {
            self.bad(findings, "must be a whole number, at least 1");
        }
        generation
    }

    /// One of several words; the first where nothing is said.
    pub(super) fn choice<T: Copy>(
        &self,
        findings: &mut Findings,
        default: T,
        choices: &[(&str, T)],
    ) -> T {
        let Some(text) = self.text(findings) else {
            return default;
        };
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text) {
            return *choice;
        }
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        self.bad(
            findings,
            format_args!("`{text}` is not one of {}", words.join(", ")),
        );
        default
    }

    /// The items of a list; none where nothing is said.
    pub(super) fn items(&self, findings: &mut Findings) -> Vec<Self> {
        match self.value {
            None => Vec::new(),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, item)| Self::new(item, format!("{}[{index}]", self.path)))
                .collect(),
            Some(_) => {
                self.bad(findings, "must be a list");
                Vec::new()
            }
        }
    }

    /// A list of texts; `None` where nothing is said.
    pub(super) fn texts(&self, findings: &mut Findings) -> Option<Vec<String>> {
        self.value?;
        let items = self.items(findings);
        Some(
            items
                .iter()
                .filter_map(|item| item.required(findings))
                .map(str::to_owned)
                .collect(),
        )
    }

    /// The fields of a map of texts.
    pub(super) fn map(
        &self,
        findings: &mut Findings,
    ) -> std::collections::BTreeMap<String, String> {
        if !self.object(findings) {
            return std::collections::BTreeMap::new();
        }
        let members = self.value.and_then(Value::as_object).into_iter().flatten();
        members
            .filter_map(|(key, value)| {
                if !value.is_string() {
                    self.get(key).bad(findings, "must be text");
                }
                Some((key.clone(), value.as_str()?.to_owned()))
            })
            .collect()
    }
}
