//! Field-by-field parser for specs: collects all errors with their paths, and returns the valid
//! fields. The parser does not copy specs, and treats empty fields as absent (see `canonical`). No
//! schema has validated these specs yet, and a spec can be as large as a request.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde_json::Value;

use super::canonical::MemberRule;
use crate::{
    diagnostic::{Finding, Findings, codes},
    names::{KubeName, NameKind},
};

/// Maximum number of items in a list of settings, such as the rules of `drift.ignore`.
const ITEMS: usize = 1024;
/// Maximum length of the message of a finding, in bytes. Without this limit, the value in a message
/// could be as long as the object.
const MESSAGE: usize = 1024;

/// Adds a finding about a spec. Truncates the message and the field path of the finding.
pub(super) fn push(findings: &mut Findings, mut finding: Finding) {
    shorten(&mut finding.message);
    if let Some(path) = &mut finding.place.field {
        shorten(path);
    }
    findings.push(finding);
}

fn shorten(text: &mut String) {
    if text.len() > MESSAGE {
        *text = start_of(text.as_str());
    }
}

/// Returns `message`, truncated to [`MESSAGE`] bytes.
fn start_of(message: impl fmt::Display) -> String {
    struct Start(String);
    impl fmt::Write for Start {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let left = MESSAGE.saturating_sub(self.0.len());
            if text.len() <= left {
                self.0.push_str(text);
                return Ok(());
            }
            self.0.push_str(&text[..text.floor_char_boundary(left)]);
            self.0.push('…');
            Err(fmt::Error)
        }
    }
    let mut start = Start(String::new());
    // The write fails at the maximum length, which ends the formatting.
    let _ = write!(start, "{message}");
    start.0
}

/// Field of a spec, which may be absent.
#[derive(Clone)]
pub(super) struct Field<'v> {
    value: Option<&'v Value>,
    rule: MemberRule,
    /// Path, such as `spec.source.image`.
    pub(super) path: String,
}

impl<'v> Field<'v> {
    /// Returns the field at `path`. An empty value counts as absent.
    pub(super) fn new(value: &'v Value, path: impl Into<String>) -> Self {
        Self::with_rule(MemberRule::Reduced, Some(value), path.into())
    }

    fn with_rule(rule: MemberRule, value: Option<&'v Value>, path: String) -> Self {
        Self {
            value: value.filter(|value| rule.is_set(value)),
            rule,
            path,
        }
    }

    /// Returns a field of the object.
    pub(super) fn get(&self, name: &str) -> Self {
        let value = self.value.and_then(|value| value.get(name));
        let path = format!("{}.{name}", self.path);
        Self::with_rule(MemberRule::of(name), value, path)
    }

    /// Returns the value; `None` if the field is absent.
    pub(super) fn value(&self) -> Option<&'v Value> {
        self.value
    }

    /// Returns `true` if the field is present, even if it is empty.
    pub(super) fn is_set(&self) -> bool {
        self.value.is_some()
    }

    /// Reports an invalid value.
    pub(super) fn bad(&self, findings: &mut Findings, why: impl std::fmt::Display) {
        let finding = Finding::error(codes::review::BAD_FIELD, start_of(why));
        push(findings, finding.at_field(self.path.clone()));
    }

    /// Reports a missing field.
    pub(super) fn missing(&self, findings: &mut Findings) {
        let finding = Finding::error(codes::review::MISSING_FIELD, "this field is required");
        push(findings, finding.at_field(self.path.clone()));
    }

    /// Checks that the value is an object. Reports a value of another type.
    pub(super) fn object(&self, findings: &mut Findings) -> bool {
        let is = self.value.is_some_and(Value::is_object);
        if self.is_set() && !is {
            self.bad(findings, "must be an object");
        }
        is
    }

    /// Reports all fields of the object except `known`, because an unknown field can be a
    /// restriction that this version does not enforce.
    pub(super) fn only(&self, known: &[&str], findings: &mut Findings) {
        let members = self.value.and_then(Value::as_object);
        for name in members.into_iter().flat_map(|members| members.keys()) {
            if !known.contains(&name.as_str()) {
                let why = format!("unknown field; the known fields are {}", known.join(", "));
                self.get(name).bad(findings, why);
            }
        }
    }

    /// Parses an optional text; `None` if absent. An empty text counts as absent.
    pub(super) fn text(&self, findings: &mut Findings) -> Option<&'v str> {
        let text = self.value?.as_str();
        if text.is_none() {
            self.bad(findings, "must be text");
        }
        text.filter(|text| !text.is_empty())
    }

    /// Parses a required text. If the field is missing or invalid, adds a finding and returns
    /// `None`.
    pub(super) fn required(&self, findings: &mut Findings) -> Option<&'v str> {
        let text = self.text(findings);
        let is_text = self.value.is_some_and(Value::is_string);
        if text.is_none() && (is_text || !self.is_set()) {
            self.missing(findings);
        }
        text
    }

    /// Parses an optional name of an object; `None` if absent. An empty text counts as absent.
    pub(super) fn name(&self, kind: NameKind, findings: &mut Findings) -> Option<KubeName> {
        let text = self.text(findings)?;
        match KubeName::parse(kind, text) {
            Ok(name) => Some(name),
            Err(why) => {
                // A name can be as long as the object, so the message contains only its beginning.
                let start: String = text.chars().take(80).collect();
                self.bad(findings, format_args!("Invalid value: {start:?}: {why}"));
                None
            }
        }
    }

    /// Parses a required name. If the name is missing or invalid, adds a finding and returns
    /// `None`.
    pub(super) fn required_name(
        &self,
        kind: NameKind,
        findings: &mut Findings,
    ) -> Option<KubeName> {
        self.required(findings)?;
        self.name(kind, findings)
    }

    /// Parses a boolean; `false` if absent.
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

    /// Parses a generation. Returns `None` if the field is absent or invalid.
    pub(super) fn generation(&self, findings: &mut Findings) -> Option<i64> {
        let generation = self.value?.as_i64().filter(|generation| *generation >= 1);
        if generation.is_none() {
            self.bad(findings, "must be a whole number, at least 1");
        }
        generation
    }

    /// Parses one of the texts in `choices`. Returns `default` if the field is absent or invalid.
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

    /// Returns the items of a list. Returns no items if the list is absent or has too many items.
    pub(super) fn items(&self, findings: &mut Findings) -> impl Iterator<Item = Self> + use<'v> {
        self.items_up_to(ITEMS, findings)
    }

    /// Parses a list of at most `limit` items.
    pub(super) fn items_up_to(
        &self,
        limit: usize,
        findings: &mut Findings,
    ) -> impl Iterator<Item = Self> + use<'v> {
        let items = match self.value {
            None => [].as_slice(),
            Some(Value::Array(items)) if items.len() <= limit => items,
            Some(Value::Array(items)) => {
                let count = items.len();
                self.bad(
                    findings,
                    format_args!("Too many: {count}: must have at most {limit} items"),
                );
                &[]
            }
            Some(_) => {
                self.bad(findings, "must be a list");
                &[]
            }
        };
        let path = self.path.clone();
        let items = items.iter().enumerate();
        items.map(move |(index, item)| Self::new(item, format!("{path}[{index}]")))
    }

    /// Parses a list of strings; `None` if absent.
    pub(super) fn texts(&self, findings: &mut Findings) -> Option<Vec<String>> {
        self.value?;
        let items = self.items(findings);
        Some(
            items
                .filter_map(|item| Some(item.required(findings)?.to_owned()))
                .collect(),
        )
    }

    /// Returns the members of a map of strings. Other values are reported and omitted.
    pub(super) fn members(
        &self,
        findings: &mut Findings,
    ) -> impl Iterator<Item = (&'v str, &'v str)> {
        self.object(findings);
        let members = self.value.and_then(Value::as_object).into_iter().flatten();
        members.filter_map(move |(key, value)| {
            if self.rule != MemberRule::Opaque && !MemberRule::of(key).is_set(value) {
                return None;
            }
            if !value.is_string() {
                self.get(key).bad(findings, "must be text");
            }
            Some((key.as_str(), value.as_str()?))
        })
    }

    /// Parses a map of texts.
    pub(super) fn map(&self, findings: &mut Findings) -> BTreeMap<String, String> {
        self.members(findings)
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }
}
