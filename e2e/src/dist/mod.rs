//! Files of a release of the plugin. There is one archive for each platform, with licences,
//! completion scripts and man pages. There are also checksums, a krew manifest, signatures and
//! provenance. The same input produces the same bytes on every machine.

mod archive;
mod build;
mod content;
mod frameworks;
mod krew;
mod platform;
mod program;
mod sign;
mod third_party;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bundle_core::reference::Digest;

pub use archive::{ArchiveFile, ArchiveFiles};
pub use build::{BuiltProgram, build_plugin};
pub use content::ReleaseContent;
pub use krew::{KrewManifest, require_all_platforms, validate};
pub use platform::DistPlatform;
pub use sign::{Signatures, sign};
pub use third_party::RuntimeLicense;

/// Folder of an archive with the licences of the packages that the program is linked from.
const THIRD_PARTY: &str = "licenses";
/// File with the checksums of all archives, in the format of `sha256sum --check`.
const CHECKSUMS: &str = "SHA256SUMS";

/// An archive in the folder of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// Platform of the program in the archive.
    pub platform: DistPlatform,
    /// Name of the file.
    pub name: String,
    /// SHA-256 digest of the file, in hexadecimal.
    pub sha256: String,
}

impl Archive {
    /// Packs `program`, the licences of `program` and the files of `content` into an archive in
    /// `folder`.
    pub fn write(
        folder: &Path,
        root: &Path,
        content: &ReleaseContent,
        program: &BuiltProgram,
        version: &str,
    ) -> Result<Self> {
        let platform = program.platform;
        let mut files = content.files(platform.is_windows());
        let bytes = fs_err::read(&program.path)?;
        files.insert(platform.program().to_owned(), ArchiveFile::program(bytes));
        let licenses = third_party::third_party_licenses(
            root,
            build::PACKAGE,
            platform.target(),
            &program.runtime,
        )?;
        let licenses = ArchiveFile::text(licenses);
        files.insert(format!("{THIRD_PARTY}/third-party.txt"), licenses);
        let library = ArchiveFile::text(fs_err::read(rust_library_notices()?)?);
        files.insert(format!("{THIRD_PARTY}/rust-standard-library.html"), library);
        let packed = if platform.is_windows() {
            archive::zip(&files)?
        } else {
            archive::tar_gz(&files)?
        };
        fs_err::create_dir_all(folder)?;
        let name = platform.archive(version);
        fs_err::write(folder.join(&name), &packed)?;
        Ok(Self {
            platform,
            name,
            sha256: Digest::of(&packed).hex().to_owned(),
        })
    }
}

/// Writes the checksums of `archives` into `folder`.
pub fn write_checksums(folder: &Path, archives: &[Archive]) -> Result<()> {
    let mut lines = String::new();
    for archive in archives {
        writeln!(lines, "{}  {}", archive.sha256, archive.name)?;
    }
    fs_err::write(folder.join(CHECKSUMS), lines)?;
    Ok(())
}

/// Returns the notices of Rust's standard library, which come with the compiler.
fn rust_library_notices() -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--print", "sysroot"])
        .output()
        .context("cannot start rustc")?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let file = sysroot.join("share/doc/rust/COPYRIGHT-library.html");
    ensure!(
        file.is_file(),
        "the compiler has no {}, the licences of Rust's standard library\n\
         hint: install the compiler with rustup",
        file.display()
    );
    Ok(file)
}
