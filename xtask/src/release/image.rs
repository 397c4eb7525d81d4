//! `cargo xtask image`: the container image of bundle-webhook for each platform, as an OCI layout,
//! with bills of materials and provenance. `e2e::image` builds, packs and publishes the images.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use bundle_oci::pack::PackedImage;
use clap::Args;
use e2e::image::{
    Attestations, BillOfMaterials, ExternalPrograms, ImageSet, Platform, StaticBuild, WebhookImage,
    build_webhook, publish,
};

use super::{Commit, ProvenanceInput, SignerFlags, run_plugin};

/// Images to build.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints the digest of the image on stdout; with --push, its reference with the digest. The same sources, compilers and certificate authorities give the same digest.

Examples:
  # an image for this machine's platform, and its copy in a registry:
  cargo xtask image --to target/image
  kubectl bundle copy target/image registry.example.com/bundle-webhook:0.1.0
  # both platforms, signed, with bills of materials and provenance:
  cargo xtask image --platform amd64,arm64 --to target/image --attestations target/attestations \\
    --source https://example.com/team/kubectl-bundle --push registry.example.com/bundle-webhook:0.1.0 --key release.key")]
pub(crate) struct Arguments {
    /// Platforms: amd64, arm64 [default: the platform of this machine]. The compiler for another
    /// platform is installed with apt-get and rustup
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    platform: Vec<Platform>,
    /// Cargo's profile of the program
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Build the full image, which also contains helm for charts, and git and ssh for sources of
    /// type git; only for the platform of this machine, which must be Debian. The tag gets the
    /// suffix -full
    #[arg(long)]
    full: bool,
    /// Folder for the OCI layout; an existing layout is replaced
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Certificate authorities (PEM) of the image, with which the program trusts registries
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
    /// Folder for a bill of materials of each image (SPDX and CycloneDX) and, with --source, the
    /// SLSA provenance
    #[arg(long, value_name = "DIR")]
    attestations: Option<PathBuf>,
    /// URI of the source repository in the provenance. The working tree must have no changes
    #[arg(long, value_name = "URI", requires = "attestations")]
    source: Option<String>,
    /// Builder, for the provenance: a URI [default: SOURCE#local]
    #[arg(long, value_name = "URI", requires = "source")]
    builder: Option<String>,
    /// Copy the images to this reference, sign each image, and attest the files of --attestations
    #[arg(long, value_name = "REF", requires = "signer")]
    push: Option<String>,
    #[command(flatten)]
    signer: SignerFlags,
}

/// Builds, packs and writes the images, and publishes the images if `--push` is set.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    arguments.signer.require_push(arguments.push.is_some())?;
    let mut platforms = arguments.platform.clone();
    if platforms.is_empty() {
        platforms.push(Platform::of_this_machine()?);
    }
    platforms.sort();
    platforms.dedup();
    let root = crate::apis::root()?;
    let commit = Commit::of_sources();
    let provenance = ProvenanceInput {
        command: "cargo-xtask-image",
        source: arguments.source.as_deref(),
        builder: arguments.builder.as_deref(),
        profile: &arguments.profile,
        platforms: platforms.iter().map(ToString::to_string).collect(),
    };
    let provenance = provenance.read(&root, commit.as_ref())?;
    let external = if arguments.full {
        if platforms != [Platform::of_this_machine()?] {
            bail!("--full supports only the platform of this machine, whose programs are copied");
        }
        let programs = tokio::task::spawn_blocking(ExternalPrograms::of_this_machine).await;
        Some(programs.context("the thread that builds helm ended early")??)
    } else {
        None
    };
    let mut tag = String::new();
    let mut images: Vec<(Platform, PackedImage)> = Vec::new();
    for platform in &platforms {
        let build = StaticBuild {
            platform: *platform,
            profile: arguments.profile.clone(),
        };
        let program = tokio::task::spawn_blocking(move || build_webhook(&build))
            .await
            .context("the thread that builds the program ended early")??;
        let mut image = WebhookImage::new(program, *platform);
        image.external.clone_from(&external);
        tag = image.tag();
        image.revision = commit.as_ref().map(|commit| commit.hex.clone());
        if let Some(file) = &arguments.authorities {
            image.authorities.clone_from(file);
        }
        let packed = image.pack()?;
        eprintln!(
            "image: {platform}: {} ({:.1} MB compressed)",
            packed.digest,
            megabytes(packed.size())
        );
        images.push((*platform, packed));
    }
    let set = ImageSet::new(images);
    set.write(&arguments.to, &tag)?;
    eprintln!("image: wrote {}", arguments.to.display());
    let mut attestations = Attestations::default();
    if let Some(folder) = &arguments.attestations {
        let mut bills = Vec::new();
        for platform in platforms {
            let bill = BillOfMaterials::of(&root, "bundle-webhook", platform)?;
            eprintln!("image: {platform}: {} packages", bill.len());
            bills.push((platform, bill));
        }
        let created = commit
            .as_ref()
            .map_or("1970-01-01T00:00:00Z", |commit| &commit.time);
        attestations = Attestations::write(folder, &set, &bills, created, provenance.as_ref())?;
        eprintln!("image: wrote {}", folder.display());
    }
    let Some(reference) = &arguments.push else {
        println!("{}", set.digest());
        return Ok(());
    };
    let plugin = &e2e::programs::get().await?.plugin;
    let signer = arguments.signer.flags().unwrap_or_default();
    let pinned = publish(
        &arguments.to,
        &set,
        reference,
        &attestations,
        &signer,
        async |arguments| run_plugin(plugin, &arguments),
    )
    .await?;
    println!("{pinned}");
    Ok(())
}

fn megabytes(bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a size that is only printed")]
    let bytes = bytes as f64;
    bytes / 1e6
}
