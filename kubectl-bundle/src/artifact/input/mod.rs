//! Input of `build` and `init`: a folder of manifests, a chart, an operator bundle, or a
//! kustomization. Each kind of input is converted to the files of a bundle.

mod chart;
mod kustomize;
mod program;
mod rendering;

use std::path::Path;

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::format::{self, CommandOutput, Content, Files, RenderInput, RenderTarget};
use bundle_core::package::{self, Format, Package};
use bundle_core::version::apis;
use bundle_core::yaml::Allowance;
use bundle_oci::{Limits, folder};

use crate::failure::Outcome;

pub(crate) use kustomize::is_kustomization;

/// Metadata for content without `bundle.yaml`, from flags and defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct FallbackMetadata {
    /// Name, for content without `bundle.yaml`.
    pub(crate) name: Option<String>,
    /// Version, for content without `bundle.yaml`.
    pub(crate) version: Option<String>,
    /// Default name and version, if neither a flag nor the content sets them.
    pub(crate) default: Option<(String, String)>,
}

/// Files of a bundle. For a format that needs an external command, also the output of the command.
pub(crate) struct Input {
    /// Files, including `bundle.yaml`.
    pub(crate) files: Files,
    /// Output of the external command, if the format needs a command.
    output: Option<Vec<u8>>,
}

impl Input {
    /// Returns the parsed content of `files` for the installation `target`. `files` may include the
    /// files of a base image.
    pub(crate) fn content(
        &self,
        files: &Files,
        target: &RenderTarget,
    ) -> Result<Content, Findings> {
        format::render(&RenderInput {
            files,
            target,
            output: output_of(self.output.as_deref()),
        })
    }
}

/// Returns the output of the external command, if it ran.
fn output_of(output: Option<&[u8]>) -> CommandOutput<'_> {
    output.map_or(CommandOutput::Missing, CommandOutput::Text)
}

/// Reads the content at `path`, adds a missing `bundle.yaml`, and renders charts for `target`.
pub(crate) fn read(path: &Path, known: &FallbackMetadata, target: &RenderTarget) -> Outcome<Input> {
    let mut files = read_files(path)?;
    match files.get(package::FILE) {
        // The errors of an invalid `bundle.yaml` are reported later, together with all other
        // errors.
        Some(text) => {
            if let Ok(package) = package::parse(text) {
                check_metadata(&package, known)?;
            }
        }
        None => add_metadata(&mut files, known, path)?,
    }
    let output = run_command(&files, target)?;
    if output.is_none() {
        empty_folders(path, &mut files);
    }
    Ok(Input { files, output })
}

/// Renders the content of a bundle for `target`. Runs the external command if the format needs a
/// command.
pub(crate) fn render(files: &Files, target: &RenderTarget) -> Outcome<Content> {
    let output = run_command(files, target)?;
    Ok(format::render(&RenderInput {
        files,
        target,
        output: output_of(output.as_deref()),
    })?)
}

/// Returns the output of the external command that renders the files. `None` if the files need no
/// command. If `target` has no Kubernetes version, the command gets a version that the package
/// supports.
fn run_command(files: &Files, target: &RenderTarget) -> Outcome<Option<Vec<u8>>> {
    let package = files.get(package::FILE).map(|text| package::parse(text));
    let package = package.and_then(Result::ok);
    let kubernetes = package.and_then(|package| package.kubernetes);
    let version = || {
        let range = kubernetes.unwrap_or_default();
        range.render_version(apis::OLDEST, apis::newest())
    };
    let target = RenderTarget {
        kubernetes: target.kubernetes.or_else(version),
        ..target.clone()
    };
    let command = format::command(files, &target, &mut Allowance::default())?;
    let output = command.map(|command| rendering::run(&command, files));
    output.transpose()
}

/// Returns the files at `path`. A kustomization is rendered.
pub(crate) fn read_files(path: &Path) -> Outcome<Files> {
    let limits = Limits::default();
    if path.is_file() {
        let files = bundle_oci::chart::read(path, &limits)?;
        return Ok(chart::without_top_folder(files)?);
    }
    is_folder(path)?;
    let mut files = folder::read(path, &limits).map_err(|findings| located(findings, path))?;
    if is_kustomization(path) && !files.keys().any(|path| path.starts_with("manifests/")) {
        kustomize::render(path, &mut files)?;
    }
    Ok(files)
}

/// Adds an entry to `files` for `manifests/` and for each subfolder of `manifests/`, if the folder
/// is empty. The reconciler and RukPak reject an image with an empty folder. With these entries,
/// `build` reports the same error, and packs no empty folder.
fn empty_folders(path: &Path, files: &mut Files) {
    let has = |files: &Files, folder: &str| files.keys().any(|path| path.starts_with(folder));
    let manifests = path.join("manifests");
    for entry in fs_err::read_dir(&manifests).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let folder = format!("manifests/{name}/");
        if is_folder && !name.starts_with('.') && !has(files, &folder) {
            files.insert(folder, Vec::new());
        }
    }
    if manifests.is_dir() && !has(files, "manifests/") {
        files.insert("manifests/".to_owned(), Vec::new());
    }
}

/// Adds a `bundle.yaml` if the content has none. The values come from the metadata of the content
/// and the flags.
fn add_metadata(files: &mut Files, known: &FallbackMetadata, path: &Path) -> Outcome {
    let package = package_metadata(files, known).map_err(|missing| match missing {
        MetadataError::MissingNameOrVersion(findings) if !files.is_empty() => {
            located(findings, path)
        }
        MetadataError::MissingNameOrVersion(_) => no_content(),
        MetadataError::Invalid(findings) => located(findings, path),
    })?;
    files.insert(package::FILE.to_owned(), package.to_yaml().into_bytes());
    Ok(())
}

fn no_content() -> Findings {
    Finding::error(
        codes::format::NO_MANIFESTS,
        "get objects from bundle manifests: readdir manifests: file does not exist",
    )
    .hint("create the folder `manifests` next to bundle.yaml, and move the YAML files into it")
    .into()
}

/// Reason why no `bundle.yaml` can be written.
pub(crate) enum MetadataError {
    /// Name or version are missing.
    MissingNameOrVersion(Findings),
    /// The metadata is invalid.
    Invalid(Findings),
}

/// Returns the package metadata for these files, from the content, the flags and the defaults.
pub(crate) fn package_metadata(
    files: &Files,
    known: &FallbackMetadata,
) -> Result<Package, MetadataError> {
    let wrong = MetadataError::Invalid;
    let flag = |flag: &str, finding: Finding| MetadataError::Invalid(finding.at_field(flag).into());
    let Some(mut package) = format::describe(files).map_err(wrong)? else {
        let default = known.default.as_ref();
        let name = known.name.as_ref().or(default.map(|(name, _)| name));
        let version = known
            .version
            .as_ref()
            .or(default.map(|(_, version)| version));
        let (Some(name), Some(version)) = (name, version) else {
            return Err(MetadataError::MissingNameOrVersion(
                Finding::error(
                    codes::format::BAD_PACKAGE,
                    "bundle.yaml is missing, so the bundle has neither name nor version",
                )
                .in_file(package::FILE)
                .hint("create bundle.yaml with `kubectl bundle init`, or set --name and --version")
                .into(),
            ));
        };
        return Package::new(name, version, Format::PlainV0)
            .map_err(|finding| flag("--name, --version", finding));
    };
    if known.name.is_some() || known.version.is_some() {
        let name = known.name.as_deref().unwrap_or(&package.name);
        let version = known
            .version
            .clone()
            .unwrap_or_else(|| package.version.to_string());
        let named = Package::new(name, &version, package.format)
            .map_err(|finding| flag("--name, --version", finding))?;
        package.name = named.name;
        package.version = named.version;
    }
    Ok(package)
}

/// Returns an error if `--name` or `--version` differ from an existing `bundle.yaml`.
fn check_metadata(package: &Package, known: &FallbackMetadata) -> Outcome {
    let version = package.version.to_string();
    for (flag, flag_value, package_value) in [
        ("--name", &known.name, &package.name),
        ("--version", &known.version, &version),
    ] {
        if let Some(flag_value) = flag_value
            && flag_value != package_value
        {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                format!("bundle.yaml has {package_value}, but the flag has {flag_value}"),
            )
            .at_field(flag)
            .hint("change bundle.yaml, or omit the flag: the flag is for content without a bundle.yaml")
            .into());
        }
    }
    Ok(())
}

fn is_folder(path: &Path) -> Outcome {
    if path.is_dir() {
        return Ok(());
    }
    let why = if path.exists() {
        "it is not a folder"
    } else {
        "no such file or directory"
    };
    Err(Finding::error(codes::usage::FILE_UNREADABLE, why)
        .in_file(path.display().to_string())
        .hint("pass a folder that contains bundle.yaml and manifests/, or an OCI layout")
        .into())
}

/// Adds `folder` before each path in the findings.
pub(crate) fn located(findings: Findings, folder: &Path) -> Findings {
    let located = findings.into_iter().map(|mut finding| {
        if let Some(file) = &mut finding.place.file {
            *file = folder.join(&*file).display().to_string();
        }
        finding
    });
    located.collect()
}
