//! `cargo xtask image`: the container image of bundle-webhook for each platform, as an OCI layout.
//! `e2e::image` builds and packs.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use bundle_oci::pack::PackedImage;
use clap::Args;
use e2e::image::{ImageSet, Platform, StaticBuild, WebhookImage, build_webhook};

/// Images to build.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints the digest of the image on stdout. The same sources, compilers and certificate authorities give the same digest.

Examples:
  # an image for this machine's platform, and its copy in a registry:
  cargo xtask image --to target/image
  kubectl bundle copy target/image registry.example.com/bundle-webhook:0.1.0
  # both platforms; arm64 needs the packages gcc-aarch64-linux-gnu and libc6-dev-arm64-cross:
  cargo xtask image --platform amd64,arm64 --to target/image")]
pub(crate) struct Arguments {
    /// Platforms: amd64, arm64 [default: that of this machine]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    platform: Vec<Platform>,
    /// Cargo's profile of the program
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Folder for the OCI layout; an existing layout is replaced
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Certificate authorities (PEM) of the image, with which the program trusts registries
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
}

/// Builds, packs and writes the images.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut platforms = arguments.platform.clone();
    if platforms.is_empty() {
        platforms.push(Platform::of_this_machine()?);
    }
    platforms.sort();
    platforms.dedup();
    let revision = revision();
    let mut images: Vec<(Platform, PackedImage)> = Vec::new();
    for platform in platforms {
        let build = StaticBuild {
            platform,
            profile: arguments.profile.clone(),
        };
        let program = tokio::task::spawn_blocking(move || build_webhook(&build))
            .await
            .context("the thread that builds the program ended early")??;
        let mut image = WebhookImage::new(program, platform);
        image.revision.clone_from(&revision);
        if let Some(file) = &arguments.authorities {
            image.authorities.clone_from(file);
        }
        let packed = image.pack()?;
        eprintln!(
            "image: {platform}: {} ({:.1} MB compressed)",
            packed.digest,
            megabytes(packed.size())
        );
        images.push((platform, packed));
    }
    let set = ImageSet::new(images);
    set.write(&arguments.to, env!("CARGO_PKG_VERSION"))?;
    eprintln!("image: wrote {}", arguments.to.display());
    println!("{}", set.digest());
    Ok(())
}

fn megabytes(bytes: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "the size of an image, for people"
    )]
    let bytes = bytes as f64;
    bytes / 1e6
}

/// Returns the commit of the sources, if git knows it and no file differs from it.
fn revision() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let is_clean = git(&["status", "--porcelain"])?.is_empty();
    is_clean.then(|| git(&["rev-parse", "HEAD"]))?
}
