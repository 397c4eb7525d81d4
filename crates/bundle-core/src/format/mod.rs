//! Formats of a bundle. A format converts the files of a bundle to objects.

#[cfg(test)]
mod amplification_tests;
pub mod helm;
#[cfg(test)]
mod messages;
mod plain;
pub mod registry;
mod renderer;

use std::collections::BTreeSet;

use crate::{
    cancellation::Cancellation,
    configuration,
    diagnostic::{Finding, Findings, Severity},
    images::{self, FoundImage, Lock},
    object::{self, Manifest},
    package::{self, Format, Package},
    reference::Digest,
    yaml::{self, Allowance, Weight},
};

pub use crate::files::Files;
use renderer::ContentFormat;
pub use renderer::{
    CommandOutput, RenderArgument, RenderCommand, RenderDependencies, RenderInput, RenderPart,
    RenderTarget,
};

/// All formats. For files without a `bundle.yaml`, the formats are tried in this order.
const FORMATS: [Format; 3] = [Format::RegistryV1, Format::HelmV3, Format::PlainV0];

fn renderer(format: Format) -> &'static dyn ContentFormat {
    match format {
        Format::PlainV0 => &plain::PlainV0,
        Format::RegistryV1 => &registry::RegistryV1,
        Format::HelmV3 => &helm::HelmV3,
    }
}

/// Maximum memory of the parsed values of a `bundle.yaml` that has a configuration, in bytes. A
/// `bundle.yaml` with 500 patches needs less than half of this limit.
const PACKAGE_MEMORY: u64 = 2 << 20;

/// Files of a bundle whose content [`render`] reads. For other files, [`render`] needs only the
/// path.
#[derive(Debug, Default)]
pub struct ReadFiles {
    /// Paths of the schema and of the default of the configuration.
    config: Vec<String>,
}

impl ReadFiles {
    /// Returns the files that must be read for a bundle. `package` is the text of `bundle.yaml`;
    /// `None` if the bundle has no such file. The memory of the content is reserved only after this
    /// text is parsed. Therefore a `bundle.yaml` that needs more memory than [`PACKAGE_MEMORY`] is
    /// not parsed here, and the files of its configuration are not included.
    pub fn new(package: Option<&[u8]>) -> Self {
        let is_small = |text: &&[u8]| {
            let weight = yaml::weigh(text, package::FILE, &mut Allowance::default());
            weight.is_ok_and(|weight| weight.documents_memory() <= PACKAGE_MEMORY)
        };
        // If `bundle.yaml` is invalid, `render` reports the error.
        let package = package
            .filter(is_small)
            .and_then(|text| package::parse(text).ok());
        let package = package.as_ref();
        let package = package.filter(|own| renderer(own.format).uses_config(Some(own)));
        let config = package.and_then(|package| package.config.as_ref());
        let files = config.map(|config| [&config.schema, &config.default]);
        Self {
            config: files.into_iter().flatten().flatten().cloned().collect(),
        }
    }

    /// Returns `true` if [`render`] reads the content of the file at `path`.
    pub fn includes(&self, path: &str) -> bool {
        [package::FILE, images::LOCK_FILE].contains(&path)
            || self.config.iter().any(|file| file == path)
            || FORMATS.iter().any(|format| renderer(*format).reads(path))
    }

    /// Returns the memory of the configuration, in bytes.
    pub fn config_memory(&self) -> u64 {
        if self.config.is_empty() {
            0
        } else {
            configuration::MEMORY
        }
    }
}

/// Returns the memory that the rendering of these files requires, in bytes: the maximum over all
/// formats. `parsed` is the memory of the parsed files, including the `weight` of their documents.
pub fn rendering_memory(has_file: impl Fn(&str) -> bool, parsed: u64, weight: &Weight) -> u64 {
    let needed = FORMATS.map(|format| renderer(format).memory(&has_file, parsed, weight));
    needed.into_iter().max().unwrap_or(parsed)
}

/// Returns the parts of a [`RenderTarget`] that the objects of a format depend on.
pub fn dependencies(format: Format) -> RenderDependencies {
    renderer(format).dependencies()
}

/// Returns the keys under which objects rendered for `target` can be cached: one key for each
/// format, without duplicates.
pub fn cache_keys(target: &RenderTarget) -> BTreeSet<Digest> {
    FORMATS
        .map(|format| dependencies(format).key(target))
        .into()
}

/// Returns `true` if the objects depend on the configuration, for content with this format and this
/// package.
pub fn uses_config(format: Format, package: Option<&Package>) -> bool {
    renderer(format).uses_config(package)
}

/// Returns `true` if an external command renders content in this format. Such content has objects
/// only for a specific installation.
pub fn is_rendered_by_command(format: Format) -> bool {
    renderer(format).has_command()
}

/// Returns the external command that renders the files for `target`, or `None` if the files need no
/// command. The configuration of `target` is validated. For an invalid `bundle.yaml` the result is
/// `None`, and [`render`] reports the errors.
pub fn command(
    files: &Files,
    target: &RenderTarget,
    allowance: &mut Allowance,
) -> Result<Option<RenderCommand>, Findings> {
    let package = files.get(package::FILE).map(|text| package::parse(text));
    let Ok(package) = package.transpose() else {
        return Ok(None);
    };
    let format = package
        .as_ref()
        .map_or_else(|| detect(files), |package| package.format);
    renderer(format).command(files, package.as_ref(), target, allowance)
}

/// Returns a `bundle.yaml` for files without `bundle.yaml`, or `None` if the files of their format
/// contain no name and version.
pub fn describe(files: &Files) -> Result<Option<Package>, Findings> {
    renderer(detect(files)).describe(files)
}

/// Parsed content of a bundle.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// Package from `bundle.yaml`; `None` for images that were built for RukPak.
    pub package: Option<Package>,
    /// Format of the files.
    pub format: Format,
    /// Objects in the order of the files, and in the order of the documents in each file.
    ///
    /// Images are already pinned to the digests of the lock.
    pub objects: Vec<Manifest>,
    /// Images in the objects and in `bundle.yaml`, as written.
    pub images: Vec<FoundImage>,
    /// Digests of the images; `None` without a lock.
    pub lock: Option<Lock>,
    /// Warnings about the content.
    pub warnings: Findings,
}

/// Renders the content of a bundle without an installation. Returns all errors.
pub fn read(files: &Files) -> Result<Content, Findings> {
    render(&RenderInput {
        files,
        target: &RenderTarget::default(),
        output: CommandOutput::Missing,
    })
}

/// Renders the content of a bundle to objects. Returns all errors. If the format has an external
/// command ([`command`]), the objects are parsed from the output of this command.
pub fn render(input: &RenderInput<'_>) -> Result<Content, Findings> {
    let cancellation = Cancellation::default();
    render_with(input, true, |found, _| Ok(found), &cancellation)
}

/// Like [`render`], but searches for images only if the content has a lock. Without a lock,
/// [`Content::images`] is empty. Ends early if `cancellation` is set.
///
/// Before the objects are parsed, calls `check` with the format, and with `true` if `bundle.yaml`
/// declares the format. `check` returns the format to use.
pub fn render_objects(
    input: &RenderInput<'_>,
    check: impl FnOnce(Format, bool) -> Result<Format, Finding>,
    cancellation: &Cancellation,
) -> Result<Content, Findings> {
    render_with(input, false, check, cancellation)
}

fn render_with(
    input: &RenderInput<'_>,
    all_images: bool,
    check: impl FnOnce(Format, bool) -> Result<Format, Finding>,
    cancellation: &Cancellation,
) -> Result<Content, Findings> {
    let files = input.files;
    let mut findings = Findings::default();
    let package = match files.get(package::FILE).map(|text| package::parse(text)) {
        Some(Ok(package)) => Some(package),
        Some(Err(errors)) => {
            findings.extend(errors);
            None
        }
        None => None,
    };
    let format = package
        .as_ref()
        .map_or_else(|| detect(files), |package| package.format);
    let format = check(format, package.is_some())?;
    let mut allowance = Allowance::new(cancellation);
    let mut objects =
        renderer(format).render(input, package.as_ref(), &mut allowance, &mut findings);
    allowance.check()?;
    object::drop_namespaces(&mut objects, &mut findings);
    object::distinct(&objects, &mut findings);
    object::check_sizes(&objects, &allowance, &mut findings)?;
    let lock = match files.get(images::LOCK_FILE).map(|text| Lock::parse(text)) {
        Some(Ok(lock)) => Some(lock),
        Some(Err(errors)) => {
            findings.extend(errors);
            None
        }
        None => None,
    };
    if findings.has_errors() {
        return Err(findings);
    }
    let images = if all_images || lock.is_some() {
        images::find(&objects, package.as_ref())?
    } else {
        Vec::new()
    };
    if let Some(lock) = &lock {
        let disagrees = lock.differences(&images);
        findings.extend(disagrees.into_iter().map(|finding| Finding {
            severity: Severity::Warning,
            ..finding
        }));
        images::deploy(&mut objects, lock)?;
        // The digests of the lock make the objects longer.
        object::check_sizes(&objects, &allowance, &mut findings)?;
        if findings.has_errors() {
            return Err(findings);
        }
    }
    Ok(Content {
        package,
        format,
        objects,
        images,
        lock,
        warnings: findings,
    })
}

/// Returns the format of files without a `bundle.yaml`.
pub fn detect(files: &Files) -> Format {
    let found = FORMATS.into_iter();
    let mut found = found.filter(|format| renderer(*format).is_format_of(files));
    found.next().unwrap_or(Format::PlainV0)
}

#[cfg(test)]
mod tests;
