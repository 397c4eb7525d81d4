//! Publishing of images: copied to a registry, signed and attested with the plugin.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bundle_core::reference::Digest;
use serde_json::Value;

use super::{BillOfMaterials, ImageSet, Platform, Provenance, sorted};

/// Statements about images, as files for `kubectl bundle attest`.
#[derive(Debug, Clone, Default)]
pub struct Attestations {
    statements: Vec<Statement>,
}

/// A statement about an image: the digest of the image, and the file with the predicate.
#[derive(Debug, Clone)]
struct Statement {
    /// Digest of the image.
    subject: Digest,
    /// Value of the flag `--type` of `kubectl bundle attest`.
    kind: &'static str,
    /// File with the predicate.
    file: PathBuf,
}

impl Attestations {
    /// Writes the bill of materials of each image in SPDX and CycloneDX into `folder`. Also writes
    /// the provenance of all images, if there is one. `created` is the time of the commit, which
    /// the SPDX documents contain.
    pub fn write(
        folder: &Path,
        set: &ImageSet,
        bills: &[(Platform, BillOfMaterials)],
        created: &str,
        provenance: Option<&Provenance>,
    ) -> Result<Self> {
        fs_err::create_dir_all(folder)?;
        let mut written = Self::default();
        for (platform, bill) in bills {
            let digest = set
                .digest_of(*platform)
                .with_context(|| format!("there is no image for {platform}"))?;
            let architecture = platform.architecture();
            written.add(
                digest,
                "spdxjson",
                folder.join(format!("linux-{architecture}.spdx.json")),
                bill.to_spdx(created, digest.hex()),
            )?;
            written.add(
                digest,
                "cyclonedx",
                folder.join(format!("linux-{architecture}.cdx.json")),
                bill.to_cyclonedx(),
            )?;
        }
        if let Some(provenance) = provenance {
            let file = folder.join("provenance.json");
            let digest = set.digest();
            written.add(&digest, "slsaprovenance1", file, provenance.predicate())?;
        }
        Ok(written)
    }

    fn add(
        &mut self,
        subject: &Digest,
        kind: &'static str,
        file: PathBuf,
        predicate: Value,
    ) -> Result<()> {
        fs_err::write(&file, sorted(predicate))?;
        self.statements.push(Statement {
            subject: subject.clone(),
            kind,
            file,
        });
        Ok(())
    }
}

/// Copies the layout at `layout` to `reference`, signs the index and each image, and attests
/// `attestations`. `signer` contains the flags of the signer, for example `--key release.key`.
/// `plugin` runs `kubectl bundle` with arguments and returns its output. Returns the pinned
/// reference.
pub async fn publish(
    layout: &Path,
    set: &ImageSet,
    reference: &str,
    attestations: &Attestations,
    signer: &[String],
    plugin: impl AsyncFn(Vec<String>) -> Result<String>,
) -> Result<String> {
    let path = |path: &Path| -> Result<String> {
        let text = path.to_str();
        Ok(text
            .with_context(|| format!("`{}` is no UTF-8", path.display()))?
            .to_owned())
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let copy: Vec<String> = words(&["copy", &path(layout)?, reference]);
    let pinned = plugin(copy).await?.trim().to_owned();
    let (repository, digest) = pinned
        .rsplit_once('@')
        .with_context(|| format!("`copy` printed no pinned reference: {pinned}"))?;
    ensure!(
        digest == set.digest().to_string(),
        "the registry has {digest} and not {}",
        set.digest()
    );
    let with_signer = |mut arguments: Vec<String>| {
        arguments.extend_from_slice(signer);
        arguments
    };
    for digest in set.digests() {
        let subject = format!("{repository}@{digest}");
        plugin(with_signer(words(&["sign", &subject]))).await?;
    }
    for statement in &attestations.statements {
        let subject = format!("{repository}@{}", statement.subject);
        let file = path(&statement.file)?;
        let attest = words(&[
            "attest",
            &subject,
            "--type",
            statement.kind,
            "--predicate",
            &file,
        ]);
        plugin(with_signer(attest)).await?;
    }
    Ok(pinned)
}
