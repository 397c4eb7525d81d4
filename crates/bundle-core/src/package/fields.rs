//! Strict reader for maps: checks each field's name and type, reports all findings, and suggests
//! the closest name for an unknown field.

use serde_json::{Map, Value};

use super::{
    shape::{FieldType, MAX_ITEMS, MAX_TEXT, Shape},
    suggest,
};
use crate::{
    diagnostic::{Code, Finding, Findings, Severity, codes},
    yaml,
};

/// Map in a file, with its path and the findings of the whole file.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    shape: &'static Shape,
    path: String,
    file: &'a File<'a>,
}

/// File that is parsed.
pub(super) struct File<'a> {
    /// Name of the file in findings.
    pub(super) name: &'a str,
    /// Text of the file, to find the lines of findings.
    pub(super) text: &'a [u8],
    /// Findings of the file.
    pub(super) findings: std::cell::RefCell<Findings>,
}

impl File<'_> {
    /// Returns the findings with their lines. One pass over the text finds the lines of all
    /// findings.
    pub(super) fn into_findings(self) -> Findings {
        let findings = self.findings.into_inner();
        let tops = findings.iter().filter_map(top).collect();
        let lines = yaml::lines_of(self.text, &tops);
        let located = findings.iter().cloned().map(|mut finding| {
            finding.place.line = top(&finding).and_then(|top| lines.get(top).copied());
            finding
        });
        located.collect()
    }

    /// Adds a finding about the field at `path`.
    pub(super) fn report(&self, path: &str, finding: Finding) {
        let mut finding = finding.in_file(self.name);
        if !path.is_empty() {
            finding = finding.at_field(path);
        }
        self.findings.borrow_mut().push(finding);
    }

    /// Returns the text. If the text exceeds the length limit, adds an error and returns `None`.
    fn bounded<'t>(&self, path: &str, text: &'t str) -> Option<&'t str> {
        let length = text.chars().count();
        if length <= MAX_TEXT {
            return Some(text);
        }
        self.add_error(
            path,
            codes::format::BAD_PACKAGE,
            format!("the text has {length} characters, more than the limit of {MAX_TEXT}"),
            "move long texts to a page, and list its address in `links`",
        );
        None
    }

    /// Adds a finding with this code, message and hint.
    pub(super) fn add_error(
        &self,
        path: &str,
        code: Code,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.report(path, Finding::error(code, message).hint(hint));
    }
}

/// Returns the top-level key of the finding's field; `None` if the finding has no field.
fn top(finding: &Finding) -> Option<&str> {
    finding.place.field.as_deref()?.split(['.', '[']).next()
}

impl<'a> Fields<'a> {
    /// Returns the fields of a map. If the value is not a map, adds an error and returns `None`.
    /// Fields that are not in `shape` are errors.
    pub(super) fn new(
        value: &'a Value,
        path: &str,
        file: &'a File<'a>,
        shape: &'static Shape,
    ) -> Option<Self> {
        let known = shape.names();
        let Value::Object(map) = value else {
            file.add_error(
                path,
                codes::format::BAD_PACKAGE,
                format!("the value is {}, but must be a map", describe(value)),
                format!("its fields are {}", known.join(", ")),
            );
            return None;
        };
        let fields = Self {
            map,
            shape,
            path: path.to_owned(),
            file,
        };
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            // The search for a similar name is slow, and only the first findings are listed.
            let is_listed = !file.findings.borrow().is_full(Severity::Error);
            let mut unsupported = shape.unsupported.iter();
            let hint = match unsupported.find(|(name, _)| name == key) {
                Some((_, hint)) => (*hint).to_owned(),
                None if !is_listed => String::new(),
                None => match suggest::nearest(key, &known) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("the allowed fields are {}", known.join(", ")),
                },
            };
            file.add_error(
                &fields.at(key),
                codes::format::BAD_PACKAGE,
                format!("unknown field `{key}`"),
                hint,
            );
        }
        Some(fields)
    }

    /// Returns the path of a field.
    pub(super) fn at(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Returns the path of the map.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the value of a field. Null counts as absent.
    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Returns an optional text field.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        match self.value(key)? {
            Value::String(text) => self.file.bounded(&self.at(key), text),
            other => {
                let hint = match other {
                    Value::Array(_) | Value::Object(_) => "write one line of text",
                    _ => "put the value in quotes",
                };
                self.file.add_error(
                    &self.at(key),
                    codes::format::BAD_PACKAGE,
                    format!("the value is {}, but must be a string", describe(other)),
                    hint,
                );
                None
            }
        }
    }

    /// Returns a required text field. If the field is missing or invalid, adds an error and returns
    /// `None`.
    pub(super) fn required(&self, key: &str) -> Option<&'a str> {
        if self.value(key).is_none() {
            self.report_missing(key);
            return None;
        }
        self.text(key)
    }

    fn report_missing(&self, key: &str) {
        let example = self.shape.field(key).map_or("", |field| field.example);
        self.file.add_error(
            &self.at(key),
            codes::format::BAD_PACKAGE,
            "the field is missing",
            format!("add `{key}: {example}`"),
        );
    }

    /// Parses a text field with `parse`. Returns `None` if the field is absent or invalid. Errors
    /// get the location of the field.
    pub(super) fn parsed<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, Finding>,
    ) -> Option<T> {
        self.read(key, self.text(key)?, parse)
    }

    /// Parses `text`, the value of the field `key`, with `parse`. Returns `None` if the text is
    /// invalid. Errors get the location of the field.
    pub(super) fn read<T>(
        &self,
        key: &str,
        text: &str,
        parse: impl FnOnce(&str) -> Result<T, Finding>,
    ) -> Option<T> {
        parse(text)
            .map_err(|finding| self.file.report(&self.at(key), finding))
            .ok()
    }

    /// Parses a required text field with `parse`. Returns `None` if the field is missing or
    /// invalid.
    pub(super) fn required_as<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, Finding>,
    ) -> Option<T> {
        self.read(key, self.required(key)?, parse)
    }

    /// Returns a field that is a map; `None` if the field is absent or invalid.
    pub(super) fn fields(&self, key: &str) -> Option<Fields<'a>> {
        let FieldType::Map(shape) = self.shape.field(key)?.holds else {
            return None;
        };
        Fields::new(self.value(key)?, &self.at(key), self.file, shape)
    }

    /// Returns a required field that is a map. If the field is missing or invalid, adds an error
    /// and returns `None`.
    pub(super) fn required_map(&self, key: &str) -> Option<Fields<'a>> {
        if self.value(key).is_none() {
            self.report_missing(key);
        }
        self.fields(key)
    }

    /// Returns the items of a field that is a list of maps. `read` parses each map. Invalid items
    /// are omitted.
    pub(super) fn list<T>(&self, key: &str, read: impl Fn(&Fields<'a>) -> Option<T>) -> Vec<T> {
        let Some(FieldType::Maps(shape)) = self.shape.field(key).map(|field| &field.holds) else {
            return Vec::new();
        };
        self.items(key)
            .filter_map(|(path, item)| read(&Fields::new(item, &path, self.file, shape)?))
            .collect()
    }

    /// Returns the items of a field that is a list of texts, each parsed with `parse`. Errors get
    /// the location of the item.
    pub(super) fn texts_as<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Finding>,
    ) -> Vec<T> {
        self.texts(key)
            .into_iter()
            .filter_map(|(path, text)| {
                parse(text)
                    .map_err(|finding| self.file.report(&path, finding))
                    .ok()
            })
            .collect()
    }

    /// Returns a field that is a list of texts, each with its path.
    fn texts(&self, key: &str) -> Vec<(String, &'a str)> {
        self.items(key)
            .filter_map(|(path, item)| match item {
                Value::String(text) => {
                    let text = self.file.bounded(&path, text)?;
                    Some((path, text))
                }
                other => {
                    let message = format!("the value is {}, but must be a string", describe(other));
                    self.file.add_error(
                        &path,
                        codes::format::BAD_PACKAGE,
                        message,
                        "put the value in quotes",
                    );
                    None
                }
            })
            .collect()
    }

    fn items(&self, key: &str) -> impl Iterator<Item = (String, &'a Value)> + use<'a> {
        let path = self.at(key);
        let items: &[Value] = match self.value(key) {
            None => &[],
            Some(Value::Array(items)) => {
                if items.len() > MAX_ITEMS {
                    self.file.add_error(
                        &path,
                        codes::format::BAD_PACKAGE,
                        format!(
                            "the list has {} items, more than the limit of {MAX_ITEMS}",
                            items.len()
                        ),
                        "keep the most important items",
                    );
                }
                &items[..items.len().min(MAX_ITEMS)]
            }
            Some(other) => {
                self.file.add_error(
                    &path,
                    codes::format::BAD_PACKAGE,
                    format!("the value is {}, but must be a list", describe(other)),
                    "start each item with `- `",
                );
                &[]
            }
        };
        items
            .iter()
            .enumerate()
            .map(move |(index, item)| (format!("{path}[{index}]"), item))
    }

    /// Returns the file, for findings.
    pub(super) fn file(&self) -> &'a File<'a> {
        self.file
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing (null)".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(_) => "text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
    }
}
