//! Limits for YAML input: bytes, nodes, depth and expansion of aliases.

use serde_saphyr::Options;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};

use crate::diagnostic::{Finding, codes};

/// Merge key: the entries of its value are merged into the map that contains the key.
pub(super) const MERGE_KEY: &str = "<<";

/// Largest manifest file in bytes (10 MiB). The API server accepts objects up to 3 MiB, and etcd up
/// to 1.5 MiB.
pub const MAX_FILE_BYTES: usize = 10 * 1024 * 1024;

/// Maximum number of nodes (scalars, lists, maps) in one document. Large CRDs have about 50,000.
pub(super) const MAX_NODES: usize = 500_000;

/// Maximum number of nodes in a document with merge keys (`<<`). The parser stores the keys and
/// events of such a document, up to 1,300 bytes for each node.
pub(super) const MAX_STORED_NODES: usize = 8_000;

/// Maximum nesting of lists and maps. The deepest CRDs reach about half of this limit.
pub(super) const MAX_DEPTH: usize = 128;

/// Limit for the expansion of all aliases in one document, in parser events. The parser stores the
/// events of anchors, and the events of an alias that is a key, with up to 460 bytes for each
/// event.
pub(super) const MAX_UNFOLDED: usize = 24_000;

/// Maximum text that the parser stores for all anchors of one document, in bytes. Nested anchors
/// store their common text several times.
pub(super) const MAX_ANCHOR_BYTES: usize = 1 << 20;

/// Returns the text of a file. Returns an error if the file is too large, is not UTF-8, or contains
/// a NUL byte.
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
        .hint("split the file into several files; API servers reject objects of this size"));
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

/// Returns the only options with which this project parses YAML: as kubectl does (YAML 1.1 booleans
/// and octal numbers), within the limits.
///
/// To expand merge keys, the parser stores all keys of each map and all entries of merged maps. To
/// find duplicate keys, the parser would store the keys as well. Therefore the visitor finds
/// duplicate keys (`tree::read`). The parser also stores a whole list or map that is a key.
/// Therefore `keys::check` rejects such keys in large documents.
pub(super) fn options(text: &str) -> Options {
    let merges = has_merge_key(text);
    let (nodes, unfolded) = if merges {
        (MAX_STORED_NODES, MAX_STORED_NODES)
    } else {
        (MAX_NODES, MAX_UNFOLDED)
    };
    serde_saphyr::options! {
        merge_keys: if merges { MergeKeyPolicy::Merge } else { MergeKeyPolicy::AsOrdinary },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        budget: serde_saphyr::budget! {
            max_nodes: nodes,
            max_events: nodes * 3,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_documents: 1,
            max_recorded_anchor_events: unfolded,
            max_recorded_anchor_bytes: MAX_ANCHOR_BYTES,
            max_total_scalar_bytes: MAX_FILE_BYTES * 2,
            // The ratio of aliases to anchors is not limited. The size of the expansion is limited
            // instead.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: unfolded,
        },
        // This project renders errors in one line itself.
        with_snippet: false,
        legacy_octal_numbers: true,
        // JSON has no type for a custom tag.
        reject_unsupported_tags: true,
        emit_comments: false,
    }
}

/// Returns true if a document with this text can have a merge key: a whole scalar `<<`. A merge key
/// that is written with escapes is an error (`tree::read`).
pub(super) fn has_merge_key(text: &str) -> bool {
    text.match_indices(MERGE_KEY).any(|(at, key)| {
        let before = text[..at].chars().next_back();
        let after = &text[at + key.len()..];
        let is_quoted = before.is_some_and(is_quote) && after.starts_with(is_quote);
        let begins = !before.is_some_and(|before| before.is_alphanumeric() || before == '<');
        let next = after.trim_start_matches([' ', '\t']).chars().next();
        let ends = next.is_none_or(|next| next.is_whitespace() || ":,]}#".contains(next));
        is_quoted || (begins && ends)
    })
}

fn is_quote(letter: char) -> bool {
    matches!(letter, '"' | '\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_keys_are_found_and_here_documents_are_not() {
        for (text, expected) in [
            ("<<: *a", true),
            ("a:\n  << : *a", true),
            ("{<<: *a}", true),
            ("{a: 1,<<: *a}", true),
            ("!!merge \"<<\": *a", true),
            ("a: &m <<\n*m : *a", true),
            ("? <<\n: *a", true),
            (
                "a: |\n  cat <<EOF\n  cat <<-'EOF'\n  cat << EOF\n  cat <<\"EOF\"",
                false,
            ),
            ("a: 1<<2", false),
            ("a: cat <<< text", false),
            ("", false),
        ] {
            assert_eq!(has_merge_key(text), expected, "{text}");
        }
    }
}
