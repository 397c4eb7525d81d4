//! `cargo xtask dist`: archives of kubectl-bundle for each platform, with checksums, a krew
//! manifest, signatures and provenance. `e2e::dist` builds, checks and packs the programs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use e2e::dist::{
    Archive, DistPlatform, KrewManifest, ReleaseContent, build_plugin, require_all_platforms, sign,
    validate, write_checksums,
};

use super::{Commit, ProvenanceInput, SignerFlags, run_plugin};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Folder of the custom krew index.
const INDEX: &str = "krew-index";

/// Archives to build.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints the path of each archive on stdout. Programs for all platforms are built on linux/amd64, with Zig as C compiler and linker. Each program is checked: file type, architecture, imported libraries.

Examples:
  # one platform:
  cargo xtask dist --platform linux/amd64 --to target/archives
  # all platforms, signed, with provenance and a krew manifest:
  cargo xtask dist --to target/archives --key release.key --source https://example.com/team/kubectl-bundle \\
    --download https://example.com/team/kubectl-bundle/releases/download/v0.1.0")]
pub(crate) struct Arguments {
    /// Platforms: linux, darwin and windows, each /amd64 and /arm64 [default: all]
    #[arg(long, value_name = "OS/ARCH", value_delimiter = ',')]
    platform: Vec<DistPlatform>,
    /// Cargo's profile of the program
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Folder for the archives; existing files of the same names are replaced
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Write a krew manifest, and a custom index with this manifest. Users of the index download
    /// the archives from this folder
    #[arg(long, value_name = "URL", requires = "source")]
    download: Option<String>,
    /// Continue without the platforms that cannot be built, and write the krew manifest without
    /// missing platforms
    #[arg(long)]
    allow_missing: bool,
    /// URI of the source repository. It is the homepage in the krew manifest. With --key or
    /// --keyless, the SLSA provenance of each archive also contains this URI, and the working tree
    /// must have no changes
    #[arg(long, value_name = "URI")]
    source: Option<String>,
    /// URI of the builder in the provenance [default: SOURCE#local]
    #[arg(long, value_name = "URI", requires = "source")]
    builder: Option<String>,
    #[command(flatten)]
    signer: SignerFlags,
}

/// Builds and packs the archives, and signs the archives if a signer is set.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut platforms = arguments.platform.clone();
    if platforms.is_empty() {
        platforms = DistPlatform::ALL.to_vec();
    }
    platforms.sort();
    platforms.dedup();
    if let Some(download) = &arguments.download {
        ensure!(
            download.starts_with("https://"),
            "--download is no https URL: {download}"
        );
        if !arguments.allow_missing {
            require_all_platforms(&platforms)?;
        }
    }
    let root = crate::apis::root()?;
    let signer = arguments.signer.flags();
    let provenance = ProvenanceInput {
        command: "cargo-xtask-dist",
        source: arguments.source.as_deref().filter(|_| signer.is_some()),
        builder: arguments.builder.as_deref(),
        profile: &arguments.profile,
        platforms: platforms.iter().map(ToString::to_string).collect(),
    };
    let provenance = provenance.read(&root, Commit::of_sources().as_ref())?;
    let plugin = &e2e::programs::get().await?.plugin;
    let content = ReleaseContent::of(&root, plugin)?;
    let mut archives = Vec::new();
    for platform in platforms {
        let archive = pack(&root, arguments, &content, platform).await;
        match archive.with_context(|| format!("no archive for {platform}")) {
            Err(error) if arguments.allow_missing => eprintln!("dist: {error:#}"),
            archive => archives.push(archive?),
        }
    }
    ensure!(!archives.is_empty(), "no platform could be built");
    write_checksums(&arguments.to, &archives)?;
    if let (Some(download), Some(homepage)) = (&arguments.download, &arguments.source) {
        let manifest = KrewManifest {
            version: VERSION,
            homepage,
            download,
            archives: &archives,
        };
        let file = manifest.write(&arguments.to.join(INDEX))?;
        tokio::task::spawn_blocking({
            let file = file.clone();
            move || validate(&file)
        })
        .await
        .context("the thread that validates the krew manifest ended early")??;
        eprintln!("dist: wrote {}", file.display());
    }
    for archive in &archives {
        if let Some(signer) = &signer {
            let run = async |words: Vec<String>| run_plugin(plugin, &words);
            sign(&arguments.to, archive, provenance.as_ref(), signer, run).await?;
        }
        println!("{}", arguments.to.join(&archive.name).display());
    }
    Ok(())
}

/// Builds the program for a platform, and packs its archive.
async fn pack(
    root: &Path,
    arguments: &Arguments,
    content: &ReleaseContent,
    platform: DistPlatform,
) -> Result<Archive> {
    let (root, profile) = (root.to_owned(), arguments.profile.clone());
    let (content, to) = (content.clone(), arguments.to.clone());
    let work = move || {
        let program = build_plugin(&root, platform, &profile)?;
        Archive::write(&to, &root, &content, &program, VERSION)
    };
    tokio::task::spawn_blocking(work)
        .await
        .context("the thread that builds the program ended early")?
}
