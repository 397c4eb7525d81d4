//! registry+v1: a bundle of the Operator Lifecycle Manager, converted to the objects that install
//! the operator for the watched namespaces.

mod config;
mod conformance;
mod convert;
mod csv;
mod install_modes;
mod objects;
#[cfg(test)]
mod tests;
mod validation;

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    Files, plain,
    renderer::{ContentFormat, RenderDependencies, RenderInput, RenderPart},
};
use crate::{
    diagnostic::{Finding, Findings, codes},
    object::Manifest,
    package::{Format, Link, Maintainer, Package, PackageInfo, Requires},
    version::{Kubernetes, Range},
    yaml::{self, Allowance, Weight},
};

pub use conformance::conformance_warnings;
pub use csv::{Csv, LinkOrMaintainer};
use objects::additions::{CREATED, LIMIT};

/// File with format and package name of the bundle.
pub const ANNOTATIONS: &str = "metadata/annotations.yaml";

/// Prefix of RukPak's messages about bundles that cannot be converted.
const PREFIX: &str = "convert registry+v1 bundle to plain+v0 bundle: ";
/// Annotation with the media type, which names the format of the bundle.
const MEDIA_TYPE: &str = "operators.operatorframework.io.bundle.mediatype.v1";
/// Annotation with the name of the package.
const PACKAGE: &str = "operators.operatorframework.io.bundle.package.v1";

/// Operator in a registry+v1 bundle: the name of its package, and its ClusterServiceVersion.
#[derive(Debug, Clone, PartialEq)]
pub struct Operator {
    /// Name of the package.
    pub package: String,
    /// ClusterServiceVersion of the operator.
    pub csv: Csv,
}

impl Operator {
    /// Returns a package description made from the bundle.
    pub fn describe(&self) -> Result<Package, Finding> {
        let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let csv = &self.csv;
        let apis = csv.required_apis();
        let range = format!(">={}", csv.min_kubernetes());
        Ok(Package {
            description: filled(csv.display_name()),
            kubernetes: Range::parse(&range).ok().map(|supported| Kubernetes {
                supported: Some(supported),
                ..Kubernetes::default()
            }),
            requires: (!apis.is_empty()).then(|| Requires {
                apis,
                packages: Vec::new(),
            }),
            about: PackageInfo {
                maintainers: csv
                    .maintainers()
                    .iter()
                    .filter(|one| !one.name.trim().is_empty())
                    .map(|one| Maintainer {
                        name: one.name.clone(),
                        email: filled(&one.email),
                        url: None,
                    })
                    .collect(),
                links: csv
                    .links()
                    .iter()
                    .filter(|one| one.url.starts_with("http") && !one.name.trim().is_empty())
                    .map(|one| Link {
                        name: one.name.clone(),
                        url: one.url.clone(),
                    })
                    .collect(),
                keywords: csv.keywords().to_vec(),
                ..PackageInfo::default()
            },
            ..Package::new(&self.package, csv.version(), Format::RegistryV1)?
        })
    }
}

/// Parses the bundle in `files`, to generate a `bundle.yaml` for it.
pub fn operator(files: &Files) -> Result<Operator, Findings> {
    let mut findings = Findings::default();
    match parts(files, &mut Allowance::default(), &mut findings) {
        Some((operator, _)) if !findings.has_errors() => Ok(operator),
        _ => Err(findings),
    }
}

/// Format registry+v1.
pub(super) struct RegistryV1;

impl ContentFormat for RegistryV1 {
    fn is_format_of(&self, files: &Files) -> bool {
        files.get(ANNOTATIONS).is_some_and(|text| {
            annotations(text).is_ok_and(|found| {
                found
                    .get(MEDIA_TYPE)
                    .is_some_and(|layout| layout == "registry+v1")
            })
        })
    }

    fn reads(&self, path: &str) -> bool {
        path.starts_with(plain::FOLDER) || path == ANNOTATIONS
    }

    /// Returns at least twice the memory of the parsed files: while values of the bundle are moved
    /// into the objects that install the operator, some values exist twice.
    fn memory(&self, has_file: &dyn Fn(&str) -> bool, parsed: u64, weight: &Weight) -> u64 {
        if !has_file(ANNOTATIONS) {
            return parsed;
        }
        let created = weight.operator_entries.saturating_mul(CREATED);
        parsed
            .saturating_mul(2)
            .saturating_add(created)
            .saturating_add(config::MEMORY)
            .saturating_add(LIMIT)
    }

    fn dependencies(&self) -> RenderDependencies {
        RenderDependencies(&[RenderPart::Namespace, RenderPart::Config])
    }

    fn uses_config(&self, _: Option<&Package>) -> bool {
        true
    }

    fn describe(&self, files: &Files) -> Result<Option<Package>, Findings> {
        Ok(Some(operator(files)?.describe()?))
    }

    /// Renders the objects that install the operator. If the namespace of the installation is
    /// unknown, uses the namespace that the bundle suggests.
    fn render(
        &self,
        input: &RenderInput<'_>,
        _: Option<&Package>,
        allowance: &mut Allowance,
        findings: &mut Findings,
    ) -> Vec<Manifest> {
        let Some((operator, others)) = parts(input.files, allowance, findings) else {
            return Vec::new();
        };
        convert::convert(operator, others, input.target, findings)
    }
}

fn parts(
    files: &Files,
    allowance: &mut Allowance,
    findings: &mut Findings,
) -> Option<(Operator, Vec<Manifest>)> {
    let package = package_name(files, findings);
    let objects = plain::flat(files, allowance, findings)?;
    let (mut csvs, others): (Vec<Manifest>, Vec<Manifest>) =
        objects.into_iter().partition(convert::is_csv);
    let csv = match &csvs[..] {
        [_] => csvs.pop().and_then(|csv| match Csv::read(csv) {
            Ok(csv) => Some(csv),
            Err(finding) => {
                findings.push(finding);
                None
            }
        }),
        [] => {
            // If a file could not be parsed, there is no second error, because this file may
            // contain the ClusterServiceVersion.
            if !findings.has_errors() {
                findings.push(
                    refused("manifests/ has no ClusterServiceVersion")
                        .hint("a registry+v1 bundle requires exactly one: `operator-sdk generate bundle` writes it"),
                );
            }
            None
        }
        [first, more @ ..] => {
            for other in more {
                findings.push(
                    refused(format!(
                        "there is a second ClusterServiceVersion; the first is at {}:{}",
                        first.file, first.line
                    ))
                    .in_file(&other.file)
                    .at_line(other.line)
                    .about(other.id.to_string())
                    .hint("a bundle has one version: keep one of them"),
                );
            }
            None
        }
    };
    Some((
        Operator {
            package: package?,
            csv: csv?,
        },
        others,
    ))
}

/// Returns the name of the package from the annotations. If the name is missing or invalid, returns
/// `None` and adds an error to `findings`.
fn package_name(files: &Files, findings: &mut Findings) -> Option<String> {
    let Some(text) = files.get(ANNOTATIONS) else {
        findings.push(
            refused(format!("open {ANNOTATIONS}: file does not exist"))
                .hint("a registry+v1 bundle requires manifests/, and metadata/annotations.yaml with the name of the package"),
        );
        return None;
    };
    let annotations = match annotations(text) {
        Ok(annotations) => annotations,
        Err(found) => {
            findings.extend(found);
            return None;
        }
    };
    let bad = |key: &str, message: String, hint: String| {
        refused(message)
            .in_file(ANNOTATIONS)
            .at_field(format!("annotations[{key}]"))
            .hint(hint)
    };
    if let Some(layout) = annotations.get(MEDIA_TYPE)
        && layout != "registry+v1"
    {
        findings.push(bad(
            MEDIA_TYPE,
            format!("the annotation names the format {layout:?}"),
            format!("write `{MEDIA_TYPE}: registry+v1` if this is a registry+v1 bundle"),
        ));
    }
    match annotations.get(PACKAGE) {
        Some(package) if crate::object::is_dns_subdomain(package) => Some(package.clone()),
        Some(package) => {
            findings.push(bad(
                PACKAGE,
                format!("{package:?} is not a valid package name"),
                "use lower-case letters, digits, `-` and `.`".to_owned(),
            ));
            None
        }
        None => {
            findings.push(bad(
                PACKAGE,
                "the name of the package is missing".to_owned(),
                format!("add `{PACKAGE}: NAME`"),
            ));
            None
        }
    }
}

fn annotations(text: &[u8]) -> Result<BTreeMap<String, String>, Findings> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }
    let documents = yaml::documents(text, ANNOTATIONS)?;
    let [document] = &documents[..] else {
        return Err(refused("the file has more than one document")
            .in_file(ANNOTATIONS)
            .hint("keep the document with the map `annotations`")
            .into());
    };
    File::deserialize(&document.value)
        .map(|file| file.annotations)
        .map_err(|error| {
            refused(format!("invalid annotations: {error}"))
                .in_file(ANNOTATIONS)
                .hint("the file has one map `annotations` with string values")
                .into()
        })
}

/// Returns the error for a bundle that cannot be converted, with RukPak's prefix.
fn refused(why: impl std::fmt::Display) -> Finding {
    Finding::error(codes::format::NOT_CONVERTIBLE, format!("{PREFIX}{why}"))
}
