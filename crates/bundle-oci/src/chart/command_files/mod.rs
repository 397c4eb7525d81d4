//! Writes the files of a chart and its values to disk, for the external command that renders the
//! chart.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use bundle_core::cancellation::Cancellation;
use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::format::RenderCommand;
use bundle_core::format::helm::{
    self, CHART, CHART_MEMORY, ChartFile, ChartFiles, IGNORE, ServedApis,
};
use bundle_core::yaml::{self, Allowance};

use crate::limits::{Limits, format_size};
use crate::unpack::UnpackedArchive;

/// Maximum total size of all files and folders, in bytes. A packed dependency counts with the size
/// of its decompressed archive.
const TOTAL: u64 = 24 << 20;
/// Maximum number of files.
const FILES: usize = 5_000;
/// Number of bytes that each folder adds to the total size.
const FOLDER: u64 = 4 << 10;
/// Maximum depth of folders.
const DEPTH: usize = 32;
/// Maximum nesting depth of packed dependencies. A packed dependency can contain further packed
/// dependencies.
const NESTING: usize = 4;
/// Maximum number of YAML nodes in the files `Chart.yaml` of all dependencies together. Each file
/// also has a limit for its memory ([`CHART_MEMORY`]), because no memory is reserved for these
/// files.
const DEPENDENCY_NODES: usize = 50_000;
/// Folder of the dependencies of a chart.
const DEPENDENCIES: &str = "charts";
/// Suffix of the file name of a packed dependency.
const PACKED: &str = ".tgz";

/// The folders that [`write`] has written.
#[derive(Debug)]
pub struct CommandFiles {
    /// Folder with the content.
    pub content: PathBuf,
    /// Folder with the extra files of the command, such as the values.
    pub extra: PathBuf,
    /// `true` if the output may differ between runs. The command then runs twice
    /// ([`helm::compare`]).
    pub is_random: bool,
}

/// Writes the files that `command` needs into `folder`. `paths` are all files of the content.
/// `read` returns the bytes of the file at a path. Packed dependencies are unpacked, so that all
/// files are checked.
pub fn write(
    command: &RenderCommand,
    folder: &Path,
    paths: &[String],
    read: impl FnMut(&str) -> io::Result<Vec<u8>>,
) -> io::Result<Result<CommandFiles, Findings>> {
    let mut served = ServedApis::default();
    let cancellation = Cancellation::default();
    write_until(command, folder, paths, &cancellation, &mut served, read)
}

/// Does the same as [`write`]. Also marks the API groups in `served` whose names occur in the
/// written files. Returns an error if `cancellation` is cancelled.
pub fn write_until(
    command: &RenderCommand,
    folder: &Path,
    paths: &[String],
    cancellation: &Cancellation,
    served: &mut ServedApis,
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
    if let Err(findings) = chart.check_paths(paths) {
        return Ok(Err(findings));
    }
    let (content, extra) = (folder.join("content"), folder.join("extra"));
    fs_err::create_dir_all(&extra)?;
    let mut writer = Writer {
        root: content.clone(),
        chart,
        cancellation,
        served,
        bytes: 0,
        files: 0,
        folders: BTreeSet::new(),
        names: BTreeSet::new(),
        allowance: Allowance::of_nodes(DEPENDENCY_NODES, cancellation),
    };
    for path in paths {
        writer.check_running()?;
        if !writer.chart.includes(path) {
            continue;
        }
        let bytes = read(path)?;
        if let Err(findings) = writer.add(path, bytes, 0)? {
            return Ok(Err(findings));
        }
    }
    for (name, text) in &command.extra_files {
        writer.served.search(text);
        fs_err::write(extra.join(name), text)?;
    }
    Ok(Ok(CommandFiles {
        content,
        extra,
        is_random: writer.chart.is_random(),
    }))
}

struct Writer<'a> {
    root: PathBuf,
    chart: ChartFiles,
    cancellation: &'a Cancellation,
    /// API groups of the cluster. Each group whose name occurs in a written file is marked.
    served: &'a mut ServedApis,
    bytes: u64,
    files: usize,
    /// Folders that were already counted.
    folders: BTreeSet<String>,
    /// Charts that were written: the path of the folder `charts`, and the name of the chart.
    names: BTreeSet<(String, String)>,
    /// Remaining number of YAML nodes in the files `Chart.yaml` of all dependencies together.
    allowance: Allowance,
}

impl Writer<'_> {
    fn check_running(&self) -> io::Result<()> {
        if self.cancellation.is_cancelled_now() {
            return Err(io::Error::other("the rendering was cancelled"));
        }
        Ok(())
    }

    /// Counts a file and its folders. If `nesting` is above 0, the file comes from a packed
    /// dependency. The size of its archive is already counted, so the size of the file is not
    /// added.
    fn count(&mut self, path: &str, length: usize, nesting: usize) -> Result<(), Findings> {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        if above.clone().count() > DEPTH {
            let limit = format!("the chart has more than {DEPTH} levels of folders");
            return Err(rejected(path, &limit));
        }
        for folder in above {
            if !self.folders.contains(folder) {
                self.folders.insert(folder.to_owned());
                self.bytes = self.bytes.saturating_add(FOLDER);
            }
        }
        if nesting == 0 {
            self.bytes = self.bytes.saturating_add(length as u64);
        }
        self.files += 1;
        if self.bytes > TOTAL || self.files > FILES {
            let limit = format!(
                "the chart has more than {} or {FILES} files",
                format_size(TOTAL)
            );
            return Err(rejected(path, &limit));
        }
        Ok(())
    }

    /// Checks that the charts in a folder `charts` have different names. If two charts have the
    /// same name, helm uses the templates of only one of them, chosen at random.
    fn check_name(&mut self, path: &str, text: &[u8]) -> Result<(), Findings> {
        let mut parts = path.rsplitn(3, '/');
        let (Some(CHART), Some(_), Some(above)) = (parts.next(), parts.next(), parts.next()) else {
            return Ok(());
        };
        if above.rsplit('/').next() != Some(DEPENDENCIES) {
            return Ok(());
        }
        let documents = yaml::small_documents(text, path, CHART_MEMORY, &mut self.allowance)?;
        let name = documents.first().map(|one| &one.value["name"]);
        let name = name.and_then(|name| name.as_str()).unwrap_or_default();
        if self.names.insert((above.to_owned(), name.to_owned())) {
            return Ok(());
        }
        let name = name.escape_debug();
        Err(rejected(
            path,
            &format!("{above}/ has two charts with the name `{name}`"),
        ))
    }

    /// Writes a file, or the files of a packed dependency.
    fn add(
        &mut self,
        path: &str,
        bytes: Vec<u8>,
        nesting: usize,
    ) -> io::Result<Result<(), Findings>> {
        self.check_running()?;
        let checked = self.count(path, bytes.len(), nesting);
        if let Err(findings) = checked.and_then(|()| self.check_name(path, &bytes)) {
            return Ok(Err(findings));
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
            entries: FILES.saturating_sub(self.files),
            ..Limits::default()
        };
        let UnpackedArchive { files, size, .. } = match super::unpack(path, &packed, &limits) {
            Ok(unpacked) => unpacked,
            Err(finding) => return Ok(Err(rejected(path, &finding.message))),
        };
        self.bytes = self.bytes.saturating_add(size);
        drop(packed);
        let Some(folder) = helm::folder(&files) else {
            return Ok(Err(rejected(path, "Chart.yaml file is missing")));
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

    fn write(&mut self, path: &str, bytes: &[u8]) -> io::Result<Result<(), Findings>> {
        self.served.search(bytes);
        let relative = Path::new(path);
        let mut components = relative.components();
        if !components.all(|component| matches!(component, Component::Normal(_))) {
            return Ok(Err(rejected(path, "the path is outside of the chart")));
        }
        match create(&self.root.join(relative)) {
            Ok(mut file) => io::Write::write_all(&mut file, bytes).map(Ok),
            Err(error) => match error.kind() {
                // A packed dependency and a folder of the chart can contain the same file.
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                    Ok(Err(rejected(path, "the chart has this file twice")))
                }
                io::ErrorKind::InvalidFilename => {
                    Ok(Err(rejected(path, "the name of the file is too long")))
                }
                _ => Err(error),
            },
        }
    }
}

/// Creates a file and its folders.
fn create(file: &Path) -> io::Result<fs_err::File> {
    if let Some(parent) = file.parent() {
        fs_err::create_dir_all(parent)?;
    }
    let mut options = fs_err::OpenOptions::new();
    options.write(true).create_new(true).open(file)
}

fn rejected(path: &str, why: &str) -> Findings {
    Finding::error(codes::format::BAD_CHART, why)
        .in_file(path)
        .hint("correct the chart: `helm dependency build` downloads its dependencies again")
        .into()
}

#[cfg(test)]
mod tests;
