//! Memory estimate for the parsed documents of a file, without storing them.

use serde::Deserialize as _;

use super::{limits, problem, split};
use crate::{diagnostic::Finding, footprint::Footprint};

/// Memory estimate of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// The parsed documents.
    pub tree: Footprint,
    /// Number of documents.
    pub documents: u64,
}

/// Estimates the memory of a file's documents, within the limits of
/// [`documents`](super::documents). Returns the error that parsing would return.
pub fn weigh(text: &[u8], file: &str) -> Result<Weight, Finding> {
    let text = limits::text(text, file)?;
    let mut weight = Weight::default();
    for part in split::parts(text) {
        if part.content_line().is_none() {
            continue;
        }
        #[expect(clippy::disallowed_methods, reason = "this is the one door")]
        let counted = serde_saphyr::with_deserializer_from_str_with_options(
            part.text,
            limits::options(),
            |deserializer| Footprint::deserialize(deserializer),
        );
        let counted = counted.map_err(|error| problem::finding(&error, part.line, file))?;
        weight.tree = weight.tree.plus(counted);
        weight.documents += 1;
    }
    Ok(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_includes_expanded_anchors() {
        let plain = weigh(b"a: [1, 2]\n---\n# nothing\n---\nb: text\n", "f.yaml").unwrap();
        assert_eq!(plain.documents, 2);
        let short = weigh(b"a: &a [x, x, x, x]\n", "f.yaml").unwrap();
        let unfolded = weigh(b"a: &a [x, x, x, x]\nb: *a\nc: *a\nd: *a\n", "f.yaml").unwrap();
        assert!(unfolded.tree.0 > short.tree.0 + 3 * 4 * 32, "{unfolded:?}");
    }

    #[test]
    fn reports_parse_errors_with_line() {
        let finding = weigh(b"a: 1\n---\nkind: [\n", "f.yaml").unwrap_err();
        assert!(finding.to_string().starts_with("f.yaml:3: "), "{finding}");
    }
}
