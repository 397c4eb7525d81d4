//! Bill of materials of a static program: the packages that it is linked from, with versions,
//! licences, checksums and dependencies, as cargo resolves them for one package and platform.

mod cyclonedx;
mod spdx;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Platform;

/// Separates the fields of a line of `cargo tree`.
const SEPARATOR: char = '\t';

/// Packages of one program for one platform.
#[derive(Debug, Clone)]
pub struct BillOfMaterials {
    platform: Platform,
    /// First the program itself, then all packages without duplicates.
    packages: Vec<LinkedPackage>,
}

/// A package that is part of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkedPackage {
    pub(crate) name: String,
    pub(crate) version: Option<String>,
    /// SPDX licence expression.
    pub(crate) licence: Option<String>,
    pub(crate) repository: Option<String>,
    /// Checksum of the published archive, in hexadecimal. `None` for packages of this workspace.
    pub(crate) sha256: Option<String>,
    origin: Origin,
    /// Packages that this package uses, as indexes in `BillOfMaterials::packages`.
    dependencies: BTreeSet<usize>,
}

/// Kind of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A crate: from a registry if it has a checksum, otherwise from this workspace.
    Cargo,
    /// The C library, from a package of Debian.
    Debian,
    /// The standard library of the compiler.
    Toolchain,
}

impl LinkedPackage {
    /// Returns the package URL (purl specification).
    fn purl(&self) -> String {
        let kind = match self.origin {
            Origin::Cargo => "cargo",
            Origin::Debian => "deb/debian",
            Origin::Toolchain => "generic",
        };
        match &self.version {
            // `+` and `:` are the only characters of versions that the specification escapes.
            Some(version) => {
                let version = version.replace('+', "%2B").replace(':', "%3A");
                format!("pkg:{kind}/{}@{version}", self.name)
            }
            None => format!("pkg:{kind}/{}", self.name),
        }
    }
}

impl BillOfMaterials {
    /// Returns the bill of materials of `package` in the workspace at `root`, linked statically for
    /// `platform`. Runs cargo and rustc, and runs dpkg for the version of the C library.
    pub fn of(root: &Path, package: &str, platform: Platform) -> Result<Self> {
        let mut packages = linked_packages(root, package, &platform.target())?;
        let toolchain = [c_library(platform), standard_library()?];
        for package in toolchain {
            let index = packages.len();
            packages.push(package);
            packages[0].dependencies.insert(index);
        }
        Ok(Self { platform, packages })
    }

    /// Returns the number of packages. The program itself is not counted.
    pub fn len(&self) -> usize {
        self.packages.len() - 1
    }

    /// Returns `true` if only the program itself is in the bill of materials.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns the packages that are linked into `package`, of the workspace at `root`, for the Rust
/// target: `package` first, then each of its dependencies once.
pub(crate) fn linked_packages(
    root: &Path,
    package: &str,
    target: &str,
) -> Result<Vec<LinkedPackage>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = output(
        Command::new(cargo)
            .current_dir(root)
            .args(["tree", "--locked", "--package", package])
            // Procedural macros run in the compiler and are not part of the program.
            .args(["--edges", "normal,no-proc-macro"])
            .args(["--target", target, "--prefix", "depth"])
            .args(["--format", "{p}\t{l}\t{r}"]),
    )?;
    let lock = fs_err::read_to_string(root.join("Cargo.lock"))?;
    parse_tree(&tree, &checksums(&lock)?)
}

/// Parses the output of `cargo tree` with depths: `1serde v1.0.0 (path)<TAB>MIT<TAB>https://… (*)`.
/// A repeated package has the mark `(*)`, and its dependencies are not printed again.
fn parse_tree(
    tree: &str,
    checksums: &BTreeMap<(String, String), String>,
) -> Result<Vec<LinkedPackage>> {
    let mut packages: Vec<LinkedPackage> = Vec::new();
    let mut known: BTreeMap<(String, String), usize> = BTreeMap::new();
    // The packages from the root to the current line.
    let mut path: Vec<usize> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let unexpected = || format!("`cargo tree` printed an unexpected line: {line}");
        let name_start = line
            .find(|c: char| !c.is_ascii_digit())
            .with_context(unexpected)?;
        let (depth, rest) = line.split_at(name_start);
        let depth: usize = depth.parse().with_context(unexpected)?;
        let rest = rest.trim_end_matches(" (*)");
        let mut fields = rest.split(SEPARATOR);
        let mut words = fields.next().unwrap_or_default().split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            bail!(unexpected());
        };
        let version = version.strip_prefix('v').with_context(unexpected)?;
        let key = (name.to_owned(), version.to_owned());
        let text = |field: Option<&str>| field.filter(|text| !text.is_empty()).map(str::to_owned);
        let index = *known.entry(key.clone()).or_insert_with(|| {
            packages.push(LinkedPackage {
                name: key.0.clone(),
                version: Some(key.1.clone()),
                // In older packages, a slash separates alternative licences.
                licence: text(fields.next()).map(|licence| licence.replace('/', " OR ")),
                repository: text(fields.next()),
                sha256: checksums.get(&key).cloned(),
                origin: Origin::Cargo,
                dependencies: BTreeSet::new(),
            });
            packages.len() - 1
        });
        path.truncate(depth);
        if path.len() != depth {
            bail!(unexpected());
        }
        if let Some(parent) = path.last() {
            packages[*parent].dependencies.insert(index);
        }
        path.push(index);
    }
    if packages.is_empty() {
        bail!("`cargo tree` printed no packages");
    }
    Ok(packages)
}

/// Returns the checksums in a `Cargo.lock` by name and version.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = lock.parse().context("cannot parse Cargo.lock")?;
    let packages = lock
        .get("package")
        .and_then(toml::Value::as_array)
        .context("Cargo.lock lists no packages")?;
    let field = |package: &toml::Value, name: &str| {
        package
            .get(name)
            .and_then(toml::Value::as_str)
            .map(str::to_owned)
    };
    Ok(packages
        .iter()
        .filter_map(|package| {
            let key = (field(package, "name")?, field(package, "version")?);
            Some((key, field(package, "checksum")?))
        })
        .collect())
}

/// Returns the C library. Its version is the version of Debian's package, if dpkg lists the
/// package.
fn c_library(platform: Platform) -> LinkedPackage {
    let native = Platform::of_this_machine().is_ok_and(|machine| machine == platform);
    let name = if native {
        "libc6-dev".to_owned()
    } else {
        format!("libc6-dev-{}-cross", platform.architecture())
    };
    let version = output(Command::new("dpkg-query").args(["-W", "-f", "${Version}", &name])).ok();
    LinkedPackage {
        name,
        version: version.map(|version| version.trim().to_owned()),
        licence: Some("LGPL-2.1-or-later".to_owned()),
        repository: Some("https://sourceware.org/glibc/".to_owned()),
        sha256: None,
        origin: Origin::Debian,
        dependencies: BTreeSet::new(),
    }
}

/// Returns the standard library of Rust, which has the version of the compiler.
fn standard_library() -> Result<LinkedPackage> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = output(Command::new(rustc).arg("--version"))?;
    let version = version
        .split(' ')
        .nth(1)
        .context("`rustc --version` printed no version")?;
    Ok(LinkedPackage {
        name: "rust-std".to_owned(),
        version: Some(version.to_owned()),
        licence: Some("MIT OR Apache-2.0".to_owned()),
        repository: Some("https://github.com/rust-lang/rust".to_owned()),
        sha256: None,
        origin: Origin::Toolchain,
        dependencies: BTreeSet::new(),
    })
}

/// Runs a program and returns its output.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        bail!(
            "{name} failed with {}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} printed no UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "\
0web v0.1.0 (/src/web)\tApache-2.0\t
1a v1.2.3\tMIT/Apache-2.0\thttps://example.com/a
2c v0.4.0+5\tBSD-3-Clause\t
1b v2.0.0\t\t
2a v1.2.3\tMIT/Apache-2.0\thttps://example.com/a (*)
";
    const LOCK: &str = r#"
version = 4
[[package]]
name = "a"
version = "1.2.3"
checksum = "aa"
[[package]]
name = "web"
version = "0.1.0"
"#;

    pub(super) fn bill() -> BillOfMaterials {
        BillOfMaterials {
            platform: Platform::Amd64,
            packages: parse_tree(TREE, &checksums(LOCK).unwrap()).unwrap(),
        }
    }

    #[test]
    fn each_package_is_listed_once_with_its_dependencies() {
        let bill = bill();
        let names: Vec<_> = bill.packages.iter().map(LinkedPackage::purl).collect();
        assert_eq!(
            names,
            [
                "pkg:cargo/web@0.1.0",
                "pkg:cargo/a@1.2.3",
                "pkg:cargo/c@0.4.0%2B5",
                "pkg:cargo/b@2.0.0"
            ]
        );
        let uses = |index: usize| -> Vec<usize> {
            bill.packages[index].dependencies.iter().copied().collect()
        };
        assert_eq!([uses(0), uses(1), uses(3)], [vec![1, 3], vec![2], vec![1]]);
        assert_eq!(
            bill.packages[1].licence.as_deref(),
            Some("MIT OR Apache-2.0")
        );
        assert_eq!(bill.packages[1].sha256.as_deref(), Some("aa"));
        assert_eq!(bill.packages[3].licence, None);
    }

    #[test]
    fn unexpected_lines_are_errors() {
        for tree in [
            "",
            "web v0.1.0",
            "0web",
            "0web 0.1.0",
            "0web v0.1.0\n2a v1.0.0",
        ] {
            assert!(parse_tree(tree, &BTreeMap::new()).is_err(), "{tree}");
        }
    }

    #[test]
    fn bill_of_the_pod_has_checksums_of_all_published_packages() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let platform = Platform::of_this_machine().unwrap();
        let bill = BillOfMaterials::of(root, "bundle-webhook", platform).unwrap();
        let without: Vec<_> = bill
            .packages
            .iter()
            .filter(|package| package.sha256.is_none() && package.origin == Origin::Cargo)
            .map(|package| package.name.as_str())
            .filter(|name| !name.starts_with("bundle-"))
            .collect();
        assert!(without.is_empty(), "no checksum: {without:?}");
        let has = |name: &str| bill.packages.iter().any(|package| package.name == name);
        for name in ["bundle-webhook", "rustls", "tokio", "rust-std"] {
            assert!(has(name), "{name} is missing");
        }
        assert!(!has("serde_derive"), "a procedural macro is listed");
    }
}
