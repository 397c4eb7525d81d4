//! `cargo xtask apis`: writes the table of Kubernetes' built-in APIs from the sources of the
//! Kubernetes version that the tests build. `bundle_core::version` uses the table. This command
//! needs `go` and its modules, so `cargo xtask gen` does not write the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Path of the table from the repository's root.
const TABLE: &str = "crates/bundle-core/src/version/apis/served.tsv";
/// Go module that pins the version.
const TOOLS: &str = "e2e/tools/kubernetes";

/// Modules with types, and the path of their folders `GROUP/VERSION`.
const SOURCES: &[(&str, &str)] = &[
    ("k8s.io/api", ""),
    ("k8s.io/apiextensions-apiserver", "pkg/apis"),
    ("k8s.io/kube-aggregator", "pkg/apis"),
];

/// Lifecycle of an API in the sources.
#[derive(Default)]
struct ApiLifecycle {
    introduced: Option<String>,
    deprecated: Option<String>,
    removed: Option<String>,
    replacement: Option<String>,
    cluster: bool,
}

pub(crate) fn run() -> Result<()> {
    let root = root()?;
    let version = pinned(&root)?;
    let mut table = BTreeMap::new();
    for (module, under) in SOURCES {
        let folder = module_folder(&root, module)?.join(under);
        for group in folders(&folder)? {
            for version in folders(&group)? {
                read(&version, &mut table)
                    .with_context(|| format!("cannot read {}", version.display()))?;
            }
        }
    }
    let mut text = format!(
        "# Written by `cargo xtask apis` from the Go modules {} of Kubernetes {version}.\n\
         # group\tversion\tkind\tintroduced\tdeprecated\tremoved\treplacement\tscope\n",
        SOURCES
            .iter()
            .map(|(module, _)| *module)
            .collect::<Vec<_>>()
            .join(", ")
    );
    for ((group, version, kind), life) in &table {
        let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        let _ = writeln!(
            text,
            "{group}\t{version}\t{kind}\t{}\t{}\t{}\t{}\t{}",
            or(&life.introduced),
            or(&life.deprecated),
            or(&life.removed),
            or(&life.replacement),
            if life.cluster {
                "Cluster"
            } else {
                "Namespaced"
            },
        );
    }
    std::fs::write(root.join(TABLE), text).with_context(|| format!("cannot write {TABLE}"))?;
    println!("{TABLE}: {} APIs", table.len());
    Ok(())
}

/// Returns a message if the version of Kubernetes in the table differs from the version that the
/// tests build, else `None`. Does not read the sources.
pub(crate) fn stale() -> Result<Option<String>> {
    let root = root()?;
    let text = std::fs::read_to_string(root.join(TABLE))
        .with_context(|| format!("cannot read {TABLE}"))?;
    let version = pinned(&root)?;
    let fresh = text
        .lines()
        .next()
        .is_some_and(|line| line.ends_with(&format!(" of Kubernetes {version}.")));
    Ok((!fresh).then(|| format!("{TABLE} is not of Kubernetes {version}: run `cargo xtask apis`")))
}

/// Returns the version of Kubernetes that the tests build, such as `1.36.3`.
pub(crate) fn version() -> Result<String> {
    pinned(&root()?)
}

/// Returns the root of the repository.
pub(crate) fn root() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .context("xtask is in the repository")
}

/// Returns the version of k8s.io/api in the tools' go.mod.
fn pinned(root: &Path) -> Result<String> {
    let path = root.join(TOOLS).join("go.mod");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/api => k8s.io/api v0."))
        .map(|rest| format!("1.{rest}"))
        .with_context(|| format!("{} does not pin k8s.io/api", path.display()))
}

fn module_folder(root: &Path, module: &str) -> Result<PathBuf> {
    let go = |arguments: &[&str]| -> Result<String> {
        let output = Command::new("go")
            .args(arguments)
            .current_dir(root.join(TOOLS))
            .output()
            .context("cannot start go")?;
        if !output.status.success() {
            bail!(
                "`go {}` failed: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8(output.stdout)?)
    };
    go(&["mod", "download", module])?;
    Ok(go(&["list", "-m", "-f", "{{.Dir}}", module])?.trim().into())
}

fn folders(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.insert(entry.path());
        }
    }
    Ok(found)
}

type Table = BTreeMap<(String, String, String), ApiLifecycle>;

/// Reads a folder `GROUP/VERSION` if it has types.
fn read(folder: &Path, table: &mut Table) -> Result<()> {
    let types = folder.join("types.go");
    let register = folder.join("register.go");
    if !(types.exists() && register.exists()) {
        return Ok(());
    }
    let register = std::fs::read_to_string(register)?;
    let Some(group) = register.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("const GroupName = \"")?;
        rest.strip_suffix('"')
    }) else {
        return Ok(());
    };
    let group = if group.is_empty() { "core" } else { group };
    let version = folder
        .file_name()
        .and_then(|name| name.to_str())
        .context("a folder without a name")?;
    let mut lives = kinds(&std::fs::read_to_string(types)?);
    let lifecycle = folder.join("zz_generated.prerelease-lifecycle.go");
    if lifecycle.exists() {
        lifecycles(&std::fs::read_to_string(lifecycle)?, &mut lives)?;
    }
    for (kind, life) in lives {
        table.insert((group.to_owned(), version.to_owned(), kind), life);
    }
    Ok(())
}

/// Returns the kinds with a generated client. API servers serve exactly these kinds. Markers are in
/// the comments before the type.
fn kinds(types: &str) -> BTreeMap<String, ApiLifecycle> {
    let mut found = BTreeMap::new();
    let (mut client, mut cluster) = (false, false);
    for line in types.lines() {
        match line.trim() {
            "// +genclient" => client = true,
            "// +genclient:nonNamespaced" => cluster = true,
            _ => {}
        }
        let Some(name) = line
            .strip_prefix("type ")
            .and_then(|rest| rest.strip_suffix(" struct {"))
        else {
            continue;
        };
        if client {
            found.insert(
                name.to_owned(),
                ApiLifecycle {
                    cluster,
                    ..ApiLifecycle::default()
                },
            );
        }
        (client, cluster) = (false, false);
    }
    found
}

/// Parses `func (in *Kind) APILifecycleRemoved() (major, minor int) {` and the next line.
fn lifecycles(text: &str, lives: &mut BTreeMap<String, ApiLifecycle>) -> Result<()> {
    let mut source = text.lines();
    while let Some(line) = source.next() {
        let Some((kind, rest)) = line
            .strip_prefix("func (in *")
            .and_then(|rest| rest.split_once(") APILifecycle"))
        else {
            continue;
        };
        let Some(life) = lives.get_mut(kind) else {
            continue;
        };
        let body = source.next().context("a function without a body")?.trim();
        let minor = || {
            let numbers = body.strip_prefix("return ").context("not a version")?;
            anyhow::Ok(Some(numbers.replace(", ", ".")))
        };
        match rest.split_once('(').map(|(name, _)| name) {
            Some("Introduced") => life.introduced = minor()?,
            Some("Deprecated") => life.deprecated = minor()?,
            Some("Removed") => life.removed = minor()?,
            Some("Replacement") => {
                let quoted: Vec<&str> = body.split('"').skip(1).step_by(2).collect();
                let [group, version, kind] = quoted[..] else {
                    bail!("not a replacement: {body}");
                };
                // One `Replacement` in the sources names the list type instead of the kind.
                let kind = kind.strip_suffix("List").unwrap_or(kind);
                life.replacement = Some(if group.is_empty() {
                    format!("{version}/{kind}")
                } else {
                    format!("{group}/{version}/{kind}")
                });
            }
            _ => {}
        }
    }
    Ok(())
}
