//! Packs a folder into an image: additional resources, git origin, base image and timestamp.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::format::Files;
use bundle_core::package::{Package, keys};
use bundle_oci::Limits;
use bundle_oci::limits::MANIFEST_BYTES;
use bundle_oci::manifest::Platform;
use bundle_oci::pack::{BaseImage, ImagePlan, PackedImage, Resource, SourceDate};
use bundle_oci::registry::Client;

use super::location::ArtifactLocation;
use super::{git, platform};
use crate::failure::Outcome;
use crate::ui::Ui;

/// `SOURCE_DATE_EPOCH` of this process. All verbs that build use the same value, so that `push DIR`
/// pushes the digest that `build DIR` printed.
static SOURCE_DATE_EPOCH: OnceLock<Option<String>> = OnceLock::new();

/// Sets `SOURCE_DATE_EPOCH`, once at the start.
pub(crate) fn set_date(text: Option<String>) {
    // Only the first call has an effect.
    let _ = SOURCE_DATE_EPOCH.set(text);
}

/// Content and metadata that are packed in addition to the files of a folder.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    /// Resources in addition to the resources in `bundle.yaml`.
    pub(crate) resources: Vec<Resource>,
    /// Base image.
    pub(crate) base: Option<BaseImage>,
    /// `true` if the git origin is not recorded.
    pub(crate) no_provenance: bool,
}

impl Packing {
    /// Returns the files of the base image, overridden by the files of the folder.
    pub(crate) fn content<'a>(&self, files: &'a Files) -> Outcome<Cow<'a, Files>> {
        let Some(base) = &self.base else {
            return Ok(Cow::Borrowed(files));
        };
        let mut all = base
            .files(Limits::default())
            .map_err(|error| error.finding())?;
        all.extend(
            files
                .iter()
                .map(|(path, text)| (path.clone(), text.clone())),
        );
        Ok(Cow::Owned(all))
    }

    /// Packs the files of a folder with these annotations, and prints notes.
    pub(crate) fn pack(
        self,
        ui: &mut Ui,
        folder: &Path,
        files: &Files,
        package: &Package,
        mut annotations: BTreeMap<String, String>,
    ) -> Outcome<PackedImage> {
        if !self.no_provenance {
            record(ui, folder, files, package, &mut annotations);
        }
        let mut resources = read_resources(folder, package)?;
        resources.extend(self.resources);
        let time = SOURCE_DATE_EPOCH.get().and_then(Option::as_deref);
        let plan = ImagePlan {
            files: Some(files),
            annotations,
            resources,
            base: self.base,
            time: time.map(SourceDate::parse).transpose()?,
        };
        Ok(plan.pack()?)
    }
}

/// Adds source and commit of the git checkout to the annotations. Existing annotations are kept.
fn record(
    ui: &mut Ui,
    folder: &Path,
    files: &Files,
    package: &Package,
    annotations: &mut BTreeMap<String, String>,
) {
    let both = [keys::SOURCE, keys::REVISION];
    if both.iter().all(|key| annotations.contains_key(*key)) {
        return;
    }
    let resources = package.resources.iter().map(|resource| &resource.path);
    let paths: Vec<String> = files.keys().chain(resources).cloned().collect();
    let origin = git::origin(folder, &paths);
    for note in origin.notes {
        ui.note(note);
    }
    for (key, value) in both.into_iter().zip([origin.source, origin.revision]) {
        if let Some(value) = value {
            annotations.entry(key.to_owned()).or_insert(value);
        }
    }
}

/// Returns the resources in `bundle.yaml`. No part of a path within the folder may be a symbolic
/// link, because a link could refer to any file.
fn read_resources(folder: &Path, package: &Package) -> Result<Vec<Resource>, Findings> {
    let mut findings = Findings::default();
    let mut resources = Vec::new();
    for resource in &package.resources {
        let mut path = folder.to_owned();
        for component in resource.path.trim_end_matches('/').split('/') {
            path.push(component);
            if fs_err::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
                findings.push(
                    Finding::error(
                        codes::registry::UNSAFE_ENTRY,
                        "the path of a resource contains a symbolic link",
                    )
                    .in_file(path.display().to_string())
                    .hint("copy the resource into the folder, or pass it with --resource"),
                );
                break;
            }
        }
        resources.push(Resource {
            name: resource.name.clone(),
            kind: resource.kind.clone(),
            path,
        });
    }
    if findings.has_errors() {
        Err(findings)
    } else {
        Ok(resources)
    }
}

/// Parses `NAME:TYPE@PATH`. The name defaults to the name of the file without extension.
pub(crate) fn resource(text: &str) -> Result<Resource, Finding> {
    let unusable = |why: &str| {
        Finding::error(
            codes::usage::BAD_ARGUMENT,
            format!("`{}` {why}", text.escape_debug()),
        )
        .at_field("--resource")
        .hint("write NAME:TYPE@PATH, such as dashboards:grafana-dashboard@./dashboards; NAME: is optional")
    };
    let (left, path) = text
        .split_once('@')
        .ok_or_else(|| unusable("has no `@` before its path"))?;
    let (name, kind) = left.split_once(':').unwrap_or(("", left));
    if kind.is_empty() || path.is_empty() {
        return Err(unusable("has no type or no path"));
    }
    let path = Path::new(path);
    let name = match name {
        "" => path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .ok_or_else(|| unusable("has a path without a name"))?,
        name => name,
    };
    Ok(Resource {
        name: name.to_owned(),
        kind: kind.to_owned(),
        path: path.to_owned(),
    })
}

/// Reads the base image and downloads its layers.
pub(crate) async fn base(
    ui: &mut Ui,
    client: &Client,
    location: &ArtifactLocation,
    platform: Option<&Platform>,
) -> Outcome<BaseImage> {
    let _progress = ui.progress(&format!("reading the base {location}"));
    let Some(located) = location.open(client).await? else {
        return Err(Finding::error(
            codes::usage::FILE_UNREADABLE,
            "a folder of manifests cannot be a base",
        )
        .in_file(location.to_string())
        .hint("build it first, and pass its OCI layout")
        .into());
    };
    let manifest = platform::select_manifest(&located, platform).await?;
    let source = &located.source;
    let config = source.blob(&manifest.config)?.bytes(MANIFEST_BYTES).await?;
    let mut layers = Vec::new();
    for layer in &manifest.layers {
        layers.push(source.blob(layer)?.into_local().await?);
    }
    // A path is not recorded as the name of the base image, because the path is valid only on this
    // machine.
    let name = match location {
        ArtifactLocation::Registry(reference) => Some(match reference.tag() {
            Some(tag) => format!("{}:{tag}", reference.name()),
            None => reference.name(),
        }),
        _ => None,
    };
    Ok(BaseImage::new(name, &manifest, &config, layers)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_resource_flags() {
        for (text, name, kind, path) in [
            ("a:b@c/d.json", "a", "b", "c/d.json"),
            (
                "grafana-dashboard@c/d.json",
                "d",
                "grafana-dashboard",
                "c/d.json",
            ),
            (":b@c/d", "d", "b", "c/d"),
            ("a:b@c@d:e", "a", "b", "c@d:e"),
        ] {
            let read = resource(text).unwrap();
            assert_eq!((read.name.as_str(), read.kind.as_str()), (name, kind));
            assert_eq!(read.path, Path::new(path));
        }
        for text in ["", "a", "a:b", "@c", "a:@c", "a:b@", "b@.."] {
            assert!(resource(text).is_err(), "{text}");
        }
    }
}
