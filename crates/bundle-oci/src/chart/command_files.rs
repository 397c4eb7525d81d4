//! The files of a chart and its values on disk, for the external command that renders it.

use std::io;
use std::path::{Component, Path, PathBuf};

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::format::RenderCommand;
use bundle_core::format::helm::{self, ChartFile, ChartFiles, IGNORE};

use crate::limits::{Limits, format_size};

/// Maximum size of all files, in bytes: also those of packed dependencies.
const TOTAL: u64 = 24 << 20;
/// Maximum number of files.
const FILES: usize = 5_000;
/// Maximum nesting of packed dependencies.
const NESTING: usize = 4;
/// End of the name of a packed dependency.
const PACKED: &str = ".tgz";

/// The folders that [`write`] has written.
#[derive(Debug)]
pub struct CommandFiles {
    /// Folder with the content.
    pub content: PathBuf,
    /// Folder with the extra files.
    pub extra: PathBuf,
    /// True if the command must run twice ([`helm::compare`]).
    pub is_random: bool,
}

/// Writes the files that `command` needs into `folder`. `paths` are all files of the content, and
/// `read` returns one of them. Packed dependencies are unpacked, so that all files are checked.
pub fn write(
    command: &RenderCommand,
    folder: &Path,
    paths: &[String],
    mut read: impl FnMut(&str) -> io::Result<Vec<u8>>,
) -> io::Result<Result<CommandFiles, Findings>> {
    let ignored = format!("{}{IGNORE}", command.folder);
    let ignored = paths
        .contains(&ignored)
        .then(|| read(&ignored))
        .transpose()?;
    let chart = match ChartFiles::new(&command.folder, ignored.as_deref()) {
        Ok(chart) => chart,
        Err(findings) => return Ok(Err(findings)),
    };
    let (content, extra) = (folder.join("content"), folder.join("extra"));
    fs_err::create_dir_all(&extra)?;
    let mut writer = Writer {
        root: content.clone(),
        chart,
        bytes: 0,
        files: 0,
    };
    for path in paths {
        if !writer.chart.includes(path) {
            continue;
        }
        let bytes = read(path)?;
        if let Err(findings) = writer.add(path, bytes, 0)? {
            return Ok(Err(findings));
        }
    }
    for (name, text) in &command.extra_files {
        fs_err::write(extra.join(name), text)?;
    }
    Ok(Ok(CommandFiles {
        content,
        extra,
        is_random: writer.chart.is_random(),
    }))
}

struct Writer {
    root: PathBuf,
    chart: ChartFiles,
    bytes: u64,
    files: usize,
}

impl Writer {
    /// Writes a file, or the files of a packed dependency.
    fn add(
        &mut self,
        path: &str,
        bytes: Vec<u8>,
        nesting: usize,
    ) -> io::Result<Result<(), Findings>> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        self.files += 1;
        if self.bytes > TOTAL || self.files > FILES {
            let limit = format!(
                "the chart has more than {} or {FILES} files",
                format_size(TOTAL)
            );
            return Ok(Err(rejected(path, &limit)));
        }
        let packed = match self.chart.prepare(path, bytes) {
            Ok(ChartFile::Content(bytes)) => return self.write(path, &bytes),
            Ok(ChartFile::Packed(packed)) => packed,
            Err(findings) => return Ok(Err(findings)),
        };
        if nesting == NESTING {
            return Ok(Err(rejected(
                path,
                "packed dependencies are nested too deeply",
            )));
        }
        let limits = Limits {
            total: TOTAL - self.bytes,
            entries: FILES,
            ..Limits::default()
        };
        let files = match super::unpack(path, &packed, &limits) {
            Ok(files) => files,
            Err(finding) => return Ok(Err(rejected(path, &finding.message))),
        };
        drop(packed);
        let folder = match helm::read(&files) {
            Ok((_, folder)) => folder,
            Err(findings) => {
                let first = findings.first().map(ToString::to_string);
                return Ok(Err(rejected(path, &first.unwrap_or_default())));
            }
        };
        let target = path.strip_suffix(PACKED).unwrap_or(path);
        for (inner, bytes) in files {
            let Some(inner) = inner
                .strip_prefix(&folder)
                .filter(|name| !name.ends_with('/'))
            else {
                continue;
            };
            let added = self.add(&format!("{target}/{inner}"), bytes, nesting + 1)?;
            if added.is_err() {
                return Ok(added);
            }
        }
        Ok(Ok(()))
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<Result<(), Findings>> {
        let relative = Path::new(path);
        let mut components = relative.components();
        if !components.all(|component| matches!(component, Component::Normal(_))) {
            return Ok(Err(rejected(path, "the path is outside of the chart")));
        }
        let file = self.root.join(relative);
        if let Some(parent) = file.parent() {
            fs_err::create_dir_all(parent)?;
        }
        let mut options = fs_err::OpenOptions::new();
        match options.write(true).create_new(true).open(file) {
            Ok(mut file) => io::Write::write_all(&mut file, bytes).map(Ok),
            // A packed dependency and a folder can have the same name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(Err(rejected(path, "the chart has this file twice")))
            }
            Err(error) => Err(error),
        }
    }
}

fn rejected(path: &str, why: &str) -> Findings {
    Finding::error(codes::format::BAD_CHART, why)
        .in_file(path)
        .hint("correct the chart: `helm dependency build` downloads its dependencies again")
        .into()
}

#[cfg(test)]
mod tests {
    use bundle_core::format::{self, Files, RenderTarget};
    use bundle_core::yaml::Allowance;

    use super::super::tests::packed;
    use super::*;

    const CHART: &str = "apiVersion: v2\nname: web\nversion: 1.4.0\n";
    const DEPENDENCY: &str = "apiVersion: v2\nname: db\nversion: 1.0.0\n";

    /// Writes the files of a bundle, and returns the content of the written ones.
    fn written(files: &Files) -> Result<Files, String> {
        let target = RenderTarget::default();
        let command = format::command(files, &target, &mut Allowance::default());
        let command = command.unwrap().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<String> = files.keys().cloned().collect();
        let read = |path: &str| Ok(files[path].clone());
        let written = write(&command, folder.path(), &paths, read).unwrap();
        let written = written.map_err(|findings| findings.to_string())?;
        let limits = Limits::default();
        Ok(crate::folder::read(&written.content, &limits).unwrap())
    }

    fn files(list: &[(&str, &[u8])]) -> Files {
        let list = list.iter();
        list.map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec()))
            .collect()
    }

    #[test]
    fn packed_dependencies_are_unpacked_and_checked() {
        let inner = packed(&[
            ("x/Chart.yaml", b"apiVersion: v2\nname: x\nversion: 1.0.0\n"),
            ("x/templates/a.yaml", b"a: {{ now }}\n"),
        ]);
        let dependency = packed(&[
            ("db/Chart.yaml", DEPENDENCY.as_bytes()),
            ("db/charts/x-1.0.0.tgz", &inner),
        ]);
        let content = files(&[
            ("Chart.yaml", CHART.as_bytes()),
            (".helmignore", b"*.bak\n"),
            ("a.bak", b""),
            ("charts/db-1.0.0.tgz", &dependency),
        ]);
        let written = written(&content).unwrap();
        let paths: Vec<&str> = written.keys().map(String::as_str).collect();
        assert_eq!(
            paths,
            [
                "Chart.yaml",
                "charts/db-1.0.0/Chart.yaml",
                "charts/db-1.0.0/charts/x-1.0.0/Chart.yaml",
                "charts/db-1.0.0/charts/x-1.0.0/templates/a.yaml",
            ]
        );
        let template = &written["charts/db-1.0.0/charts/x-1.0.0/templates/a.yaml"];
        assert_eq!(template, b"a: {{ fail }}\n");
    }

    #[test]
    fn invalid_packed_dependencies_are_rejected() {
        let large = packed(&[("db/Chart.yaml", &vec![b' '; 25 << 20])]);
        let escaping = packed(&[("db/Chart.yaml", DEPENDENCY.as_bytes()), ("../a", b"")]);
        let other = packed(&[("db/values.yaml", b"")]);
        for (dependency, expected) in [
            (&large[..], "it unpacks to more than"),
            (&escaping, "../a"),
            (&other, "Chart.yaml file is missing"),
            (b"no gzip", "is not a packed chart"),
        ] {
            let content = files(&[
                ("Chart.yaml", CHART.as_bytes()),
                ("charts/db-1.0.0.tgz", dependency),
            ]);
            let found = written(&content).unwrap_err();
            assert!(found.contains("charts/db-1.0.0.tgz: "), "{found}");
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn file_that_a_folder_and_a_packed_dependency_have_is_rejected() {
        let dependency = packed(&[("db/Chart.yaml", DEPENDENCY.as_bytes())]);
        let content = files(&[
            ("Chart.yaml", CHART.as_bytes()),
            ("charts/db-1.0.0.tgz", &dependency),
            ("charts/db-1.0.0/Chart.yaml", DEPENDENCY.as_bytes()),
        ]);
        let found = written(&content).unwrap_err();
        assert!(found.contains("has this file twice"), "{found}");
    }
}
