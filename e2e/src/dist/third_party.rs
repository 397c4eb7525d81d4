//! Licences of the packages that a program is linked from. The text of each licence comes from the
//! package itself. A published package without a licence text gets the SPDX texts of its licence
//! expression. cargo-about is not used, because it needs a build of several minutes and requests to
//! a service that guesses licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use spdx::expression::ExpressionReq;
use spdx::{AdditionItem, Expression};

use crate::image::{LinkedPackage, linked_packages};

/// Beginnings of the names of files with licences and notices, in lower case.
const PREFIXES: [&str; 6] = [
    "license",
    "licence",
    "copying",
    "copyright",
    "notice",
    "unlicense",
];
/// Maximum size of a licence text. Notices of large packages have about 100 KiB.
const MAX_TEXT_BYTES: u64 = 1 << 20;
const RULE: &str =
    "--------------------------------------------------------------------------------";

/// Licence of a linked library that is not a Rust package, for example a C library.
#[derive(Debug, Clone)]
pub struct RuntimeLicense {
    /// Name of the library.
    pub name: String,
    /// File with the licence.
    pub file: PathBuf,
}

/// Returns the licences of all packages of `package` for the Rust target, and the licences in
/// `runtime`, as one text.
pub(super) fn third_party_licenses(
    root: &Path,
    package: &str,
    target: &str,
    runtime: &[RuntimeLicense],
) -> Result<String> {
    let sources = package_folders(root, target)?;
    let mut licenses = Licenses::default();
    for package in linked_packages(root, package, target)? {
        // Packages of this workspace are not listed, because the licence file of the archive
        // applies to them.
        if package.sha256.is_none() {
            continue;
        }
        let version = package.version.clone().unwrap_or_default();
        let folder = sources
            .get(&(package.name.clone(), version))
            .with_context(|| format!("`cargo metadata` does not list {}", package.name))?;
        licenses.add(&package, &texts_of(&package, folder)?);
    }
    for part in runtime {
        licenses.add_text(&part.name, &fs_err::read_to_string(&part.file)?);
    }
    Ok(licenses.to_string())
}

/// Returns the folder of each package, by name and version.
pub(super) fn package_folders(
    root: &Path,
    target: &str,
) -> Result<BTreeMap<(String, String), PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(["--filter-platform", target])
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!(
            "`cargo metadata` failed with {}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    Ok(packages
        .filter_map(|package| {
            let text = |field: &str| package[field].as_str().map(str::to_owned);
            let manifest = PathBuf::from(text("manifest_path")?);
            let folder = manifest.parent()?.to_owned();
            Some(((text("name")?, text("version")?), folder))
        })
        .collect())
}

/// Returns the texts of the licences of a package. Returns an error if there is no text.
fn texts_of(package: &LinkedPackage, folder: &Path) -> Result<Vec<String>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let is_text = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let metadata = fs_err::metadata(entry.path())?;
        if is_text && metadata.is_file() {
            ensure!(
                metadata.len() <= MAX_TEXT_BYTES,
                "{} is too large for a licence",
                entry.path().display()
            );
            files.push(entry.path());
        }
    }
    files.sort();
    let mut texts = Vec::new();
    for file in files {
        texts.push(fs_err::read_to_string(file)?);
    }
    if texts.is_empty() {
        let name = &package.name;
        let expression = package
            .licence
            .as_deref()
            .with_context(|| format!("the package {name} has no licence"))?;
        texts = standard_texts(expression)
            .with_context(|| format!("the package {name} has no text of its licence"))?;
    }
    Ok(texts)
}

/// Returns the SPDX text of each licence and exception of the expression.
fn standard_texts(expression: &str) -> Result<Vec<String>> {
    let parsed = Expression::parse(expression)
        .with_context(|| format!("`{expression}` is no SPDX expression"))?;
    let mut texts = Vec::new();
    for ExpressionReq { req, .. } in parsed.requirements() {
        let license = req
            .license
            .id()
            .with_context(|| format!("`{}` is no SPDX licence", req.license))?;
        texts.push(license.text().to_owned());
        if let Some(AdditionItem::Spdx(exception)) = &req.addition {
            texts.push(exception.text().to_owned());
        }
    }
    Ok(texts)
}

/// Packages and the texts of their licences. Equal texts are listed once.
#[derive(Debug, Default)]
struct Licenses {
    /// Lines of the index: one line for each package.
    index: BTreeSet<String>,
    /// Names of the packages by licence text.
    texts: BTreeMap<String, BTreeSet<String>>,
}

impl Licenses {
    fn add(&mut self, package: &LinkedPackage, texts: &[String]) {
        let version = package.version.as_deref().unwrap_or_default();
        let name = format!("{} {version}", package.name);
        let license = package.licence.as_deref().unwrap_or("see below");
        let repository = package.repository.as_deref().unwrap_or_default();
        self.index.insert(
            format!("{name}: {license} {repository}")
                .trim_end()
                .to_owned(),
        );
        for text in texts {
            self.add_text(&name, text);
        }
    }

    fn add_text(&mut self, name: &str, text: &str) {
        let text = text.replace("\r\n", "\n");
        let key = text.trim_matches('\n').trim_end().to_owned();
        self.texts.entry(key).or_default().insert(name.to_owned());
    }
}

impl std::fmt::Display for Licenses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::from("kubectl-bundle is linked from these packages:\n\n");
        for line in &self.index {
            writeln!(text, "- {line}")?;
        }
        text.push_str("\nTheir licences follow. Equal texts are listed once.\n");
        for (license, packages) in &self.texts {
            let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
            write!(
                text,
                "\n{RULE}\n{}\n{RULE}\n\n{license}\n",
                packages.join(", ")
            )?;
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::DistPlatform;

    #[test]
    fn every_package_of_every_platform_has_a_license_text() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for platform in [DistPlatform::LinuxAmd64, DistPlatform::WindowsArm64] {
            let target = platform.target();
            let text = third_party_licenses(root, "kubectl-bundle", target, &[]).unwrap();
            let (index, texts) = text.split_once("\nTheir licences follow").unwrap();
            // `kube` is published without a licence file. `aws-lc-sys` has a licence file for its C
            // code.
            for name in ["kube 5.", "aws-lc-sys ", "tokio ", "rustls "] {
                assert!(index.contains(&format!("\n- {name}")), "{name}: {index}");
                assert!(texts.contains(name), "{name}");
            }
            assert!(!index.contains("- bundle-core"), "{index}");
            assert!(!index.contains("- serde_derive"), "{index}");
            let windows = index.contains("\n- windows-sys ");
            assert_eq!(windows, platform == DistPlatform::WindowsArm64);
        }
    }

    #[test]
    fn package_without_a_file_gets_the_texts_of_its_expression() {
        let texts = standard_texts("MIT OR Apache-2.0 WITH LLVM-exception").unwrap();
        assert_eq!(texts.len(), 3);
        assert!(
            texts[0].contains("Permission is hereby granted"),
            "{}",
            texts[0]
        );
        for unknown in ["Custom", "LicenseRef-own", ""] {
            assert!(standard_texts(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn equal_texts_are_listed_once() {
        let mut licenses = Licenses::default();
        licenses.add_text("one 1.0.0", "Terms\r\n\r\nof use\r\n");
        licenses.add_text("two 2.0.0", "\nTerms\n\nof use");
        let text = licenses.to_string();
        assert_eq!(text.matches("of use").count(), 1);
        assert!(text.contains("\none 1.0.0, two 2.0.0\n"), "{text}");
    }
}
