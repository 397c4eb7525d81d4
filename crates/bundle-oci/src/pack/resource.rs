//! Additional content of a bundle. Each resource has its own layer, and is read from disk when the
//! resource is packed.

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::package::keys;

use super::layer::{Layer, LayerWriter};
use crate::unpack::check_path;

/// Folder of the resources in the unpacked image.
const RESOURCES_FOLDER: &str = "resources";
/// Maximum number of files of one resource.
const MAX_FILES: usize = 20_000;

/// Content of a bundle that is not applied to the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Name within the bundle.
    pub name: String,
    /// Media type, for the tool that reads the resource.
    pub kind: String,
    /// File or folder on disk.
    pub path: PathBuf,
}

impl Resource {
    /// Checks the name and the media type of the resource, and that each entry is a file or a
    /// folder. Reads no content.
    pub fn check(&self) -> Result<(), Findings> {
        self.entries().map(|_| ())
    }

    /// Returns the layer of the resource: a file at `resources/NAME/FILE`, or the content of a
    /// folder below `resources/NAME/`.
    pub(super) fn pack(&self, time: u64) -> Result<Layer, Findings> {
        let entries = self.entries()?;
        let mut layer = LayerWriter::new(time);
        layer.folder(RESOURCES_FOLDER)?;
        let own = format!("{RESOURCES_FOLDER}/{}", self.name);
        layer.folder(&own)?;
        for entry in entries {
            let path = format!("{own}/{}", entry.path);
            if entry.folder {
                layer.folder(&path)?;
                continue;
            }
            let file = fs_err::File::open(&entry.place)
                .map_err(|error| self.unreadable(&entry.place, &error))?;
            let size = file
                .metadata()
                .map_err(|error| self.unreadable(&entry.place, &error))?
                .len();
            layer
                .file(&path, size, file)
                .map_err(|finding| finding.in_file(entry.place.display().to_string()))?;
        }
        let mut layer = layer.finish()?;
        layer.blob.descriptor.annotations = [
            (keys::RESOURCE_NAME, &self.name),
            (keys::RESOURCE_TYPE, &self.kind),
        ]
        .map(|(key, value)| (key.to_owned(), value.clone()))
        .into();
        Ok(layer)
    }

    /// Returns the files and folders of the resource, sorted by path.
    fn entries(&self) -> Result<Vec<ResourceEntry>, Findings> {
        let mut findings = Findings::default();
        self.check_names(&mut findings);
        let mut entries = Vec::new();
        // The author chose the path of the resource, so this path may be a symbolic link. Links
        // inside a folder are rejected.
        match fs_err::metadata(&self.path) {
            Err(error) => findings.push(self.unreadable(&self.path, &error)),
            Ok(found) if found.is_dir() => {
                self.walk("", &self.path, &mut entries, &mut findings);
                if findings.is_empty() && entries.iter().all(|entry| entry.folder) {
                    findings.push(self.empty("is a folder without files"));
                }
            }
            Ok(found) if !found.is_file() => {
                findings.push(self.refused(&self.path, "is neither a file nor a folder"));
            }
            Ok(found) if found.len() == 0 => findings.push(self.empty("is an empty file")),
            Ok(_) => match self.path.file_name().and_then(|name| name.to_str()) {
                Some(name) => entries.push(ResourceEntry {
                    path: name.to_owned(),
                    place: self.path.clone(),
                    folder: false,
                }),
                None => findings.push(self.refused(&self.path, "has a name that is not UTF-8")),
            },
        }
        for entry in &entries {
            if let Err(why) =
                check_path(&format!("{RESOURCES_FOLDER}/{}/{}", self.name, entry.path))
            {
                findings.push(self.refused(&entry.place, why));
            }
        }
        if findings.has_errors() {
            return Err(findings);
        }
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(entries)
    }

    /// Collects files and folders below a folder. Names that begin with a dot are skipped, as in
    /// the folder of a bundle.
    fn walk(
        &self,
        above: &str,
        folder: &Path,
        entries: &mut Vec<ResourceEntry>,
        findings: &mut Findings,
    ) {
        let read = fs_err::read_dir(folder)
            .and_then(|found| found.map(|entry| Ok(entry?.file_name())).collect());
        let mut names: Vec<std::ffi::OsString> = match read {
            Ok(names) => names,
            Err(error) => return findings.push(self.unreadable(folder, &error)),
        };
        names.sort();
        for name in names {
            let place = folder.join(&name);
            let Some(name) = name.to_str() else {
                findings.push(self.refused(&place, "has a name that is not UTF-8"));
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            if entries.len() >= MAX_FILES {
                findings.push(
                    Finding::error(
                        codes::registry::TOO_LARGE,
                        format!(
                            "the resource `{}` has more than {MAX_FILES} files",
                            self.name
                        ),
                    )
                    .hint("pack them into one archive"),
                );
                return;
            }
            let path = format!("{above}{name}");
            match fs_err::symlink_metadata(&place) {
                Err(error) => findings.push(self.unreadable(&place, &error)),
                Ok(found) if found.is_dir() => {
                    entries.push(ResourceEntry {
                        path: path.clone(),
                        place: place.clone(),
                        folder: true,
                    });
                    if path.split('/').count() > 32 {
                        findings.push(self.refused(&place, "is more than 32 folders deep"));
                    } else {
                        self.walk(&format!("{path}/"), &place, entries, findings);
                    }
                }
                Ok(found) if found.is_file() => entries.push(ResourceEntry {
                    path,
                    place,
                    folder: false,
                }),
                Ok(found) if found.is_symlink() => findings.push(self.refused(
                    &place,
                    "is a symbolic link; a bundle must contain the file itself",
                )),
                Ok(_) => findings.push(self.refused(&place, "is neither a file nor a folder")),
            }
        }
    }

    fn check_names(&self, findings: &mut Findings) {
        let plain = |text: &str, more: &[char]| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text.len() <= 128
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || more.contains(&c))
        };
        if !plain(&self.name, &['.', '_', '-']) {
            findings.push(
                Finding::error(
                    codes::usage::BAD_ARGUMENT,
                    format!("`{}` is not a valid name of a resource", self.name.escape_debug()),
                )
                .hint("use up to 128 letters, digits, `.`, `_` and `-`, beginning with a letter or digit"),
            );
        }
        if !plain(&self.kind, &['.', '_', '-', '/', '+']) {
            findings.push(
                Finding::error(
                    codes::usage::BAD_ARGUMENT,
                    format!(
                        "`{}` is not a valid type of the resource `{}`",
                        self.kind.escape_debug(),
                        self.name.escape_debug()
                    ),
                )
                .hint("use up to 128 letters, digits, `.`, `_`, `-`, `+` and `/`, such as grafana-dashboard"),
            );
        }
    }

    fn empty(&self, why: &str) -> Finding {
        Finding::error(
            codes::usage::FILE_UNREADABLE,
            format!(
                "the resource `{}` would be an empty layer: its path {why}",
                self.name
            ),
        )
        .in_file(self.path.display().to_string())
        .hint("add content at this path, or remove the resource")
    }

    fn refused(&self, place: &Path, why: &str) -> Finding {
        Finding::error(
            codes::registry::UNSAFE_ENTRY,
            format!("a file of the resource `{}` {why}", self.name),
        )
        .in_file(place.display().to_string())
        .hint("replace it with a regular file, or remove it")
    }

    fn unreadable(&self, place: &Path, error: &std::io::Error) -> Finding {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "no such file or folder".to_owned(),
            other => other.to_string(),
        };
        Finding::error(
            codes::usage::FILE_UNREADABLE,
            format!("the resource `{}` cannot be read: {why}", self.name),
        )
        .in_file(place.display().to_string())
        .hint("check the path and its permissions")
    }
}

struct ResourceEntry {
    /// Path within the resource.
    path: String,
    place: PathBuf,
    folder: bool,
}
