//! Check of module headers (`//!`): each module, crate, file and identifier in a header exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Top-level folders. The check verifies paths that begin with these folders.
pub(super) const FOLDERS: [&str; 7] = [
    "crates/",
    "docs/",
    "e2e/",
    "fuzz/",
    "kubectl-bundle/",
    "webhook/",
    "xtask/",
];

/// Returns the names that module headers contain, but that do not exist in the repository.
pub(super) fn check(
    root: &Path,
    crates: &[(String, PathBuf)],
    sources: &[PathBuf],
) -> Result<Vec<String>> {
    let mut known = ValidNames {
        external: locked(&fs_err::read_to_string(root.join("Cargo.lock"))?),
        ..ValidNames::default()
    };
    let mut headers = Vec::new();
    for file in sources {
        let text = fs_err::read_to_string(file)?;
        let Some((name, folder)) = crates.iter().find(|(_, folder)| file.starts_with(folder))
        else {
            continue;
        };
        known.add(name, file.strip_prefix(folder)?, &text);
        headers.push((file, header(&text)));
    }
    let mut wrong = Vec::new();
    for (file, header) in headers {
        let shown = file.strip_prefix(root).unwrap_or(file).display();
        for name in known.missing(&header, root) {
            wrong.push(format!(
                "{shown}: its header names `{name}`, which does not exist"
            ));
        }
    }
    Ok(wrong)
}

/// Names that headers may contain.
#[derive(Debug, Default)]
struct ValidNames {
    /// Words in the code of each module, by the path of the module. Paths begin with the crate.
    modules: BTreeMap<String, BTreeSet<String>>,
    /// All words of the code except comments.
    words: BTreeSet<String>,
    /// Crates in the lock file.
    external: BTreeSet<String>,
}

impl ValidNames {
    /// Adds a file at `path` in the crate `name`.
    fn add(&mut self, name: &str, path: &Path, text: &str) {
        let mut module = vec![name.replace('-', "_")];
        for part in &path.with_extension("") {
            let part = part.to_string_lossy();
            if !["src", "tests", "mod", "lib", "main"].contains(&part.as_ref()) {
                module.push(part.into_owned());
            }
        }
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let words: BTreeSet<String> = code.flat_map(words).map(str::to_owned).collect();
        self.words.extend(words.iter().cloned());
        self.modules
            .entry(module.join("::"))
            .or_default()
            .extend(words);
    }

    /// Returns the names that a header contains, but that do not exist in the repository.
    fn missing(&self, header: &str, root: &Path) -> Vec<String> {
        let mut missing = Vec::new();
        for path in paths(header) {
            if !self.has_path(&path) {
                missing.push(path);
            }
        }
        for quoted in header.split('`').skip(1).step_by(2) {
            let is_path = FOLDERS.iter().any(|folder| quoted.starts_with(folder));
            let absent = is_path && !root.join(quoted).exists()
                || is_identifier(quoted) && !self.words.contains(quoted);
            if absent {
                missing.push(quoted.to_owned());
            }
        }
        missing
    }

    /// Returns `true` if a path refers to a module or an item of a module. The beginning of a path
    /// may be missing, as in `plan::drift`.
    fn has_path(&self, path: &str) -> bool {
        let path = path.replace('-', "_");
        let mut parts: Vec<&str> = path.split("::").collect();
        parts.retain(|part| !["crate", "self", "super"].contains(part));
        if parts.len() < 2 || self.external.contains(parts[0]) {
            return true;
        }
        let (item, around) = (parts[parts.len() - 1], parts[..parts.len() - 1].join("::"));
        let whole = parts.join("::");
        self.modules.iter().any(|(module, words)| {
            ends_with(module, &whole) || ends_with(module, &around) && words.contains(item)
        })
    }
}

fn ends_with(module: &str, path: &str) -> bool {
    module
        .strip_suffix(path)
        .is_some_and(|before| before.is_empty() || before.ends_with("::"))
}

/// Returns the text of `//!` at the beginning of a file.
fn header(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the words of a line of code: identifiers, also in literals.
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
}

/// Returns the paths with `::` in a header, such as `plan::drift`.
fn paths(header: &str) -> Vec<String> {
    let is_outside = |letter: char| !letter.is_alphanumeric() && !['_', '-', ':'].contains(&letter);
    let found = header.split(is_outside).map(|word| word.trim_matches(':'));
    let found = found.filter(|word| word.contains("::"));
    found.map(str::to_owned).collect()
}

/// Returns `true` if the text can only be a name in code: `two_words` or `TwoWords`.
fn is_identifier(text: &str) -> bool {
    let is_word = text
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let first = text.chars().next().is_some_and(char::is_alphabetic);
    let inner = text.chars().skip(1);
    let compound = text.contains('_')
        || text.chars().any(char::is_lowercase) && inner.clone().any(char::is_uppercase);
    is_word && first && compound
}

/// Returns the names of the crates in a lock file, with underscores.
fn locked(text: &str) -> BTreeSet<String> {
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("name = \""));
    let names = names.map(|name| name.trim_end_matches('"').replace('-', "_"));
    names.filter(|name| !name.starts_with("bundle_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> ValidNames {
        let mut known = ValidNames {
            external: locked("name = \"kube-client\"\n"),
            ..ValidNames::default()
        };
        known.add(
            "bundle-core",
            Path::new("src/plan/drift.rs"),
            "//! gone_word\npub fn find_drift() { field(\"managedFields\") }",
        );
        known.add("webhook", Path::new("src/plan/mod.rs"), "struct Plan;");
        known
    }

    fn missing(header: &str) -> Vec<String> {
        known().missing(header, Path::new("/"))
    }

    #[test]
    fn names_of_modules_items_and_other_crates_exist() {
        assert!(
            missing("See `bundle_core::plan::drift`, plan::drift::find_drift (bundle-core::plan::drift), `webhook::plan::Plan`, `kube_client::client`.")
                .is_empty()
        );
    }

    #[test]
    fn names_of_removed_modules_and_items_are_reported() {
        assert_eq!(
            missing("Not here: drift::books, plan::gone (bundle_core::plan::drift::lose_drift)."),
            [
                "drift::books",
                "plan::gone",
                "bundle_core::plan::drift::lose_drift"
            ]
        );
    }

    #[test]
    fn identifiers_in_backticks_have_to_be_in_the_code() {
        assert_eq!(
            missing("`find_drift`, `managedFields`, `gone_word`, `GoneType`, `word`."),
            ["gone_word", "GoneType"]
        );
    }

    #[test]
    fn paths_of_files_have_to_exist() {
        assert_eq!(
            missing("`docs/gone.md` and `other/gone.md`"),
            ["docs/gone.md"]
        );
    }
}
