//! Examples of diagnostics, read from the snapshots that tests compare with real messages. A
//! changed message therefore changes a snapshot first, and the generated page with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Folders with tests of complete messages, and the suffixes of the files with messages.
const FOLDERS: [(&str, &str); 2] = [
    ("kubectl-bundle/tests/cli", ".rs"),
    ("crates/bundle-core/src", "messages.txt"),
];

/// Rendered messages by code; a hint is on a second line.
#[derive(Debug, Default)]
pub(super) struct Examples(BTreeMap<String, String>);

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
        self.0.get(code).map(String::as_str)
    }

    /// Adds the messages in one source. The first message of a code counts, but a message with a
    /// hint replaces one without.
    fn add(&mut self, source: &str) {
        let mut lines = source.lines().map(str::trim).peekable();
        while let Some(line) = lines.next() {
            let Some(code) = code_of(line) else {
                continue;
            };
            let hint = lines.peek().filter(|next| next.starts_with("hint: "));
            let example = match hint {
                Some(hint) => format!("{line}\n  {hint}"),
                None => line.to_owned(),
            };
            match self.0.get(code) {
                Some(present) if present.contains('\n') || hint.is_none() => {}
                _ => {
                    self.0.insert(code.to_owned(), example);
                }
            }
        }
    }
}

/// Returns the code of a rendered message: `error: … [BUNDLE-AREA-NNN]`.
fn code_of(line: &str) -> Option<&str> {
    if !["error: ", "warning: "]
        .iter()
        .any(|start| line.starts_with(start))
    {
        return None;
    }
    let (_, code) = line.strip_suffix(']')?.rsplit_once('[')?;
    code.starts_with("BUNDLE-").then_some(code)
}

/// Returns the files of a folder and those below it whose names end with `end`, in a stable order.
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
    fn ignores_parts_of_messages() {
        let mut examples = Examples::default();
        examples.add("\"the registry has no signature for it [BUNDLE-A-001]\",\nerror: no code\nerror: a list [1]\n");
        assert!(examples.0.is_empty());
    }
}
