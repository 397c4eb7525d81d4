//! Check that no folder contains too many source files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum number of source files of a folder, without the files of its subfolders.
const MAX_FILES: usize = 12;

/// Folders that may contain more files, each with the maximum number and the reason.
const EXCEPTIONS: [FolderException; 0] = [];

/// A folder that may contain more than [`MAX_FILES`] files.
#[derive(Debug)]
struct FolderException {
    folder: &'static str,
    files: usize,
    reason: &'static str,
}

/// Returns the folders with too many files, and exceptions that are not needed.
pub(super) fn check(root: &Path, sources: &[PathBuf]) -> Vec<String> {
    large_folders(root, sources, &EXCEPTIONS)
}

fn large_folders(root: &Path, sources: &[PathBuf], exceptions: &[FolderException]) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for file in sources {
        let folder = file.parent().unwrap_or(root);
        let folder = folder.strip_prefix(root).unwrap_or(folder);
        *counts.entry(folder).or_insert(0_usize) += 1;
    }
    let mut wrong = Vec::new();
    for (folder, count) in &counts {
        let exception = exceptions
            .iter()
            .find(|one| folder == &Path::new(one.folder));
        let most = exception.map_or(MAX_FILES, |one| one.files);
        if *count > most {
            wrong.push(format!(
                "{} has {count} source files, more than {most}: group them in folders by subject",
                folder.display()
            ));
        }
    }
    for one in exceptions {
        let count = counts
            .get(Path::new(one.folder))
            .copied()
            .unwrap_or_default();
        if count <= MAX_FILES {
            wrong.push(format!(
                "{} has {count} source files and needs no exception ({})",
                one.folder, one.reason
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(files: usize, exceptions: &[FolderException]) -> Vec<String> {
        let root = Path::new("/repository");
        let mut sources: Vec<_> = (0..files)
            .map(|number| root.join(format!("webhook/src/file{number}.rs")))
            .collect();
        // A file in a subfolder does not change the result.
        sources.push(root.join("webhook/src/server/mod.rs"));
        large_folders(root, &sources, exceptions)
    }

    fn exception(files: usize) -> FolderException {
        FolderException {
            folder: "webhook/src",
            files,
            reason: "one file for each kind",
        }
    }

    #[test]
    fn folder_with_more_than_twelve_files_is_reported() {
        assert!(checked(12, &[]).is_empty());
        assert_eq!(
            checked(13, &[]),
            ["webhook/src has 13 source files, more than 12: group them in folders by subject"]
        );
    }

    #[test]
    fn exception_has_a_limit_of_its_own() {
        assert!(checked(14, &[exception(14)]).is_empty());
        assert_eq!(
            checked(15, &[exception(14)]),
            ["webhook/src has 15 source files, more than 14: group them in folders by subject"]
        );
    }

    #[test]
    fn exception_that_is_not_needed_is_reported() {
        assert_eq!(
            checked(12, &[exception(14)]),
            ["webhook/src has 12 source files and needs no exception (one file for each kind)"]
        );
    }
}
