//! Files that all archives contain in addition to the program: licence, completion scripts, man
//! pages. The plugin of this machine writes these files, because plugins of other platforms do not
//! run on this machine.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::archive::{ArchiveFile, ArchiveFiles};

/// Name of the licence file that krew expects.
pub(super) const LICENSE: &str = "LICENSE";
/// Program that kubectl runs for completion: a shell script.
const COMPLETION_PROGRAM: &str = "kubectl_complete-bundle";
/// Arguments of `kubectl bundle completion`, and the path of each script in the archives. Each
/// shell requires this file name.
const COMPLETIONS: [(&str, &str); 4] = [
    ("bash", "completions/kubectl-bundle.bash"),
    ("fish", "completions/kubectl-bundle.fish"),
    ("powershell", "completions/kubectl-bundle.ps1"),
    ("zsh", "completions/_kubectl-bundle"),
];
const MAN: &str = "man/man1";

/// Files of the archives whose content does not depend on the platform.
#[derive(Debug, Clone)]
pub struct ReleaseContent {
    files: ArchiveFiles,
    /// Shell script `kubectl_complete-bundle`, which kubectl runs for completion.
    completion_program: ArchiveFile,
}

impl ReleaseContent {
    /// Returns the files of the workspace at `root`, with the completion scripts and man pages of
    /// `plugin`.
    pub fn of(root: &Path, plugin: &Path) -> Result<Self> {
        let mut files = ArchiveFiles::new();
        let license = fs_err::read(root.join(LICENSE))?;
        files.insert(LICENSE.to_owned(), ArchiveFile::text(license));
        for (shell, path) in COMPLETIONS {
            let script = run(plugin, &["completion", shell])?;
            files.insert(path.to_owned(), ArchiveFile::text(script));
        }
        let pages = tempfile::tempdir()?;
        let folder = pages.path().to_str().context("the folder is no UTF-8")?;
        run(plugin, &["__man", "--to", folder])?;
        for page in fs_err::read_dir(pages.path())? {
            let page = page?;
            let name = page.file_name();
            let name = name.to_str().context("the name of a page is no UTF-8")?;
            let text = fs_err::read(page.path())?;
            files.insert(format!("{MAN}/{name}"), ArchiveFile::text(text));
        }
        let completion_program = ArchiveFile::program(run(plugin, &["completion", "kubectl"])?);
        Ok(Self {
            files,
            completion_program,
        })
    }

    /// Returns the files for a platform. Windows runs no shell scripts, so the files for Windows
    /// contain no program for completion.
    pub(super) fn files(&self, is_windows: bool) -> ArchiveFiles {
        let mut files = self.files.clone();
        if !is_windows {
            files.insert(
                COMPLETION_PROGRAM.to_owned(),
                self.completion_program.clone(),
            );
        }
        files
    }
}

/// Runs the plugin in an empty environment, and returns its output.
fn run(plugin: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(plugin)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", plugin.display()))?;
    if !output.status.success() {
        bail!(
            "`kubectl bundle {}` ended with {}: {}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(output.stdout)
}
