//! YAML and JSON parser of the project: accepts the same input as kubectl, within limits, and
//! reports errors with their line.

mod allowance;
mod keys;
mod limits;
mod problem;
mod split;
mod tree;
mod weigh;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::diagnostic::{Finding, Findings, codes};

pub use allowance::Allowance;
pub use limits::MAX_FILE_BYTES;
pub use weigh::{Weight, weigh};

/// One document of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Content of the document, as JSON.
    pub value: Value,
    /// First line of the content, from 1.
    pub line: usize,
}

/// Parses all documents of a file. Documents without content (only white space and comments) are
/// skipped, as in kubectl. Returns an error with file and line for invalid content, and for a file
/// without any content.
pub fn documents(text: &[u8], file: &str) -> Result<Vec<Document>, Findings> {
    documents_within(text, file, &mut Allowance::default())
}

/// Like [`documents`], with one limit (`allowance`) for several files together.
pub fn documents_within(
    text: &[u8],
    file: &str,
    allowance: &mut Allowance,
) -> Result<Vec<Document>, Findings> {
    let text = limits::text(text, file)?;
    let mut found = Vec::new();
    let mut findings = Findings::default();
    for part in split::parts(text) {
        match tree::read(part, file, allowance) {
            Ok(Some(document)) => found.push(document),
            Ok(None) => {}
            Err(finding) => findings.push(finding),
        }
    }
    if findings.has_errors() {
        return Err(findings);
    }
    if found.is_empty() {
        return Err(
            Finding::error(codes::format::EMPTY_FILE, "the file has no document")
                .in_file(file)
                .hint("add an object, or remove the file")
                .into(),
        );
    }
    Ok(found)
}

/// Like [`documents_within`], for files for which no memory is reserved. Returns an error before
/// any document is parsed if the parsed documents need more than `memory` bytes.
pub fn small_documents(
    text: &[u8],
    file: &str,
    memory: u64,
    allowance: &mut Allowance,
) -> Result<Vec<Document>, Findings> {
    let weight = weigh(text, file, &mut allowance.for_weighing())?;
    if weight.documents_memory() > memory {
        return Err(problem::too_much_memory(memory, file).into());
    }
    documents_within(text, file, allowance)
}

/// Serializes a value as YAML that YAML 1.1 and 1.2 parsers read as the same value.
pub fn to_string(value: &Value) -> String {
    // Serialisation of a JSON value cannot fail, because its keys are text and its numbers are
    // finite. The fallback is JSON, which is also valid YAML. Folded lines (`>-`) would be valid,
    // but are unusual for references and messages.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: 1 << 20 };
    serde_saphyr::to_string_with_options(value, options).unwrap_or_else(|_| format!("{value}\n"))
}

/// Serializes a type of this project with its fields in order. Types with only text, numbers, lists
/// and maps cannot fail to serialize.
pub fn write(document: &impl serde::Serialize) -> String {
    let options = serde_saphyr::ser_options! { folded_wrap_chars: 1 << 20 };
    serde_saphyr::to_string_with_options(document, options)
        .or_else(|_| serde_json::to_string(document))
        .unwrap_or_default()
}

/// Returns the lines of top-level keys in a document, from 1, for findings. The text is read once
/// for all keys.
pub fn lines_of<'k>(text: &[u8], keys: &BTreeSet<&'k str>) -> BTreeMap<&'k str, usize> {
    let mut found = BTreeMap::new();
    let Ok(text) = std::str::from_utf8(text) else {
        return found;
    };
    for (index, line) in text.lines().enumerate() {
        let line = line.strip_prefix(['"', '\'']).unwrap_or(line);
        let Some((key, _)) = line.split_once(':') else {
            continue;
        };
        let key = key.trim_end();
        let key = key.strip_suffix(['"', '\'']).unwrap_or(key);
        if let Some(key) = keys.get(key) {
            found.entry(*key).or_insert(index + 1);
        }
    }
    found
}
