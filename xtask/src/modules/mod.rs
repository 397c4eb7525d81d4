//! Checks of sources and pages: no import cycles, one module style, folders of at most twelve
//! files, the language rules, and headers and pages of `docs` that refer only to existing names.

mod cycles;
mod docs;
mod folders;
mod headers;
mod language;
mod links;
mod reader;
mod scenarios;
mod tree;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use cycles::ImportCycle;
use tree::Tree;

/// Checks the modules of all crates below `root`. The error lists all violations.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    let crates = crates(root)?;
    for (name, folder) in &crates {
        for file in ["lib.rs", "main.rs"] {
            let file = folder.join("src").join(file);
            if file.exists() {
                let cycles = cycles::find(&Tree::read(&file)?);
                wrong.extend(cycles.iter().map(|cycle| described(root, name, cycle)));
            }
        }
    }
    let sources = sources(root)?;
    wrong.extend(two_styles(root, &sources));
    wrong.extend(folders::check(root, &sources));
    wrong.extend(headers::check(root, &crates, &sources)?);
    wrong.extend(docs::check(root, &sources)?);
    wrong.extend(scenarios::check(root)?);
    let mut pages = docs::pages(&root.join("docs"))?;
    pages.push(root.join("README.md"));
    wrong.extend(language::check(root, &sources, &pages)?);
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}", wrong.join("\n"))
}

fn described(root: &Path, name: &str, cycle: &ImportCycle) -> String {
    let modules: Vec<&str> = cycle.modules.iter().map(String::as_str).collect();
    let around = if cycle.parent.is_empty() {
        String::new()
    } else {
        format!("::{}", cycle.parent)
    };
    let root = format!("{}/", root.display());
    let imports: Vec<String> = cycle
        .imports
        .iter()
        .map(|import| format!("  {}", import.replace(&root, "")))
        .collect();
    format!(
        "import cycle in {name}{around}: {}\n{}",
        modules.join(", "),
        imports.join("\n")
    )
}

/// Returns files `foo.rs` next to a folder `foo`; this repository uses `foo/mod.rs`.
fn two_styles(root: &Path, sources: &[PathBuf]) -> Vec<String> {
    sources
        .iter()
        .filter(|file| file.with_extension("").is_dir())
        .map(|file| {
            let shown = file.strip_prefix(root).unwrap_or(file);
            format!(
                "{} has a folder of the same name: move it to {}",
                shown.display(),
                shown.with_extension("").join("mod.rs").display()
            )
        })
        .collect()
}

/// Returns name and folder of each crate of the workspace.
fn crates(root: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for folder in [root.to_owned(), root.join("crates")] {
        for entry in fs_err::read_dir(folder)? {
            let entry = entry?;
            if entry.path().join("Cargo.toml").exists() {
                found.push((
                    entry.file_name().to_string_lossy().into_owned(),
                    entry.path(),
                ));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns all Rust files of the crates.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = crates(root)?
        .into_iter()
        .map(|(_, folder)| folder)
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_beside_a_folder_of_its_name_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs_err::create_dir(root.join("foo")).unwrap();
        let sources = [root.join("foo.rs"), root.join("bar.rs")];
        assert_eq!(
            two_styles(root, &sources),
            ["foo.rs has a folder of the same name: move it to foo/mod.rs"]
        );
    }
}
