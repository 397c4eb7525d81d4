//! Reads the folder of a bundle: `bundle.yaml`, the lock file of its images, the files below
//! `manifests/`, and the files that `bundle.yaml` names. Only regular files are read.

use std::io::Read;
use std::path::Path;

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::format::{Files, helm};
use bundle_core::images;
use bundle_core::package::{self, Format, Package};

use crate::limits::{Limits, format_size};
use crate::unpack::check_path;

/// Folder of the manifests.
const MANIFESTS: &str = "manifests";
/// Folder with the annotations of a registry+v1 bundle.
const METADATA: &str = "metadata";

/// Reads the folder of a bundle.
///
/// Files with a dot at the beginning of the name are skipped, because editors, version control and
/// operating systems create such files. Missing files are skipped too. `bundle_core::format`
/// reports missing files.
pub fn read(folder: &Path, limits: &Limits) -> Result<Files, Findings> {
    let mut reading = FolderReader::new(folder, limits);
    match fs_err::metadata(folder) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => {
            return Err(unreadable(folder, "it is not a folder").into());
        }
        Err(error) => return Err(unreadable(folder, error.kind()).into()),
    }
    reading.take(package::FILE);
    reading.take(images::LOCK_FILE);
    let package = reading
        .files
        .get(package::FILE)
        .and_then(|text| package::parse(text).ok());
    let format = package.as_ref().map(|package| package.format);
    let is_chart = folder.join(helm::CHART).is_file();
    if is_chart && format.is_none_or(|format| format == Format::HelmV3) {
        reading.chart();
    } else {
        reading.take(MANIFESTS);
        if format.is_none_or(|format| format == Format::RegistryV1) {
            reading.take(METADATA);
        }
    }
    // Reads the files that `bundle.yaml` names, except resources. Each resource becomes its own
    // layer, and can have any size.
    for path in package.iter().flat_map(Package::named_paths) {
        reading.take(path.trim_end_matches('/'));
    }
    reading.finish()
}

/// Reads the default custom resources of a package. [`read`] does not return them, because each of
/// them becomes its own layer.
pub fn default_resources(
    folder: &Path,
    package: &Package,
    limits: &Limits,
) -> Result<Files, Findings> {
    let mut reading = FolderReader::new(folder, limits);
    for resource in package.default_resources() {
        reading.take(resource.path.trim_end_matches('/'));
    }
    reading.finish()
}

fn unreadable(path: &Path, why: impl std::fmt::Display) -> Finding {
    Finding::error(
        codes::usage::FILE_UNREADABLE,
        format!("cannot read `{}`: {why}", path.display()),
    )
    .hint("pass a folder that contains bundle.yaml and manifests/")
}

struct FolderReader<'a> {
    folder: &'a Path,
    limits: &'a Limits,
    files: Files,
    bytes: u64,
    findings: Findings,
    ignore: helm::Ignore,
}

impl<'a> FolderReader<'a> {
    fn new(folder: &'a Path, limits: &'a Limits) -> Self {
        Self {
            folder,
            limits,
            files: Files::new(),
            bytes: 0,
            findings: Findings::default(),
            ignore: helm::Ignore::default(),
        }
    }

    /// Returns the files that were read, or all errors.
    fn finish(self) -> Result<Files, Findings> {
        if self.findings.has_errors() {
            Err(self.findings)
        } else {
            Ok(self.files)
        }
    }

    /// Reads all files of a chart.
    fn chart(&mut self) {
        self.read_ignore_patterns();
        let root = self.folder;
        self.walk("", root);
        self.ignore = helm::Ignore::default();
    }

    fn read_ignore_patterns(&mut self) {
        let place = self.folder.join(helm::IGNORE);
        match fs_err::symlink_metadata(&place) {
            Ok(found) if found.is_file() => {}
            Ok(_) => {
                self.refuse(helm::IGNORE, "is not a file");
                return;
            }
            Err(_) => return,
        }
        let mut text = Vec::new();
        let read = fs_err::File::open(&place)
            .and_then(|file| file.take(helm::IGNORE_BYTES + 1).read_to_end(&mut text));
        if let Err(error) = read {
            let finding = unreadable(&place, error.kind());
            self.findings.push(finding.in_file(helm::IGNORE));
            return;
        }
        match helm::Ignore::parse(&text) {
            Ok(ignore) => self.ignore = ignore,
            Err(findings) => self.findings.extend(findings),
        }
    }

    /// Reads the file or folder at `path` within the bundle, if `path` exists.
    fn take(&mut self, path: &str) {
        if let Err(why) = check_path(path) {
            self.refuse(path, why);
            return;
        }
        if self.files.contains_key(path) {
            return;
        }
        let mut above = self.folder.to_owned();
        for component in path.split('/') {
            if fs_err::symlink_metadata(&above).is_ok_and(|found| found.is_symlink())
                && above != self.folder
            {
                self.refuse(
                    path,
                    "is behind a symbolic link; a bundle must contain the file itself",
                );
                return;
            }
            above.push(component);
        }
        let place = self.folder.join(path);
        let found = match fs_err::symlink_metadata(&place) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                self.findings
                    .push(unreadable(&place, error.kind()).in_file(path));
                return;
            }
        };
        let kind = found.file_type();
        if self.ignore.covers(path, kind.is_dir()) || place.join("oci-layout").is_file() {
            // Skips files that match the author's ignore patterns, and OCI layouts from `build`.
            return;
        }
        if kind.is_symlink() {
            self.refuse(
                path,
                "is a symbolic link; a bundle must contain the file itself",
            );
        } else if kind.is_dir() {
            self.walk(path, &place);
        } else if kind.is_file() {
            self.file(path, &place);
        } else {
            self.refuse(path, "is neither a file nor a folder");
        }
    }

    fn walk(&mut self, path: &str, place: &Path) {
        let entries = fs_err::read_dir(place)
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
        let mut names: Vec<std::ffi::OsString> = match entries {
            Ok(names) => names,
            Err(error) => {
                self.findings
                    .push(unreadable(place, error.kind()).in_file(path));
                return;
            }
        };
        // The order of findings must not depend on the file system.
        names.sort();
        for name in names {
            match name.to_str() {
                Some(name) if name.starts_with('.') => {}
                Some(name) if path.is_empty() => self.take(name),
                Some(name) => self.take(&format!("{path}/{name}")),
                None => self.refuse(
                    &format!("{path}/{}", name.to_string_lossy()),
                    "has a name that is not UTF-8",
                ),
            }
        }
    }

    fn file(&mut self, path: &str, place: &Path) {
        let mut content = Vec::new();
        let read = fs_err::File::open(place).and_then(|file| {
            // Reads one byte more than the limit, to detect a file that is too large.
            file.take(self.limits.file + 1).read_to_end(&mut content)
        });
        if let Err(error) = read {
            self.findings
                .push(unreadable(place, error.kind()).in_file(path));
            return;
        }
        self.bytes += content.len() as u64;
        if content.len() as u64 > self.limits.file {
            let size = fs_err::metadata(place).map_or(self.limits.file + 1, |found| found.len());
            self.findings.push(
                Finding::error(
                    codes::registry::TOO_LARGE,
                    format!(
                        "`{path}` has {}, and the limit for a file of a bundle is {}",
                        format_size(size),
                        format_size(self.limits.file)
                    ),
                )
                .in_file(path)
                .hint("Kubernetes cannot store objects over 1.5 MiB: split the file, or move the data to a separate artifact"),
            );
        } else if self.bytes > self.limits.total {
            self.findings.push(
                Finding::error(
                    codes::registry::TOO_LARGE,
                    format!(
                        "the folder is larger than the limit of {}",
                        format_size(self.limits.total)
                    ),
                )
                .in_file(path)
                .hint("move images and data to separate artifacts"),
            );
        } else {
            self.files.insert(path.to_owned(), content);
        }
    }

    fn refuse(&mut self, path: &str, why: &str) {
        self.findings.push(
            Finding::error(
                codes::registry::UNSAFE_ENTRY,
                format!("`{}` {why}", path.escape_debug()),
            )
            .in_file(path)
            .hint("replace it with a regular file, or remove it from the bundle"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let place = folder.path().join(path);
            fs_err::create_dir_all(place.parent().unwrap()).unwrap();
            fs_err::write(place, content).unwrap();
        }
        folder
    }

    #[cfg(unix)]
    #[test]
    fn rejects_files_below_a_link() {
        let elsewhere = tempfile::tempdir().unwrap();
        fs_err::write(elsewhere.path().join("secret.json"), "{}").unwrap();
        let root = tempfile::tempdir().unwrap();
        let package = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\nconfig: {schema: x/secret.json}\n";
        fs_err::write(root.path().join("bundle.yaml"), package).unwrap();
        fs_err::os::unix::fs::symlink(elsewhere.path(), root.path().join("x")).unwrap();
        let findings = read(root.path(), &Limits::default()).unwrap_err();
        assert!(
            findings
                .first()
                .unwrap()
                .message
                .contains("behind a symbolic link"),
            "{findings:?}"
        );
    }

    #[test]
    fn reads_only_the_package_and_its_manifests() {
        let folder = folder(&[
            ("bundle.yaml", b"kind: Package\n"),
            ("README.md", b"no"),
            ("manifests/a.yaml", b"a: 1\n"),
            ("manifests/.a.yaml.swp", b"no"),
        ]);
        let files = read(folder.path(), &Limits::default()).unwrap();
        let names: Vec<_> = files.keys().map(String::as_str).collect();
        assert_eq!(names, ["bundle.yaml", "manifests/a.yaml"]);
    }

    #[test]
    fn reads_a_whole_chart_except_ignored_files() {
        let folder = folder(&[
            ("Chart.yaml", b"name: web"),
            ("templates/a.yaml", b"a: 1"),
            ("notes.bak", b"no"),
            (".helmignore", b"*.bak\n"),
            ("web.oci/oci-layout", b"no"),
        ]);
        let files = read(folder.path(), &Limits::default()).unwrap();
        let names: Vec<_> = files.keys().map(String::as_str).collect();
        assert_eq!(names, ["Chart.yaml", "templates/a.yaml"]);
    }

    #[cfg(unix)]
    #[test]
    fn ignore_patterns_are_read_only_from_a_small_file() {
        let folder = folder(&[("Chart.yaml", b"name: web"), ("secret", b"!private\n")]);
        let place = folder.path().join(".helmignore");
        for target in ["/dev/zero", "secret"] {
            std::os::unix::fs::symlink(target, &place).unwrap();
            let findings = read(folder.path(), &Limits::default()).unwrap_err();
            let text = findings.to_string();
            assert!(
                text.contains("is not a file") && !text.contains("private"),
                "{text}"
            );
            fs_err::remove_file(&place).unwrap();
        }
        fs_err::write(&place, vec![b'a'; 1 << 20]).unwrap();
        let findings = read(folder.path(), &Limits::default()).unwrap_err();
        assert!(findings.to_string().contains("is larger than 64 KiB"));
    }

    #[cfg(unix)]
    #[test]
    fn rejects_links_and_names_each_of_them() {
        let folder = folder(&[("manifests/a.yaml", b"a: 1\n")]);
        for name in ["b.yaml", "c.yaml"] {
            std::os::unix::fs::symlink("a.yaml", folder.path().join("manifests").join(name))
                .unwrap();
        }
        let findings = read(folder.path(), &Limits::default()).unwrap_err();
        assert_eq!(findings.len(), 2);
        assert_eq!(
            findings.first().unwrap().to_string(),
            "manifests/b.yaml: `manifests/b.yaml` is a symbolic link; a bundle must contain the file itself"
        );
    }

    #[test]
    fn rejects_files_over_the_size_limit() {
        let folder = folder(&[("manifests/a.yaml", &[b'x'; 2000])]);
        let limits = Limits {
            file: 1024,
            ..Limits::default()
        };
        let findings = read(folder.path(), &limits).unwrap_err();
        assert!(
            findings
                .to_string()
                .contains("has 1.9 KiB, and the limit for a file of a bundle is 1 KiB"),
            "{findings}"
        );
        let limits = Limits {
            total: 1024,
            ..Limits::default()
        };
        assert!(read(folder.path(), &limits).is_err());
    }

    #[test]
    fn error_names_a_missing_folder() {
        let findings = read(Path::new("/nonexistent/bundle"), &Limits::default()).unwrap_err();
        assert!(findings.to_string().contains("`/nonexistent/bundle`"));
    }
}
