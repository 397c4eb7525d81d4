//! Limits for YAML input: bytes, nodes, depth and expansion of aliases.

use serde_saphyr::Options;

use crate::diagnostic::{Finding, codes};

/// Largest manifest file in bytes (10 MiB). The API server accepts objects up to 3 MiB, and etcd up
/// to 1.5 MiB.
pub const MAX_FILE_BYTES: usize = 10 * 1024 * 1024;

/// Nodes (scalars, lists, maps) of one document. Large CRDs have about 50,000.
pub(super) const MAX_NODES: usize = 500_000;

/// Lists and maps within each other. The deepest CRDs reach about half of it.
pub(super) const MAX_DEPTH: usize = 128;

/// Limit for the expansion of all aliases in one document, in parser events.
pub(super) const MAX_UNFOLDED: usize = 100_000;

/// Text that the parser stores for all anchors of one document, in bytes. Nested anchors store their
/// common text several times.
pub(super) const MAX_ANCHOR_BYTES: usize = 1 << 20;

/// Limit for the expansion of aliases in several files together, so that many small files cannot
/// exceed the limit of one large file.
#[derive(Debug)]
pub struct Allowance {
    /// Nodes that may still come.
    pub(super) nodes: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            nodes: MAX_NODES * 4,
        }
    }
}

/// The text of a file, if it is one and not too large.
pub(super) fn text<'a>(bytes: &'a [u8], file: &str) -> Result<&'a str, Finding> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(Finding::error(
            codes::format::FILE_TOO_LARGE,
            format!(
                "the file has {} bytes, more than the limit of {MAX_FILE_BYTES} (10 MiB)",
                bytes.len()
            ),
        )
        .in_file(file)
        .hint("split it into several files; API servers reject objects of that size"));
    }
    let not_text = |at: usize, what: &str| {
        let line = bytes[..at].split(|byte| *byte == b'\n').count();
        Finding::error(codes::format::UNREADABLE, format!("invalid YAML: {what}"))
            .in_file(file)
            .at_line(line)
            .hint("manifests are YAML or JSON, in UTF-8")
    };
    let text = std::str::from_utf8(bytes)
        .map_err(|error| not_text(error.valid_up_to(), "the file is not UTF-8"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(at) = text.find('\0') {
        return Err(not_text(at, "the file has a NUL byte"));
    }
    Ok(text)
}

/// The one set of options that reads YAML as kubectl does (YAML 1.1 booleans and octal numbers),
/// within the limits.
pub(super) fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MAX_NODES,
            max_events: MAX_NODES * 3,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_documents: 1,
            max_recorded_anchor_events: MAX_UNFOLDED,
            max_recorded_anchor_bytes: MAX_ANCHOR_BYTES,
            max_total_scalar_bytes: MAX_FILE_BYTES * 2,
            // The ratio of aliases to anchors says nothing: what they unfold to is limited instead.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_UNFOLDED,
        },
        // Errors are rendered by us, in one line.
        with_snippet: false,
        legacy_octal_numbers: true,
        // A custom tag is a type that JSON does not have.
        reject_unsupported_tags: true,
        emit_comments: false,
    }
}
