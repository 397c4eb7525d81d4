//! External programs of the full image: helm and busybox, which are static, and git and ssh with
//! the shared libraries of this machine. For programs from Debian packages, the image also contains
//! the dpkg records of these packages, which vulnerability scanners read, and their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::bill::output;
use super::{ImageEntry, busybox};
use crate::host::packages;
use crate::host::prerequisites::RequiredProgram;
use crate::programs::has_interpreter;
use crate::tools::{self, Tool};

/// `PATH` of the full image.
pub(super) const SEARCH_PATH: &str = "/bin:/usr/bin";
/// Programs that sources of type `git` start: git, its client for https, and ssh. Each program has
/// the same path on this machine and in the image.
const GIT: &str = "/usr/bin/git";
const GIT_HTTPS: &str = "/usr/lib/git-core/git-remote-http";
const SSH: &str = "/usr/bin/ssh";
/// User database of the image. ssh requires an entry for its user.
const USERS: &str = "root:x:0:0:root:/:/bin/false\nbundle:x:65532:65532::/:/bin/false\n";

/// Programs that the pod starts for charts and git repositories.
#[derive(Debug, Clone)]
pub struct ExternalPrograms {
    entries: BTreeMap<String, ImageEntry>,
}

impl ExternalPrograms {
    /// Returns the pinned helm, and busybox, git and ssh of this machine. As root on Debian,
    /// missing packages are installed; elsewhere the error names each missing program.
    pub fn of_this_machine() -> Result<Self> {
        packages::ensure(&[
            RequiredProgram::Git,
            RequiredProgram::Ssh,
            RequiredProgram::Busybox,
        ])?;
        let helm = tools::path(Tool::Helm, None)?;
        if has_interpreter(&fs_err::read(&helm)?)? {
            bail!("{} is linked dynamically", helm.display());
        }
        let shell = busybox::program()?;
        let mut entries = BTreeMap::from([
            ("bin/helm".to_owned(), ImageEntry::Program(helm)),
            ("bin/busybox".to_owned(), ImageEntry::Program(shell.clone())),
            ("bin/sh".to_owned(), ImageEntry::Link("busybox".to_owned())),
            (
                "usr/lib/git-core/git-remote-https".to_owned(),
                ImageEntry::Link("git-remote-http".to_owned()),
            ),
            (
                "etc/passwd".to_owned(),
                ImageEntry::Bytes(USERS.as_bytes().to_vec()),
            ),
        ]);
        let mut origins = BTreeSet::from([package_of(&shell)?]);
        for program in [GIT, GIT_HTTPS, SSH].map(Path::new) {
            let libraries = libraries_of(program)?;
            for file in std::iter::once(program.to_owned()).chain(libraries) {
                origins.insert(package_of(&file)?);
                entries.insert(inside(&file), ImageEntry::Program(file));
            }
        }
        for package in origins {
            add_package(&mut entries, &package)?;
        }
        Ok(Self { entries })
    }

    /// Returns the files and links by path, without a leading `/`.
    pub(super) fn entries(&self) -> &BTreeMap<String, ImageEntry> {
        &self.entries
    }
}

/// Returns the paths of the shared libraries of a program, and the path of its dynamic loader.
pub(super) fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
    let text = output(Command::new("ldd").arg(program))?;
    let libraries: Vec<PathBuf> = text
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    if libraries.is_empty() {
        bail!("ldd lists no libraries of {}", program.display());
    }
    Ok(libraries)
}

/// Returns the path of a file as the path of an image entry: without the leading `/`.
pub(super) fn inside(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches('/').to_owned()
}

/// Returns the name of Debian's package that contains `file`.
fn package_of(file: &Path) -> Result<String> {
    let path = file.to_string_lossy();
    // `/lib` and `/bin` are links to folders in `/usr`, and a package may name either path.
    let other = match path.strip_prefix("/usr") {
        Some(path) => path.to_owned(),
        None => format!("/usr{path}"),
    };
    for path in [path.as_ref(), other.as_str()] {
        let found = Command::new("dpkg-query")
            .args(["--search", path])
            .output()
            .context("cannot start dpkg-query; the full image requires Debian")?;
        let text = String::from_utf8_lossy(&found.stdout);
        if let Some((package, _)) = text.split_once(": ")
            && found.status.success()
        {
            return Ok(package.to_owned());
        }
    }
    bail!("no installed package of Debian contains {}", file.display())
}

/// Adds the dpkg record of a package in `var/lib/dpkg/status.d`, as in distroless images, and the
/// licences of the package.
fn add_package(entries: &mut BTreeMap<String, ImageEntry>, package: &str) -> Result<()> {
    let name = package.split(':').next().unwrap_or(package);
    let record = output(Command::new("dpkg-query").args(["--status", package]))?;
    entries.insert(
        format!("var/lib/dpkg/status.d/{name}"),
        ImageEntry::Bytes(record.into_bytes()),
    );
    let licences = PathBuf::from(format!("/usr/share/doc/{name}/copyright"));
    if !licences.is_file() {
        bail!(
            "{} does not exist; the image must contain it",
            licences.display()
        );
    }
    entries.insert(inside(&licences), ImageEntry::File(licences));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_this_machine_has_a_loader_and_a_c_library() {
        let libraries = libraries_of(&std::env::current_exe().unwrap()).unwrap();
        let has = |name: &str| {
            libraries
                .iter()
                .any(|path| path.to_string_lossy().contains(name))
        };
        assert!(has("/ld-linux") && has("/libc.so"), "{libraries:?}");
    }
}
