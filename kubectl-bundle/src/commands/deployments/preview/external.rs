//! The program of `$KUBECTL_EXTERNAL_DIFF`. The program gets two arguments, as from `kubectl diff`:
//! a folder with the files before the change, and a folder with the files after the change.

use std::path::Path;
use std::process::Command;

use bundle_core::diagnostic::{Finding, codes};

use super::ObjectChange;
use super::text::{document, file_name};
use crate::failure::{Failure, Outcome};

/// External program that prints differences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExternalDiff {
    program: String,
    arguments: Vec<String>,
}

impl ExternalDiff {
    /// Parses the value of `$KUBECTL_EXTERNAL_DIFF`: a program and its arguments. As in kubectl,
    /// arguments with other characters than letters, digits, `-` and `=` are ignored.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let program = words.next()?;
        let is_plain = |word: &String| {
            let mut bytes = word.bytes();
            bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'='))
        };
        Some(Self {
            program,
            arguments: words.filter(is_plain).collect(),
        })
    }

    /// Returns the program that the value of the variable names. Returns `None` if the variable is
    /// unset or empty.
    pub(crate) fn of(variable: Option<&str>) -> Option<Self> {
        variable.and_then(Self::parse)
    }

    /// Runs the program on the files of these changes. The program uses the terminal, and has no
    /// timeout.
    pub(super) fn run(&self, changes: &[ObjectChange]) -> Outcome {
        let unwritable = |error: std::io::Error| {
            let finding = Finding::error(
                codes::usage::FILE_UNWRITABLE,
                "cannot write the objects for the program of KUBECTL_EXTERNAL_DIFF",
            )
            .hint("check the folder for temporary files (TMPDIR)");
            Failure::caused(finding, &error)
        };
        let folder = tempfile::tempdir().map_err(unwritable)?;
        let (live, new) = (folder.path().join("LIVE"), folder.path().join("NEW"));
        for path in [&live, &new] {
            fs_err::create_dir(path).map_err(unwritable)?;
        }
        for change in changes {
            let name = file_name(change);
            let write = |folder: &Path, object: &Option<serde_json::Value>| match object {
                Some(object) => fs_err::write(folder.join(&name), document(Some(object))),
                None => Ok(()),
            };
            write(&live, &change.before).map_err(unwritable)?;
            write(&new, &change.after).map_err(unwritable)?;
        }
        let mut command = Command::new(&self.program);
        let command = command.args(&self.arguments).arg(&live).arg(&new);
        let failed = || {
            Finding::error(
                codes::usage::PROGRAM_FAILED,
                format!("`{}` of KUBECTL_EXTERNAL_DIFF failed", self.program),
            )
            .hint("unset KUBECTL_EXTERNAL_DIFF to use the built-in diff")
        };
        let status = command
            .status()
            .map_err(|error| Failure::caused(failed(), &error))?;
        match status.code() {
            Some(0 | 1) => Ok(()),
            _ => Err(failed().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_with_special_characters_are_ignored_as_in_kubectl() {
        let parsed = ExternalDiff::parse("diff -u --color=always $(rm) ;ls").unwrap();
        assert_eq!(parsed.program, "diff");
        assert_eq!(parsed.arguments, ["-u", "--color=always"]);
        assert_eq!(ExternalDiff::parse("  "), None);
    }
}
