//! Reduces the JSON of an answer while it arrives: fields of other managers in `managedFields` are dropped, and an object that is still too large is replaced
//! by its identity; so is one that does not parse. Times of metadata that do not parse become null. Memory is bounded by the limit of one object,
//! whatever arrives.
//! Not here: which answers are reduced (answers).

mod rules;

use std::mem;

use bundle_api::names::FIELD_MANAGER;

use super::readable;

pub(super) use self::rules::{AnswerKind, ObjectRules};

/// Marks metadata that was too large to be read or did not parse, in the place of all annotations.
pub const TOO_LARGE: &str = "core.rukpak.io/metadata-too-large";

/// The longest name, uid or timestamp that is kept of an object that is too large, in bytes. Kubernetes allows 253.
const TEXT_LIMIT: usize = 300;
/// The deepest nesting that is read. `serde_json` reads 128.
const DEPTH_LIMIT: usize = 100;
/// About what a map that is not empty takes once it is parsed, beside its further entries, in bytes.
const MAP_WEIGHT: usize = 700;
/// About what a further entry of a map or list takes beside its text, in bytes.
const ENTRY_WEIGHT: usize = 100;
/// The fields of `metadata` that are kept of an object that is too large.
const IDENTITY: [&str; 6] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
];

/// The times among these fields.
const TIMES: [&str; 2] = ["creationTimestamp", "deletionTimestamp"];

/// An answer that is no JSON that an API server writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("the answer is not made of JSON objects")]
    Json,
    #[error("the answer has more than {0} bytes outside of its objects")]
    Envelope(usize),
}

/// An object or list that has begun and not ended.
#[derive(Debug, Default)]
struct Container {
    is_map: bool,
    /// Number of keys that were read.
    keys: usize,
    /// The next text is a key.
    expects_key: bool,
    /// The last key, if it is short.
    key: Vec<u8>,
    /// An entry of `managedFields` that names our manager.
    is_ours: bool,
}

/// The text that is being read.
#[derive(Debug, Default)]
struct Text {
    is_escaped: bool,
    is_key: bool,
    /// Offset of its opening quote in what was not taken yet, if it is a time of metadata.
    time: Option<usize>,
    /// Its start, up to the limit.
    start: Vec<u8>,
    is_long: bool,
}

/// Reads an answer in pieces and returns it reduced.
#[derive(Debug)]
pub(super) struct Reducer {
    kind: AnswerKind,
    rules: ObjectRules,
    open: Vec<Container>,
    /// Containers below the deepest nesting that is read.
    below: usize,
    /// There was one.
    is_too_deep: bool,
    text: Option<Text>,
    out: Vec<u8>,
    /// Estimate of the bytes that `out` would take as text and as a tree.
    weight: usize,
    /// Start and weight in `out` where the present object begins.
    object: Option<(usize, usize)>,
    is_too_large: bool,
    identity: Vec<(&'static str, Vec<u8>)>,
    /// The key of a value to be dropped was read, and its value begins at this depth.
    dropped: Option<usize>,
    /// Names of objects that were too large.
    too_large: Vec<String>,
}

impl Reducer {
    pub(super) fn new(kind: AnswerKind, rules: ObjectRules) -> Self {
        Self {
            kind,
            rules,
            open: Vec::new(),
            below: 0,
            is_too_deep: false,
            text: None,
            out: Vec::new(),
            weight: 0,
            object: None,
            is_too_large: false,
            identity: Vec::new(),
            dropped: None,
            too_large: Vec::new(),
        }
    }

    /// Reads the next bytes of the answer.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
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

    /// Returns an estimate of the bytes that what was read and not taken yet would take, as text and as a tree.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Returns whether values were nested deeper than is read.
    pub(super) fn is_too_deep(&self) -> bool {
        self.is_too_deep
    }

    /// Takes what can be passed on: of a watch the lines that are complete, else everything but a time that has begun.
    pub(super) fn take(&mut self) -> Vec<u8> {
        if self.kind == AnswerKind::Watch && !self.open.is_empty() {
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

    /// Takes the names of the objects that were too large.
    pub(super) fn take_too_large(&mut self) -> Vec<String> {
        mem::take(&mut self.too_large)
    }

    fn in_text(&mut self, byte: u8) {
        self.emit(byte);
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
            let drops = !self.rules.keeps_fields
                && text.start == b"fieldsV1"
                && self.entry().is_some_and(|entry| !entry.is_ours);
            if drops {
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

    /// Writes null in the place of the text that has ended, and began at `begin`.
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

    fn between(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.open.is_empty() && !matches!(byte, b'{' | b' ' | b'\t' | b'\r' | b'\n') {
            return Err(Malformed::Json);
        }
        // The end of a dropped value is the comma after it, or the end of its map.
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

    fn begin(&mut self, byte: u8) -> Result<(), Malformed> {
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
                Err(Malformed::Json)
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

    fn end(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.below > 0 {
            self.below -= 1;
            if !self.rules.is_checked {
                self.emit(byte);
            }
            return Ok(());
        }
        let container = self.open.pop().ok_or(Malformed::Json)?;
        if container.is_map != (byte == b'}') {
            return Err(Malformed::Json);
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

    /// Writes the identity of an object in its place.
    fn replace(&mut self) {
        let mut metadata = vec![format!(r#""annotations":{{"{TOO_LARGE}":"true"}}"#)];
        let mut name = String::new();
        for (field, text) in mem::take(&mut self.identity) {
            // The bytes between two quotes of the answer, as they were.
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
        self.out.push(byte);
        self.weight += match byte {
            b',' if self.text.is_none() => ENTRY_WEIGHT,
            _ => 1,
        };
    }

    fn is_kept(&self) -> bool {
        !self.is_too_large && self.dropped.is_none()
    }

    fn check_weight(&mut self) -> Result<(), Malformed> {
        let limit = self.rules.limit;
        match self.object {
            Some((_, weight)) => {
                if self.weight.saturating_sub(weight) > limit {
                    self.discard_object();
                }
                Ok(())
            }
            // The caller looks at the weight of lists.
            None if self.kind != AnswerKind::List && self.weight > limit.saturating_mul(2) => {
                Err(Malformed::Envelope(limit))
            }
            None => Ok(()),
        }
    }

    /// Forgets what was read of the present object, and the rest of it. Returns `false` if there is none.
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

    /// Returns whether an object begins with the next map.
    fn is_before_object(&self) -> bool {
        let key = |at: usize, key: &str| {
            let container = self.open.get(at);
            container.is_some_and(|open| open.is_map && open.key == key.as_bytes())
        };
        self.open.len() == self.kind.depth()
            && match self.kind {
                AnswerKind::Object => true,
                AnswerKind::Watch => key(0, "object"),
                AnswerKind::List => {
                    key(0, "items") && self.open.last().is_some_and(|list| !list.is_map)
                }
            }
    }

    /// The containers from the present object on, if there is one.
    fn within(&self) -> &[Container] {
        match self.object {
            Some(_) => self.open.get(self.kind.depth()..).unwrap_or_default(),
            None => &[],
        }
    }

    /// Returns whether the next text is a time of metadata.
    fn is_before_time(&self) -> bool {
        let key = self.open.last().map(|container| container.key.as_slice());
        match key {
            Some(b"time") => self.entry().is_some(),
            Some(key) => self.is_metadata() && TIMES.iter().any(|time| time.as_bytes() == key),
            None => false,
        }
    }

    /// Returns whether the present container is the object's `metadata`.
    fn is_metadata(&self) -> bool {
        matches!(self.within(), [object, metadata] if object.key == b"metadata" && metadata.is_map)
    }

    /// The present container, if it is an entry of `metadata.managedFields`.
    fn entry(&self) -> Option<&Container> {
        match self.within() {
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
