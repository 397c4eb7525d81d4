//! Examples of diagnostics, read from the snapshots that tests compare with real messages.
//! Therefore a changed message first changes a snapshot, and then the generated page.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Folders with tests of complete messages, and the suffixes of the files with messages.
const FOLDERS: [(&str, &str); 4] = [
    ("kubectl-bundle/tests/cli", ".rs"),
    ("kubectl-bundle/src", "messages.txt"),
    ("crates", "messages.txt"),
    ("webhook/src", "messages.txt"),
];

/// Rendered messages by code. Causes and a hint are on further lines.
#[derive(Debug, Default)]
pub(super) struct Examples {
    /// Messages that end with the code.
    own: BTreeMap<String, String>,
    /// Messages about one of several objects, with the code in parentheses.
    mentions: BTreeMap<String, String>,
}

impl Examples {
    /// Reads the examples in the repository at `root`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for (folder, end) in FOLDERS {
            files.extend(sources(&root.join(folder), end)?);
        }
        let mut examples = Self::default();
        for file in files {
            examples.add(&fs_err::read_to_string(file)?);
        }
        Ok(examples)
    }

    /// Returns the example of a code.
    pub(super) fn get(&self, code: &str) -> Option<&str> {
        let found = self.own.get(code).or_else(|| self.mentions.get(code));
        found.map(String::as_str)
    }

    /// Fails if a code has no example, so that every new code needs a test of its message.
    pub(super) fn check(&self, codes: impl IntoIterator<Item = &'static str>) -> Result<()> {
        let missing: Vec<&str> = codes
            .into_iter()
            .filter(|code| self.get(code).is_none())
            .collect();
        if !missing.is_empty() {
            bail!(
                "no test records a message with these codes: {}\nhint: add the message to the test and the messages.txt of its component",
                missing.join(", ")
            );
        }
        Ok(())
    }

    /// Adds the messages in one source file. The example of a code is the first message with a
    /// hint, or the first message if no message has a hint.
    fn add(&mut self, source: &str) {
        let mut lines = source.lines().map(str::trim).peekable();
        while let Some(line) = lines.next() {
            if !is_message(line) {
                continue;
            }
            let mut example = line.to_owned();
            let mut has_hint = false;
            while !has_hint && let Some(next) = lines.next_if(|next| is_continuation(next)) {
                has_hint = next.starts_with(HINT);
                example = format!("{example}\n  {next}");
            }
            for code in mentioned_codes(line) {
                let present = self.mentions.entry(code.to_owned());
                present.or_insert_with(|| example.clone());
            }
            let Some(code) = code_of(line) else {
                continue;
            };
            match self.own.get(code) {
                Some(present) if present.contains(HINT) || !has_hint => {}
                _ => {
                    self.own.insert(code.to_owned(), example);
                }
            }
        }
    }
}

const HINT: &str = "hint: ";

/// Returns `true` for a line that continues the message before it: a cause or a hint.
fn is_continuation(line: &str) -> bool {
    line.starts_with("caused by: ") || line.starts_with(HINT)
}

fn is_message(line: &str) -> bool {
    ["error: ", "warning: "]
        .iter()
        .any(|start| line.starts_with(start))
}

/// Returns the code of a rendered message: `error: … [BUNDLE-AREA-NNN]`.
fn code_of(line: &str) -> Option<&str> {
    let (_, code) = line.strip_suffix(']')?.rsplit_once('[')?;
    code.starts_with("BUNDLE-").then_some(code)
}

/// Returns the codes in parentheses in a message: `… (BUNDLE-AREA-NNN)`.
fn mentioned_codes(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split('(').skip(1);
    parts
        .filter_map(|part| Some(part.split_once(')')?.0))
        .filter(|code| code.starts_with("BUNDLE-"))
}

/// Returns the files in a folder and its subfolders whose names end with `end`, in a stable order.
fn sources(folder: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path, end)?);
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_first_message_of_each_code_and_prefers_one_with_hint() {
        let mut examples = Examples::default();
        examples.add(
            "    error: a: one [BUNDLE-A-001]\n    error: b: two [BUNDLE-A-001]\n      hint: do it\n    error: c: three [BUNDLE-A-001]\n      hint: no\n",
        );
        assert_eq!(
            examples.get("BUNDLE-A-001"),
            Some("error: b: two [BUNDLE-A-001]\n  hint: do it")
        );
    }

    #[test]
    fn keeps_causes_between_message_and_hint() {
        let mut examples = Examples::default();
        examples.add("error: a [BUNDLE-A-001]\n  caused by: b\n  hint: do it\nhint: other\n");
        assert_eq!(
            examples.get("BUNDLE-A-001"),
            Some("error: a [BUNDLE-A-001]\n  caused by: b\n  hint: do it")
        );
    }

    #[test]
    fn message_that_mentions_a_code_is_an_example_if_there_is_no_other() {
        let mut examples = Examples::default();
        let first = "warning: a has no effect (BUNDLE-A-002) (see c)";
        let second = "error: b (BUNDLE-A-001): do it [BUNDLE-A-003]";
        examples.add(&format!("{first}\n{second}\nerror: c [BUNDLE-A-001]\n"));
        for (code, expected) in [
            ("BUNDLE-A-002", first),
            ("BUNDLE-A-001", "error: c [BUNDLE-A-001]"),
            ("BUNDLE-A-003", second),
        ] {
            assert_eq!(examples.get(code), Some(expected));
        }
    }

    #[test]
    fn check_names_codes_without_example() {
        let mut examples = Examples::default();
        examples.add("error: a [BUNDLE-A-001]\n");
        examples.check(["BUNDLE-A-001"]).unwrap();
        let error = examples
            .check(["BUNDLE-A-001", "BUNDLE-A-002"])
            .unwrap_err();
        assert!(
            error.to_string().contains("codes: BUNDLE-A-002\n"),
            "{error}"
        );
    }

    #[test]
    fn ignores_parts_of_messages() {
        let mut examples = Examples::default();
        examples.add("\"the registry has no signature for this digest [BUNDLE-A-001]\",\nerror: no code\nerror: a list [1]\n");
        assert!(examples.own.is_empty() && examples.mentions.is_empty());
    }
}
