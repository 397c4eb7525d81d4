//! Image of bundle-webhook: a static program and certificate authorities, without a distribution.
//! The full image also has the external programs for charts and git repositories.
//! The C library is static glibc, because its allocator returns freed memory to the system, and
//! Debian has cross-compilers for both platforms.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use bundle_oci::pack::PackedImage;
use serde_json::json;

use super::external::{ExternalPrograms, SEARCH_PATH, inside, libraries_of};
use super::{ImageEntry, ImagePlan, Platform};
use crate::host::packages;
use crate::programs::{self, has_interpreter};

/// Name of the package and of the program.
const NAME: &str = "bundle-webhook";
const TITLE: &str = "org.opencontainers.image.title";
/// Certificate authorities of Debian and its derivatives, for public registries.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// User and group that the chart sets for the pod.
const USER: &str = "65532:65532";

/// A static program to build.
#[derive(Debug, Clone)]
pub struct StaticBuild {
    /// Platform of the program.
    pub platform: Platform,
    /// Cargo's name of the profile.
    pub profile: String,
}

/// Content of the image of bundle-webhook.
#[derive(Debug, Clone)]
pub struct WebhookImage {
    /// The static program.
    pub program: PathBuf,
    /// Platform of the program.
    pub platform: Platform,
    /// Certificate authorities (PEM) that the program trusts for registries.
    pub authorities: PathBuf,
    /// Commit of the sources; `None` if it is unknown.
    pub revision: Option<String>,
    /// Shared libraries, at the paths that they have on this machine. A static program has no
    /// shared libraries.
    pub libraries: Vec<PathBuf>,
    /// Programs for charts and git repositories; `None` for the image without these programs.
    pub external: Option<ExternalPrograms>,
}

impl WebhookImage {
    /// Returns the image of `program` with the certificate authorities of this machine.
    pub fn new(program: PathBuf, platform: Platform) -> Self {
        Self {
            program,
            platform,
            authorities: AUTHORITIES.into(),
            revision: None,
            libraries: Vec::new(),
            external: None,
        }
    }

    /// Returns the tag of the image for the version of this project.
    pub fn tag(&self) -> String {
        let suffix = if self.external.is_some() { "-full" } else { "" };
        format!("{}{suffix}", env!("CARGO_PKG_VERSION"))
    }

    /// Returns the image of the program that scenarios run as a process, with the shared libraries
    /// of the program. A static program would require another build.
    pub fn of_scenarios(program: PathBuf) -> Result<Self> {
        let libraries = libraries_of(&program)?;
        let mut image = Self::new(program, Platform::of_this_machine()?);
        image.libraries = libraries;
        Ok(image)
    }

    /// Packs the image.
    pub fn pack(&self) -> Result<PackedImage> {
        let mut about = BTreeMap::from([
            (TITLE, NAME.to_owned()),
            (
                "org.opencontainers.image.description",
                "Admission for bundles, and the reconciler that installs them".to_owned(),
            ),
            (
                "org.opencontainers.image.version",
                env!("CARGO_PKG_VERSION").to_owned(),
            ),
            (
                "org.opencontainers.image.licenses",
                match self.external {
                    // `LicenseRef-Debian` refers to the licence files of Debian's packages in the
                    // image.
                    Some(_) => "Apache-2.0 AND GPL-2.0-only AND LicenseRef-Debian",
                    None => "Apache-2.0",
                }
                .to_owned(),
            ),
        ]);
        if let Some(revision) = &self.revision {
            about.insert("org.opencontainers.image.revision", revision.clone());
        }
        let about: BTreeMap<String, String> = about
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        let mut entries = BTreeMap::from([
            (NAME.to_owned(), ImageEntry::Program(self.program.clone())),
            (
                inside(Path::new(AUTHORITIES)),
                ImageEntry::File(self.authorities.clone()),
            ),
        ]);
        for library in &self.libraries {
            entries.insert(inside(library), ImageEntry::Program(library.clone()));
        }
        let mut config = json!({
            "Entrypoint": [format!("/{NAME}")],
            "User": USER,
            "ExposedPorts": { "9443/tcp": {}, "8080/tcp": {} },
            "Labels": about,
        });
        if let Some(external) = &self.external {
            config["Env"] = json!([format!("PATH={SEARCH_PATH}")]);
            entries.extend(external.entries().clone());
        }
        let plan = ImagePlan {
            entries,
            platform: self.platform,
            config,
            annotations: about,
        };
        plan.pack()
    }
}

/// Builds bundle-webhook as a static program, and returns its path.
pub fn build_webhook(build: &StaticBuild) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("this package has no workspace")?;
    let target = build.platform.target();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(["build", "--locked", "--package", NAME])
        .args(["--profile", &build.profile, "--target", &target])
        .arg("--message-format=json-render-diagnostics")
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", flags(root).join("\x1f"));
    if build.platform != Platform::of_this_machine()? {
        let compiler = build.platform.cross_compiler();
        packages::ensure(&[compiler])?;
        add_target(&target)?;
        let variable = target.to_uppercase().replace('-', "_");
        command
            .env(format!("CARGO_TARGET_{variable}_LINKER"), compiler.name())
            .env(format!("CC_{}", target.replace('-', "_")), compiler.name());
    }
    eprintln!(
        "image: building {NAME} for {} ({}), linked statically",
        build.platform, build.profile
    );
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start cargo, which builds {NAME}"))?;
    if !output.status.success() {
        bail!("cargo could not build {NAME} for {target}");
    }
    let program = programs::executable(&String::from_utf8_lossy(&output.stdout), NAME)?;
    ensure_static(&program)?;
    Ok(program)
}

/// Installs the standard library of Rust for `target`, if rustup manages the compiler.
pub(crate) fn add_target(target: &str) -> Result<()> {
    if !packages::answers("rustup") {
        return Ok(());
    }
    let status = Command::new("rustup")
        .args(["--quiet", "target", "add", target])
        .stdin(Stdio::null())
        .status()
        .context("cannot start rustup")?;
    if !status.success() {
        bail!(
            "rustup could not install the standard library for {target}\n\
             hint: run `rustup target add {target}` for the reason"
        );
    }
    Ok(())
}

/// Returns the flags of rustc: static, without symbols, and without the paths of this machine.
/// Relative relocations are packed, because the loader of a static program reads all relocations
/// at the start, and the pages that it reads stay in memory.
fn flags(root: &Path) -> Vec<String> {
    let mut flags: Vec<String> = [
        "-C",
        "target-feature=+crt-static",
        "-C",
        "link-arg=-Wl,-z,pack-relative-relocs",
    ]
    .map(ToOwned::to_owned)
    .into();
    flags.extend(path_flags(root));
    flags
}

/// Returns flags of rustc that remove symbols and the paths of this machine from a program.
pub(crate) fn path_flags(root: &Path) -> Vec<String> {
    let mut flags: Vec<String> = ["-C", "strip=symbols"].map(ToOwned::to_owned).into();
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| {
            let home = std::env::var_os("HOME")?;
            Some(PathBuf::from(home).join(".cargo"))
        });
    let root = (Some(root.to_owned()), "/src");
    for (folder, name) in [root, (home, "/cargo")] {
        flags.extend(
            folder.map(|folder| format!("--remap-path-prefix={}={name}", folder.display())),
        );
    }
    flags
}

/// Fails if the program names an interpreter, which loads shared libraries, because the image
/// contains no shared libraries.
fn ensure_static(program: &Path) -> Result<()> {
    if has_interpreter(&fs_err::read(program)?)? {
        bail!("{} is linked dynamically", program.display());
    }
    Ok(())
}
