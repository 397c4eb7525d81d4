//! Checks that pages of `docs` name only existing files and folders, and in tables only existing
//! tests and modules.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::headers::{FOLDERS, words};

/// Minimum number of underscores in names of tests. Names with fewer underscores often have another
/// meaning.
const UNDERSCORES: usize = 3;
/// Page with tables that name modules as `folder/module`.
const MODULES: &str = "threat-model.md";
/// Sources of this check. The tests in these sources use names that do not exist.
const OWN: &str = "xtask/src/modules";
/// Tests of another project: the conformance suite of Sigstore clients.
const FOREIGN: [&str; 4] = [
    "test_sign_does_not_produce_root",
    "test_sign_verify_rekor2",
    "test_sign_verify_dsse",
    "test_verify_cpython_release_bundles",
];

/// Returns the names that pages contain, but that do not exist in the repository.
pub(super) fn check(root: &Path, sources: &[PathBuf]) -> Result<Vec<String>> {
    let mut known = Known::default();
    let own = root.join(OWN);
    for file in sources.iter().filter(|file| !file.starts_with(&own)) {
        let text = fs_err::read_to_string(file)?;
        known.add(file.strip_prefix(root).unwrap_or(file), &text);
    }
    let mut wrong = Vec::new();
    let pages = pages(&root.join("docs"))?;
    for page in &pages {
        let text = fs_err::read_to_string(page)?;
        let has_modules = page.ends_with(MODULES);
        let shown = page.strip_prefix(root).unwrap_or(page).display();
        for (number, line) in (1..).zip(text.lines()) {
            for name in known.missing(line, has_modules, root) {
                wrong.push(format!(
                    "{shown}:{number}: names `{name}`, which does not exist"
                ));
            }
        }
    }
    wrong.extend(super::links::check(root, pages)?);
    Ok(wrong)
}

/// Returns all pages of a folder and its subfolders.
pub(super) fn pages(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(pages(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Names that pages can contain.
#[derive(Debug, Default)]
struct Known {
    /// Paths of modules, such as `webhook/src/cluster`.
    modules: BTreeSet<String>,
    /// All words of the code except comments.
    words: BTreeSet<String>,
}

impl Known {
    /// Adds the file at `path`.
    fn add(&mut self, path: &Path, text: &str) {
        let module = path.with_extension("").display().to_string();
        let module = module.strip_suffix("/mod").unwrap_or(&module);
        self.modules.insert(module.to_owned());
        let code = text.lines();
        let code = code.filter(|line| !line.trim_start().starts_with("//"));
        self.words.extend(code.flat_map(words).map(str::to_owned));
    }

    /// Returns the names that a line of a page contains, but that do not exist in the repository.
    fn missing(&self, line: &str, has_modules: bool, root: &Path) -> Vec<String> {
        let is_row = line.starts_with('|');
        let mut missing = Vec::new();
        for quoted in line.split('`').skip(1).step_by(2) {
            let absent = if FOLDERS.iter().any(|folder| quoted.starts_with(folder)) {
                !is_pattern(quoted) && !root.join(quoted).exists()
            } else if let Some(name) = test(quoted).filter(|_| is_row) {
                !self.has(name)
            } else {
                is_row && has_modules && is_module(quoted) && !self.has_module(quoted)
            };
            if absent {
                missing.push(quoted.to_owned());
            }
        }
        missing
    }

    /// Returns `true` if the code has this word. An ellipsis can replace the end of the word.
    /// Served names of metrics end with `_total` or `_seconds`, which the code does not contain.
    fn has(&self, name: &str) -> bool {
        if let Some(start) = name.strip_suffix('…') {
            let from = self.words.range(start.to_owned()..);
            return from.take(1).any(|word| word.starts_with(start));
        }
        let metric = name.strip_suffix("_total");
        let metric = metric.or_else(|| name.strip_suffix("_seconds"));
        self.words.contains(name)
            || metric.is_some_and(|metric| self.words.contains(metric))
            || FOREIGN.contains(&name)
    }

    /// Returns `true` if a module of this path exists. The beginning of the path may be omitted.
    fn has_module(&self, path: &str) -> bool {
        self.modules.iter().any(|module| {
            let before = module.strip_suffix(path);
            before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
        })
    }
}

/// Returns the last part of `module::name_of_a_test`, also if the name ends with an ellipsis;
/// `None` for other texts.
pub(super) fn test(quoted: &str) -> Option<&str> {
    let name = quoted.rsplit("::").next()?;
    let word = name.strip_suffix('…').unwrap_or(name);
    let is_word = is_lowercase(word) && word.matches('_').count() >= UNDERSCORES;
    is_word.then_some(name)
}

/// Returns `true` for `folder/module` and longer paths.
fn is_module(quoted: &str) -> bool {
    quoted.contains('/') && quoted.split('/').all(is_lowercase)
}

fn is_lowercase(word: &str) -> bool {
    let fits =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    word.starts_with(|first: char| first.is_ascii_lowercase()) && word.chars().all(fits)
}

/// Returns `true` for a path that matches several files, such as `crds/*.yaml`.
fn is_pattern(path: &str) -> bool {
    path.contains(['*', '{', '<', '…', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(line: &str) -> Vec<String> {
        let mut known = Known::default();
        let text = "// gone_with_the_comment\nfn rejects_a_forged_stamp() { counter(\"bundle_reviews_that_count\") }";
        known.add(Path::new("webhook/src/stamps/bounds.rs"), text);
        known.add(Path::new("webhook/src/stamps/mod.rs"), "mod bounds;");
        known.missing(line, true, Path::new("/"))
    }

    #[test]
    fn names_of_tests_and_modules_in_tables_exist() {
        let row = "| `rejects_a_forged_stamp`, `bounds::rejects_a_forged_…` | `stamps/bounds`, `bundle_reviews_that_count_total`, `drift.ignore`, `a_b` |";
        assert!(missing(row).is_empty());
    }

    #[test]
    fn names_of_removed_tests_modules_and_files_in_tables_are_reported() {
        let row = "| `rejects_a_copied_stamp` `bounds::rejects_a_copied_…` `gone_with_the_comment` | `stamps/gone` `gone/bounds` `docs/gone.md` |";
        assert_eq!(
            missing(row),
            [
                "rejects_a_copied_stamp",
                "bounds::rejects_a_copied_…",
                "gone_with_the_comment",
                "stamps/gone",
                "gone/bounds",
                "docs/gone.md"
            ]
        );
    }

    #[test]
    fn text_outside_of_tables_names_files_that_exist() {
        assert_eq!(
            missing("See `docs/gone.md`, `docs/*.md`, `some_name_of_others` and `stamps/gone`."),
            ["docs/gone.md"]
        );
    }
}
