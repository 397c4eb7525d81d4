//! `.helmignore`: patterns of files that helm excludes from a chart.

use super::bad;
use crate::diagnostic::Findings;

/// File with the patterns of ignored files.
pub const IGNORE: &str = ".helmignore";

/// Maximum size of a `.helmignore`, in bytes.
pub const IGNORE_BYTES: u64 = 64 << 10;
/// Maximum number of patterns.
const PATTERNS: usize = 500;

/// Patterns of a `.helmignore`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignore {
    patterns: Vec<String>,
}

impl Ignore {
    /// Parses a `.helmignore`: one pattern on each line, with `*`, `?`, a leading `/` for paths
    /// from the root and a final `/` for folders.
    pub fn parse(text: &[u8]) -> Result<Self, Findings> {
        if text.len() as u64 > IGNORE_BYTES {
            let message = format!("the file is larger than {} KiB", IGNORE_BYTES >> 10);
            return Err(bad(IGNORE, message).hint("remove patterns").into());
        }
        let text = String::from_utf8_lossy(text);
        let mut findings = Findings::default();
        let mut patterns = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with('!') || line.contains("**") || line.contains(['[', '\\']) {
                findings.push(
                    bad(IGNORE, format!("invalid pattern `{line}`"))
                        .at_line(index + 1)
                        .hint("use names with `*` and `?`; begin with `/` for paths from the root, end with `/` for folders"),
                );
                continue;
            }
            if patterns.len() == PATTERNS {
                let finding = bad(
                    IGNORE,
                    format!("the file has more than {PATTERNS} patterns"),
                );
                return Err(finding.at_line(index + 1).hint("remove patterns").into());
            }
            patterns.push(line.to_owned());
        }
        if findings.has_errors() {
            return Err(findings);
        }
        Ok(Self { patterns })
    }

    /// Returns the length of all patterns, in bytes.
    pub(super) fn length(&self) -> usize {
        self.patterns.iter().map(String::len).sum()
    }

    /// Returns `true` if the file or folder at `path` is ignored.
    pub fn covers(&self, path: &str, is_folder: bool) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.patterns.iter().any(|pattern| {
            let (pattern, only_folders) = match pattern.strip_suffix('/') {
                Some(pattern) => (pattern, true),
                None => (pattern.as_str(), false),
            };
            if only_folders && !is_folder {
                return false;
            }
            match pattern.strip_prefix('/') {
                Some(rooted) => matches(rooted.as_bytes(), path.as_bytes()),
                None if pattern.contains('/') => matches(pattern.as_bytes(), path.as_bytes()),
                None => matches(pattern.as_bytes(), name.as_bytes()),
            }
        })
    }
}

/// Matches a name: `*` is any run of characters, `?` one character. Backtracks only to the last
/// `*`, so the time is at most quadratic.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(b'?') if text[from] != b'/' => {
                at += 1;
                from += 1;
            }
            Some(letter) if *letter == text[from] => {
                at += 1;
                from += 1;
            }
            _ => match star {
                Some((place, taken)) if text[taken] != b'/' => {
                    star = Some((place, taken + 1));
                    at = place + 1;
                    from = taken + 1;
                }
                _ => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_the_same_files_as_helm() {
        let ignore = Ignore::parse(b"# no\n*.bak\n/docs/\nci/*.yaml\nfoo?\n").unwrap();
        for (path, folder, covered) in [
            ("a.bak", false, true),
            ("templates/a.bak", false, true),
            ("docs", true, true),
            ("docs", false, false),
            ("templates/docs", true, false),
            ("ci/a.yaml", false, true),
            ("ci/a/b.yaml", false, false),
            ("food", false, true),
            ("foo", false, false),
        ] {
            assert_eq!(ignore.covers(path, folder), covered, "{path}");
        }
        assert!(Ignore::parse(b"!a\n**/b\n").unwrap_err().len() == 2);
    }

    #[test]
    fn large_files_and_many_patterns_are_rejected() {
        let pattern = |count: usize| Ignore::parse("a\n".repeat(count).as_bytes());
        assert_eq!(pattern(PATTERNS).unwrap().length(), PATTERNS);
        let found = pattern(PATTERNS + 1).unwrap_err().to_string();
        assert!(found.contains("more than 500 patterns"), "{found}");
        let found = Ignore::parse(&vec![b'#'; (64 << 10) + 1])
            .unwrap_err()
            .to_string();
        assert!(found.contains("larger than 64 KiB"), "{found}");
    }
}
