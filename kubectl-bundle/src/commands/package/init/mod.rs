//! `init`: writes a bundle.yaml for the content of a folder, or an example for an empty folder. If
//! a file cannot be written, no file is written.

mod arguments;
mod example;

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::{self, Files};
use bundle_core::object::Manifest;
use bundle_core::package::{self, Format, Package, Requires, Scan, Security};
use bundle_core::version::apis;
use bundle_core::yaml;

use crate::artifact::input::{self, FallbackMetadata, MetadataError};
use crate::failure::Outcome;
use crate::system::files;
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Settings of `init`.
pub(crate) struct Init {
    /// Folder.
    folder: PathBuf,
    /// Name and version from flags.
    known: FallbackMetadata,
    /// `true` if existing files are overwritten.
    force: bool,
    /// `true` if nothing is written.
    dry_run: bool,
}

impl Init {
    /// Detects the content, writes the files, and prints the next steps.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let mut found = if self.folder.exists() {
            input::read_files(&self.folder)?
        } else {
            Files::new()
        };
        if found.contains_key(package::FILE) && !self.force {
            return Err(exists(&self.folder.join(package::FILE)).into());
        }
        found.remove(package::FILE);
        let written = if found.is_empty() {
            self.reject_loose_manifests()?;
            let package = self.new_package(None)?;
            ui.note(format!("example of {}", package.title()));
            example::files(package)
        } else {
            let package = self.describe(&found)?;
            ui.note(format!("{}, {}", package.title(), package.format));
            vec![(package::FILE.to_owned(), package.to_yaml())]
        };
        let targets: Vec<(PathBuf, Vec<u8>)> = written
            .into_iter()
            .map(|(path, text)| (self.folder.join(path), text.into_bytes()))
            .collect();
        if self.dry_run {
            ui.note("nothing was written");
        } else {
            files::create_all(&targets, self.force)?;
        }
        for (path, _) in &targets {
            ui.data(path.display())?;
        }
        ui.note(format!(
            "next: kubectl bundle build {}",
            self.folder.display()
        ));
        Ok(())
    }

    /// Returns the package for existing content.
    fn describe(&self, found: &Files) -> Outcome<Package> {
        match input::package_metadata(found, &self.known) {
            Ok(package) if package.format != Format::PlainV0 => Ok(package),
            Ok(_) | Err(MetadataError::MissingNameOrVersion(_)) => {
                let content = format::read(found)
                    .map_err(|findings| input::located(findings, &self.folder))?;
                let mut package = self.new_package(Some(&content.objects))?;
                let apis = required_apis(&content.objects);
                if !apis.is_empty() {
                    package.requires = Some(Requires {
                        apis,
                        packages: Vec::new(),
                    });
                }
                Ok(package)
            }
            Err(MetadataError::Invalid(findings)) => {
                Err(input::located(findings, &self.folder).into())
            }
        }
    }

    /// Returns `metadata.name` of the kustomization in the folder.
    fn name_of_kustomization(&self) -> Option<String> {
        let file = kustomization(&self.folder)?;
        let text = files::read(&file).ok()?;
        let documents = yaml::documents(&text, package::FILE).ok()?;
        let name = documents.first()?.value["metadata"]["name"].as_str()?;
        Some(name.to_owned())
    }

    /// Returns a package of the plain format. The name comes from the first of these sources: the
    /// flag, the kustomization, the label `app.kubernetes.io/part-of` of most objects, the folder.
    /// The version comes from the flag or the most frequent label `app.kubernetes.io/version`. The
    /// default version is 0.1.0.
    fn new_package(&self, objects: Option<&[Manifest]>) -> Outcome<Package> {
        let objects = objects.unwrap_or_default();
        let folder = || {
            let full = fs_err::canonicalize(&self.folder).unwrap_or_else(|_| self.folder.clone());
            full.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        };
        let name = self
            .known
            .name
            .clone()
            .or_else(|| {
                self.name_of_kustomization()
                    .map(|name| normalized_name(&name))
            })
            .or_else(|| shared_name(objects).map(|name| normalized_name(&name)))
            .or_else(|| folder().map(|name| normalized_name(&name)))
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "my-bundle".to_owned());
        let mut package = Package::new(
            &name,
            self.known.version.as_deref().unwrap_or("0.1.0"),
            Format::PlainV0,
        )
        .map_err(|finding| finding.at_field("--name, --version"))?;
        if self.known.version.is_none()
            && let Some((version, _)) = most_frequent(objects, "app.kubernetes.io/version")
            && let Ok(other) = Package::new(&name, version, Format::PlainV0)
        {
            package.version = other.version;
        }
        package.about.security = Some(Security {
            scan: Scan::Enabled,
            languages: Vec::new(),
            exclude: Vec::new(),
            images: Vec::new(),
            branch: None,
            candidate: None,
        });
        Ok(package)
    }

    /// Returns an error for manifests outside of `manifests/`. These manifests are probably content
    /// of the package, so the author must move them.
    fn reject_loose_manifests(&self) -> Outcome {
        if !self.folder.is_dir() {
            return Ok(());
        }
        let loose = files::of_objects(&self.folder)?;
        let Some(first) = loose.iter().find(|path| contains_objects(path)) else {
            return Ok(());
        };
        Err(Finding::error(
            codes::format::NO_MANIFESTS,
            "the manifests are not in a folder `manifests`",
        )
        .in_file(first.display().to_string())
        .hint("create a folder `manifests`, move them into it, and run init again")
        .into())
    }
}

/// Returns `true` if a file probably contains manifests: a YAML document in the file has
/// `apiVersion` and `kind`.
fn contains_objects(path: &Path) -> bool {
    let is_package = path.file_name().is_some_and(|name| name == package::FILE);
    let Some(text) = files::read(path).ok().filter(|_| !is_package) else {
        return false;
    };
    yaml::documents(&text, package::FILE).is_ok_and(|documents| {
        documents.iter().any(|document| {
            document.value["apiVersion"].is_string() && document.value["kind"].is_string()
        })
    })
}

/// Returns the kustomization of a folder.
fn kustomization(folder: &Path) -> Option<PathBuf> {
    ["kustomization.yaml", "kustomization.yml", "Kustomization"]
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.is_file())
}

fn exists(path: &Path) -> Finding {
    Finding::error(codes::usage::FILE_UNWRITABLE, "the file already exists")
        .in_file(path.display().to_string())
        .hint("nothing was written; --force overwrites it")
}

/// Returns the most frequent value of a label, and the number of objects with this value. If
/// several values are equally frequent, returns the first of these values.
fn most_frequent<'a>(objects: &'a [Manifest], label: &str) -> Option<(&'a str, usize)> {
    let values: Vec<&str> = objects
        .iter()
        .filter_map(|object| object.value["metadata"]["labels"][label].as_str())
        .collect();
    let mut best: Option<(&str, usize)> = None;
    for value in &values {
        let count = values.iter().filter(|other| *other == value).count();
        if best.is_none_or(|(_, most)| count > most) {
            best = Some((value, count));
        }
    }
    best
}

/// Returns the value of `app.kubernetes.io/part-of` that more than half of the objects have.
fn shared_name(objects: &[Manifest]) -> Option<String> {
    let (name, count) = most_frequent(objects, "app.kubernetes.io/part-of")?;
    (count * 2 > objects.len()).then(|| name.to_owned())
}

/// Converts a text to a valid package name.
fn normalized_name(text: &str) -> String {
    let text: String = text
        .to_lowercase()
        .chars()
        .map(|letter| {
            if letter.is_ascii_lowercase() || letter.is_ascii_digit() {
                letter
            } else {
                '-'
            }
        })
        .take(package::MAX_NAME)
        .collect();
    text.trim_matches('-').to_owned()
}

/// Returns `GROUP/VERSION/KIND` of the objects whose API group is neither built in nor defined by
/// the content.
fn required_apis(objects: &[Manifest]) -> Vec<String> {
    let defined: Vec<&str> = objects
        .iter()
        .filter(|object| object.id.kind == "CustomResourceDefinition")
        .filter_map(|object| object.value["spec"]["group"].as_str())
        .collect();
    let mut apis: Vec<String> = objects
        .iter()
        .map(|object| &object.id)
        .filter(|id| apis::is_custom(&id.group) && !defined.contains(&id.group.as_str()))
        .map(|id| format!("{}/{}/{}", id.group, id.version, id.kind))
        .collect();
    apis.sort();
    apis.dedup();
    apis
}
