//! Reduces the JSON of a response while the response arrives. Fields of other managers in
//! `managedFields` are removed, and the data of an object if the caller does not need them. An
//! object that is still too large, or invalid, is replaced by its identity. Invalid timestamps in
//! the metadata become null. Memory is bounded by the limit for one object.

mod rules;

use std::mem;

use bundle_api::names::FIELD_MANAGER;

use super::readable;

pub(super) use self::rules::{ObjectRules, ResponseKind};

/// Annotation that replaces all other annotations in metadata that was too large or invalid.
pub const TOO_LARGE: &str = "core.rukpak.io/metadata-too-large";

/// Longest retained name, uid or timestamp of an object that is too large, in bytes. Kubernetes
/// allows 253.
const TEXT_LIMIT: usize = 300;
/// Largest nesting depth of a value. `serde_json` accepts a depth of 128.
const DEPTH_LIMIT: usize = 100;
/// Approximate memory of a parsed map with one entry, in bytes.
const MAP_WEIGHT: usize = 700;
/// Approximate memory of each entry after the first entry of a map or list, in bytes. The text of
/// the entry is not included.
const ENTRY_WEIGHT: usize = 100;
/// Retained fields of `metadata` of an object that is too large.
const IDENTITY: [&str; 6] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
];

/// Fields with the data of a ConfigMap or Secret.
const DATA: [&str; 2] = ["data", "binaryData"];

/// Fields of [`IDENTITY`] that are timestamps.
const TIMES: [&str; 2] = ["creationTimestamp", "deletionTimestamp"];

/// Invalid JSON in a response of an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum JsonStreamError {
    #[error("the response does not consist of JSON objects")]
    Json,
    #[error("the response has more than {0} bytes outside of its objects")]
    Envelope(usize),
}

/// JSON object or list that was not read to its end yet.
#[derive(Debug, Default)]
struct Container {
    is_map: bool,
    /// Number of keys that were read.
    keys: usize,
    /// True if the next text is a key.
    expects_key: bool,
    /// Last key, if the key is short.
    key: Vec<u8>,
    /// True for an entry of `managedFields` that belongs to the field manager of this project.
    is_ours: bool,
}

/// JSON text that is being read.
#[derive(Debug, Default)]
struct Text {
    is_escaped: bool,
    is_key: bool,
    /// Offset of the opening quote of the text in the pending output, if the text is a timestamp in
    /// the metadata.
    time: Option<usize>,
    /// Start of the text, up to `TEXT_LIMIT` bytes.
    start: Vec<u8>,
    is_long: bool,
}

impl Text {
    /// Returns true if the text is a timestamp that is too long.
    fn is_long_time(&self) -> bool {
        self.is_long && self.time.is_some()
    }
}

/// Reads a response in chunks, and returns the reduced response.
#[derive(Debug)]
pub(super) struct Reducer {
    kind: ResponseKind,
    rules: ObjectRules,
    open: Vec<Container>,
    /// Number of open containers that are nested deeper than `DEPTH_LIMIT`.
    below: usize,
    /// True if the nesting depth exceeded `DEPTH_LIMIT`.
    is_too_deep: bool,
    text: Option<Text>,
    /// False if the reducer only computes the weight of the output.
    stores_output: bool,
    out: Vec<u8>,
    /// Estimated memory of `out` as text and as a parsed tree, in bytes.
    weight: usize,
    /// Offset in `out` at which the current object starts, and the weight of `out` before this
    /// object.
    object: Option<(usize, usize)>,
    is_too_large: bool,
    identity: Vec<(&'static str, Vec<u8>)>,
    /// Depth of the value that the reducer is removing from the output. `None` if no value is being
    /// removed.
    dropped: Option<usize>,
    /// Names of objects that were too large.
    too_large: Vec<String>,
}

impl Reducer {
    pub(super) fn new(kind: ResponseKind, rules: ObjectRules) -> Self {
        Self {
            kind,
            rules,
            open: Vec::new(),
            below: 0,
            is_too_deep: false,
            text: None,
            stores_output: true,
            out: Vec::new(),
            weight: 0,
            object: None,
            is_too_large: false,
            identity: Vec::new(),
            dropped: None,
            too_large: Vec::new(),
        }
    }

    /// Returns a reducer that computes the weight of its output, and stores no output. The text of
    /// an invalid timestamp counts, although it would be replaced.
    pub(super) fn without_output(kind: ResponseKind, rules: ObjectRules) -> Self {
        Self {
            stores_output: false,
            ..Self::new(kind, rules)
        }
    }

    /// Reads the next bytes of the response.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), JsonStreamError> {
        for &byte in bytes {
            if self.text.is_some() {
                self.in_text(byte);
            } else {
                self.between(byte)?;
            }
            self.check_weight()?;
        }
        Ok(())
    }

    /// Returns the estimated memory of the pending output, as text and as a tree, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Returns true if the nesting depth exceeded the limit.
    pub(super) fn is_too_deep(&self) -> bool {
        self.is_too_deep
    }

    /// Returns the complete part of the output. For a watch, these are the complete lines. For
    /// other responses, this is all output before an incomplete timestamp.
    pub(super) fn take(&mut self) -> Vec<u8> {
        if self.kind == ResponseKind::Watch && !self.open.is_empty() {
            return Vec::new();
        }
        self.weight = 0;
        let time = self.text.as_mut().and_then(|text| text.time.as_mut());
        let rest = time.map(|begin| {
            let at = mem::take(begin).min(self.out.len());
            self.out.split_off(at)
        });
        mem::replace(&mut self.out, rest.unwrap_or_default())
    }

    /// Returns and clears the names of objects that were too large.
    pub(super) fn take_too_large(&mut self) -> Vec<String> {
        mem::take(&mut self.too_large)
    }

    fn in_text(&mut self, byte: u8) {
        // The end of the text replaces a timestamp that is too long. Therefore its rest is not
        // stored, and `take` never copies more than its start.
        let is_replaced = self.text.as_ref().is_some_and(Text::is_long_time);
        if !is_replaced || !self.stores_output {
            self.emit(byte);
        }
        let Some(text) = &mut self.text else { return };
        if text.is_escaped {
            text.is_escaped = false;
        } else if byte == b'\\' {
            text.is_escaped = true;
        } else if byte == b'"' {
            if let Some(text) = self.text.take() {
                self.end_text(text);
            }
            return;
        }
        if text.start.len() < TEXT_LIMIT {
            text.start.push(byte);
        } else {
            text.is_long = true;
        }
    }

    fn end_text(&mut self, text: Text) {
        if text.is_key {
            let drops_fields = !self.rules.keeps_fields
                && text.start == b"fieldsV1"
                && self.entry().is_some_and(|entry| !entry.is_ours);
            let drops_data = !self.rules.keeps_data
                && self.open_containers_of_object().len() == 1
                && DATA.iter().any(|field| text.start == field.as_bytes());
            if drops_fields || drops_data {
                self.dropped = Some(self.open.len());
            }
            let Some(container) = self.open.last_mut() else {
                return;
            };
            container.key = if text.is_long { Vec::new() } else { text.start };
            container.keys = container.keys.saturating_add(1);
            if container.keys == 1 && self.is_kept() {
                self.weight += MAP_WEIGHT;
            }
            return;
        }
        if let Some(begin) = text.time
            && (text.is_long || !readable::is_time(&text.start))
        {
            self.replace_text(begin);
            return;
        }
        if text.is_long {
            return;
        }
        if self.entry().is_some_and(|entry| entry.key == b"manager") {
            let is_ours = text.start == FIELD_MANAGER.as_bytes();
            if let Some(entry) = self.open.last_mut() {
                entry.is_ours = is_ours;
            }
        } else if self.is_metadata() {
            let key = self.open.last().map(|container| container.key.as_slice());
            let field = IDENTITY.iter().find(|field| key == Some(field.as_bytes()));
            if let Some(field) = field {
                self.identity.push((field, text.start));
            }
        }
    }

    /// Replaces the completed text that started at `begin` with null.
    fn replace_text(&mut self, begin: usize) {
        if !self.is_kept() {
            return;
        }
        self.weight = self
            .weight
            .saturating_sub(self.out.len().saturating_sub(begin));
        self.out.truncate(begin);
        for byte in *b"null" {
            self.emit(byte);
        }
    }

    fn between(&mut self, byte: u8) -> Result<(), JsonStreamError> {
        if self.open.is_empty() && !matches!(byte, b'{' | b' ' | b'\t' | b'\r' | b'\n') {
            return Err(JsonStreamError::Json);
        }
        // A removed value ends at the next comma, or at the end of the map that contains it.
        if matches!(byte, b',' | b'}') && self.dropped == Some(self.open.len()) {
            self.dropped = None;
            for byte in *b":{}" {
                self.emit(byte);
            }
        }
        match byte {
            b'{' | b'[' => self.begin(byte)?,
            b'}' | b']' => self.end(byte)?,
            b'"' => {
                let container = self.open.last();
                let is_key = container.is_some_and(|container| container.expects_key);
                self.text = Some(Text {
                    is_key,
                    time: (!is_key && self.is_before_time()).then_some(self.out.len()),
                    ..Text::default()
                });
                self.emit(byte);
            }
            b':' => {
                self.expect_key(false);
                self.emit(byte);
            }
            b',' => {
                self.expect_key(true);
                self.emit(byte);
            }
            _ => self.emit(byte),
        }
        Ok(())
    }

    fn expect_key(&mut self, expects: bool) {
        if let Some(container) = self.open.last_mut() {
            container.expects_key = expects && container.is_map;
        }
    }

    fn begin(&mut self, byte: u8) -> Result<(), JsonStreamError> {
        if self.open.len() >= DEPTH_LIMIT {
            self.below += 1;
            self.is_too_deep = true;
            if !self.rules.is_checked {
                self.emit(byte);
                return Ok(());
            }
            return if self.discard_object() {
                Ok(())
            } else {
                Err(JsonStreamError::Json)
            };
        }
        if byte == b'{' && self.object.is_none() && self.is_before_object() {
            self.object = Some((self.out.len(), self.weight));
            self.identity.clear();
        }
        self.emit(byte);
        self.open.push(Container {
            is_map: byte == b'{',
            expects_key: byte == b'{',
            ..Container::default()
        });
        Ok(())
    }

    fn end(&mut self, byte: u8) -> Result<(), JsonStreamError> {
        if self.below > 0 {
            self.below -= 1;
            if !self.rules.is_checked {
                self.emit(byte);
            }
            return Ok(());
        }
        let container = self.open.pop().ok_or(JsonStreamError::Json)?;
        if container.is_map != (byte == b'}') {
            return Err(JsonStreamError::Json);
        }
        self.emit(byte);
        if self.open.len() == self.kind.depth()
            && let Some((start, _)) = self.object
        {
            let object = self.out.get(start..).unwrap_or_default();
            if self.rules.is_checked && !self.is_too_large && !readable::is_readable(object) {
                self.discard_object();
            }
            self.object = None;
            if mem::take(&mut self.is_too_large) {
                self.replace();
            }
            self.identity.clear();
        }
        Ok(())
    }

    /// Replaces an object with its identity.
    fn replace(&mut self) {
        let mut metadata = vec![format!(r#""annotations":{{"{TOO_LARGE}":"true"}}"#)];
        let mut name = String::new();
        for (field, text) in mem::take(&mut self.identity) {
            // `text` has the escape sequences of the response, so it needs no further escaping in
            // JSON.
            let text = String::from_utf8_lossy(&text);
            if matches!(field, "namespace" | "name") {
                if !name.is_empty() {
                    name.push(' ');
                }
                name.push_str(&text);
            }
            metadata.push(format!(r#""{field}":"{text}""#));
        }
        self.too_large.push(name);
        for byte in format!(r#"{{"metadata":{{{}}}}}"#, metadata.join(",")).bytes() {
            self.emit(byte);
        }
    }

    fn emit(&mut self, byte: u8) {
        if !self.is_kept() {
            return;
        }
        if self.stores_output {
            self.out.push(byte);
        }
        self.weight += match byte {
            b',' if self.text.is_none() => ENTRY_WEIGHT,
            _ => 1,
        };
    }

    fn is_kept(&self) -> bool {
        !self.is_too_large && self.dropped.is_none()
    }

    fn check_weight(&mut self) -> Result<(), JsonStreamError> {
        let limit = self.rules.limit;
        match self.object {
            Some((_, weight)) => {
                if self.weight.saturating_sub(weight) > limit {
                    self.discard_object();
                }
                Ok(())
            }
            // For lists, the caller checks the weight.
            None if self.kind != ResponseKind::List && self.weight > limit.saturating_mul(2) => {
                Err(JsonStreamError::Envelope(limit))
            }
            None => Ok(()),
        }
    }

    /// Discards the current object, including its unread rest. Returns `false` if there is no
    /// current object.
    fn discard_object(&mut self) -> bool {
        let Some((start, weight)) = self.object else {
            return false;
        };
        if !mem::replace(&mut self.is_too_large, true) {
            self.out.truncate(start);
            self.weight = weight;
        }
        true
    }

    /// Returns true if a map that begins here is one of the objects in the response.
    fn is_before_object(&self) -> bool {
        let key = |at: usize, key: &str| {
            let container = self.open.get(at);
            container.is_some_and(|open| open.is_map && open.key == key.as_bytes())
        };
        self.open.len() == self.kind.depth()
            && match self.kind {
                ResponseKind::Object => true,
                ResponseKind::Watch => key(0, "object"),
                ResponseKind::List => {
                    key(0, "items") && self.open.last().is_some_and(|list| !list.is_map)
                }
            }
    }

    /// Returns the open containers, beginning with the current object. The result is empty if there
    /// is no current object.
    fn open_containers_of_object(&self) -> &[Container] {
        match self.object {
            Some(_) => self.open.get(self.kind.depth()..).unwrap_or_default(),
            None => &[],
        }
    }

    /// Returns true if the next text is a timestamp in the metadata.
    fn is_before_time(&self) -> bool {
        let key = self.open.last().map(|container| container.key.as_slice());
        match key {
            Some(b"time") => self.entry().is_some(),
            Some(key) => self.is_metadata() && TIMES.iter().any(|time| time.as_bytes() == key),
            None => false,
        }
    }

    /// Returns true if the current container is the object's `metadata`.
    fn is_metadata(&self) -> bool {
        matches!(self.open_containers_of_object(), [object, metadata] if object.key == b"metadata" && metadata.is_map)
    }

    /// Returns the current container if it is an entry of `metadata.managedFields`.
    fn entry(&self) -> Option<&Container> {
        match self.open_containers_of_object() {
            [object, metadata, list, entry]
                if object.key == b"metadata"
                    && metadata.key == b"managedFields"
                    && !list.is_map
                    && entry.is_map =>
            {
                Some(entry)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
