//! Formats of a bundle. A format turns the files of a bundle into objects.

pub mod helm;
#[cfg(test)]
mod hostile;
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

/// Maximum memory of the values of a `bundle.yaml` with a configuration, in bytes. A `bundle.yaml`
/// with 500 patches needs less than half of this limit.
const PACKAGE_MEMORY: u64 = 2 << 20;

/// Files of a bundle whose content [`render`] reads. For other files, [`render`] needs only the
/// path.
#[derive(Debug, Default)]
pub struct ReadFiles {
    /// Schema and default of the configuration.
    config: Vec<String>,
}

impl ReadFiles {
    /// Returns the files that must be read for a bundle. `package` is the text of `bundle.yaml`;
    /// `None` if the bundle has no such file. The memory of the content is reserved only after this
    /// text is parsed. Therefore the configuration is ignored if the text needs more memory than
    /// [`PACKAGE_MEMORY`].
    pub fn new(package: Option<&[u8]>) -> Self {
        let is_small = |text: &&[u8]| {
            let weight = yaml::weigh(text, package::FILE, &mut Allowance::default());
            weight.is_ok_and(|weight| weight.tree.0 <= PACKAGE_MEMORY)
        };
        // The error of an invalid file is reported by `render`.
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

    /// Returns `true` if the content of the file at `path` is read.
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

/// Returns the memory that rendering these files in any format requires, in bytes. `parsed` is the
/// memory of the parsed files, including the `weight` of their documents.
pub fn rendering_memory(has_file: impl Fn(&str) -> bool, parsed: u64, weight: &Weight) -> u64 {
    let needed = FORMATS.map(|format| renderer(format).memory(&has_file, parsed, weight));
    needed.into_iter().max().unwrap_or(parsed)
}

/// Returns the parts of a [`RenderTarget`] that the objects of a format depend on.
pub fn dependencies(format: Format) -> RenderDependencies {
    renderer(format).dependencies()
}

/// Returns the different keys under which rendered objects can be cached for `target`, of all
/// formats.
pub fn cache_keys(target: &RenderTarget) -> BTreeSet<Digest> {
    FORMATS
        .map(|format| dependencies(format).key(target))
        .into()
}

/// Returns `true` if the objects of content in this format, with this package, depend on the
/// configuration.
pub fn uses_config(format: Format, package: Option<&Package>) -> bool {
    renderer(format).uses_config(package)
}

/// Returns `true` if an external command renders content in this format, so that its objects are
/// known only for an installation.
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

/// Renders the content of a bundle to objects. Returns all errors. A format with an external
/// command ([`command`]) renders the output of that command.
pub fn render(input: &RenderInput<'_>) -> Result<Content, Findings> {
    let cancellation = Cancellation::default();
    render_with(input, true, |found, _| Ok(found), &cancellation)
}

/// Like [`render`], but searches for images only if a lock needs them. Without a lock,
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
        let disagrees = lock.disagrees(&images);
        findings.extend(disagrees.into_iter().map(|finding| Finding {
            severity: Severity::Warning,
            ..finding
        }));
        images::deploy(&mut objects, lock)?;
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
mod tests {
    use super::*;

    const WEB: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: a}\n";
    const PACKAGE: &str = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\n";

    fn files(files: &[(&str, &str)]) -> Files {
        files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
            .collect()
    }

    fn messages_of(list: &[(&str, &str)]) -> Vec<String> {
        let findings = read(&files(list)).unwrap_err();
        assert!(
            findings.iter().all(|finding| finding.hint.is_some()),
            "{findings:?}"
        );
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn reads_objects_in_order_and_the_package() {
        let content = read(&files(&[
            ("bundle.yaml", PACKAGE),
            ("README.md", "# not a manifest"),
            (
                "manifests/b.json",
                r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#,
            ),
            ("manifests/a.yaml", &format!("---\n{WEB}---\n# end\n")),
        ]))
        .unwrap();
        let ids: Vec<_> = content
            .objects
            .iter()
            .map(|object| object.id.to_string())
            .collect();
        assert_eq!(ids, ["ConfigMap/a/web", "Namespace/a"]);
        assert_eq!(content.package.unwrap().title(), "bundle web 1.4.0");
        assert_eq!(content.warnings, Findings::default());
    }

    #[test]
    fn images_of_the_lock_are_deployed_with_their_digests() {
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: 'nginx:1.25'}, {name: b, image: 'nginx:1.26'}]}\n";
        let digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let lock = format!(
            "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: ImageLock\nimages:\n- image: nginx:1.25\n  resolved: docker.io/library/nginx:1.25@{digest}\n  digest: {digest}\n  mediaType: m\n"
        );
        let read_with = |lock: &str| {
            read(&files(&[
                ("bundle.yaml", PACKAGE),
                ("images.lock.yaml", lock),
                ("manifests/a.yaml", pod),
            ]))
        };
        let content = read_with(&lock).unwrap();
        let containers = &content.objects[0].value["spec"]["containers"];
        assert_eq!(containers[0]["image"], format!("nginx:1.25@{digest}"));
        assert_eq!(containers[1]["image"], "nginx:1.26");
        assert_eq!(content.images[0].image, "nginx:1.25", "as it is written");
        assert!(!content.warnings.has_errors());
        assert!(
            content
                .warnings
                .to_string()
                .contains("no digest for `nginx:1.26`")
        );
        let said = read_with(&lock.replace("library/nginx", "evil/nginx")).unwrap_err();
        assert!(said.to_string().contains("but must have"), "{said}");
    }

    /// Renders the files for a class that supports no format, and returns the finding.
    fn rejected(list: &[(&str, &str)]) -> String {
        let files = files(list);
        let target = RenderTarget::default();
        let input = RenderInput {
            files: &files,
            target: &target,
            output: CommandOutput::Missing,
        };
        let reject = |format: Format, _: bool| {
            let format = format.to_string();
            Err(Finding::error(
                crate::diagnostic::codes::format::WRONG_CLASS,
                format,
            ))
        };
        let rejected = render_objects(&input, reject, &Cancellation::default());
        rejected.unwrap_err().to_string()
    }

    #[test]
    fn format_is_checked_before_objects_are_parsed() {
        let invalid = ("manifests/a.yaml", "kind: [");
        let chart = ("Chart.yaml", "name: web\n");
        assert_eq!(rejected(&[invalid]), "plain+v0");
        assert_eq!(rejected(&[chart]), "helm+v3");
        for (package, expected) in [(PACKAGE, "plain+v0"), ("name: [", "helm+v3")] {
            assert_eq!(rejected(&[chart, ("bundle.yaml", package)]), expected);
        }
    }

    #[test]
    fn cancelled_rendering_returns_no_content() {
        let files = files(&[("manifests/a.yaml", WEB)]);
        let target = RenderTarget::default();
        let input = RenderInput {
            files: &files,
            target: &target,
            output: CommandOutput::Missing,
        };
        let cancellation = Cancellation::default();
        assert!(render_objects(&input, |found, _| Ok(found), &cancellation).is_ok());
        let cancel = |found, _| {
            cancellation.cancel();
            Ok(found)
        };
        let findings = render_objects(&input, cancel, &cancellation).unwrap_err();
        let codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [crate::diagnostic::codes::format::CANCELLED]);
    }

    #[test]
    fn a_bundle_without_package_file_is_plain() {
        let content = read(&files(&[("manifests/a.yaml", WEB)])).unwrap();
        assert_eq!((content.package, content.format), (None, Format::PlainV0));
    }

    #[test]
    fn keeps_messages_of_rukpak() {
        assert_eq!(
            messages_of(&[("README.md", "")]),
            ["get objects from bundle manifests: readdir manifests: file does not exist"]
        );
        let zero = "invalid bundle: found zero objects: plain+v0 bundles are required to contain at least one object";
        assert_eq!(messages_of(&[("manifests/", "")]), [zero]);
        assert_eq!(
            messages_of(&[("manifests/a.yaml", "# nothing\n")]),
            ["manifests/a.yaml: the file has no document", zero]
        );
        assert_eq!(
            messages_of(&[
                ("manifests/x/a.yaml", WEB),
                ("manifests/x/b.yaml", WEB),
                ("manifests/a.yaml", WEB)
            ]),
            [
                "get objects from bundle manifests: subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found \"manifests/x\""
            ]
        );
        assert_eq!(
            messages_of(&[
                ("bundle.yaml", &PACKAGE.replace("plain+v0", "tar+v9")),
                ("manifests/a.yaml", WEB)
            ]),
            ["bundle.yaml:5: format: detected unsupported bundle format \"tar+v9\""]
        );
    }

    #[test]
    fn skips_files_with_comments_only_and_rejects_subfolders_with_hint() {
        let content = read(&files(&[
            ("manifests/a.yaml", WEB),
            ("manifests/b.yaml", "# nothing yet\n---\n"),
        ]))
        .unwrap();
        assert_eq!(content.objects.len(), 1);
        assert_eq!(
            content.warnings.to_string(),
            "manifests/b.yaml: the file has no document"
        );
        let hint = |path: &str| {
            let found = read(&files(&[("manifests/a.yaml", WEB), (path, WEB)])).unwrap_err();
            found.first().unwrap().hint.clone().unwrap()
        };
        assert_eq!(
            hint("manifests/x/y/b.yaml"),
            "move and rename the files, for example `mv manifests/x/y/b.yaml manifests/x-y-b.yaml`, or move the folder out of manifests/"
        );
        assert_eq!(hint("manifests/x/"), "remove the empty folder");
    }

    #[test]
    fn reports_kustomization_file_once_by_name() {
        let found = messages_of(&[
            ("manifests/a.yaml", WEB),
            ("manifests/kustomization.yaml", "resources: [a.yaml]\n"),
        ]);
        assert_eq!(
            found,
            [
                "manifests/kustomization.yaml:1: it is a kustomization, which must be built before the installation"
            ]
        );
        // Flux has a kind that is also named Kustomization.
        let flux = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: web, namespace: a}\n";
        let content = read(&files(&[("manifests/kustomization.yaml", flux)])).unwrap();
        assert_eq!(content.objects.len(), 1);
    }

    #[test]
    fn unrolls_lists_and_drops_namespaces_of_cluster_scoped_objects() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a, namespace: b}}\n\
                    - {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: c}, spec: {group: example.com, scope: Cluster, names: {kind: Shop}}}\n\
                    - {apiVersion: example.com/v1, kind: Shop, metadata: {name: d, namespace: e}}\n";
        let content = read(&files(&[("manifests/a.yaml", text)])).unwrap();
        let ids: Vec<String> = content
            .objects
            .iter()
            .map(|one| one.id.to_string())
            .collect();
        assert_eq!(
            ids,
            [
                "Namespace/a",
                "CustomResourceDefinition.apiextensions.k8s.io/c",
                "Shop.example.com/d"
            ]
        );
        assert!(content.objects[2].value["metadata"]["namespace"].is_null());
        let said: Vec<String> = content.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "manifests/a.yaml:1: Namespace/a: metadata.namespace: Namespace is cluster-scoped: namespace `b` is ignored, as the API server ignores it",
                "manifests/a.yaml:1: Shop.example.com/d: metadata.namespace: Shop is cluster-scoped: namespace `e` is ignored, as the API server ignores it",
            ]
        );
        let twice = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: b}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: c}\n";
        let found = read(&files(&[("manifests/a.yaml", twice)])).unwrap_err();
        assert!(
            found.to_string().contains("the same object is at"),
            "{found}"
        );
    }

    #[test]
    fn reports_all_problems_together() {
        let said = messages_of(&[
            ("bundle.yaml", "name: web\n"),
            ("manifests/a.yaml", "kind: [\n"),
            ("manifests/b.yaml", "kind: ConfigMap\n"),
            ("manifests/c.yaml", WEB),
            ("manifests/d.yaml", &format!("# again\n{WEB}")),
        ])
        .join("\n");
        for part in [
            "bundle.yaml: version: ",
            "manifests/a.yaml:1: invalid YAML",
            "manifests/b.yaml:1: apiVersion: ",
            "manifests/d.yaml:2: ConfigMap/a/web: the same object is at manifests/c.yaml:1 already",
        ] {
            assert!(said.contains(part), "{part} is not in:\n{said}");
        }
    }
}
