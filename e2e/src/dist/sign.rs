//! Signatures and provenance of archives. The plugin writes both as files next to the archives.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Archive;
use crate::image::{Provenance, sorted};

/// Files with the signature and the provenance of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signatures {
    /// Sigstore bundle with the signature of the archive.
    pub signature: PathBuf,
    /// Sigstore bundle with the SLSA provenance of the archive; `None` without provenance.
    pub provenance: Option<PathBuf>,
}

/// Signs `archive` in `folder`, and attests `provenance`. `signer` contains the flags of the
/// signer, for example `--key release.key`. `plugin` runs `kubectl bundle` with arguments.
pub async fn sign(
    folder: &Path,
    archive: &Archive,
    provenance: Option<&Provenance>,
    signer: &[String],
    plugin: impl AsyncFn(Vec<String>) -> Result<String>,
) -> Result<Signatures> {
    let file = path(&folder.join(&archive.name))?;
    let run = async |words: &[&str]| {
        let mut arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        arguments.extend_from_slice(signer);
        plugin(arguments).await
    };
    let signature = format!("{file}.sigstore.json");
    run(&["sign", &file, "--bundle", &signature, "--force"]).await?;
    let mut attested = None;
    if let Some(provenance) = provenance {
        let predicate = folder.join("provenance.json");
        fs_err::write(&predicate, sorted(provenance.predicate()))?;
        let bundle = format!("{file}.provenance.sigstore.json");
        run(&[
            "attest",
            &file,
            "--bundle",
            &bundle,
            "--force",
            "--type",
            "slsaprovenance1",
            "--predicate",
            &path(&predicate)?,
        ])
        .await?;
        attested = Some(bundle.into());
    }
    Ok(Signatures {
        signature: signature.into(),
        provenance: attested,
    })
}

fn path(path: &Path) -> Result<String> {
    let text = path.to_str();
    Ok(text
        .with_context(|| format!("`{}` is no UTF-8", path.display()))?
        .to_owned())
}
