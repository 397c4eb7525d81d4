//! The Helm chart of the pod as an archive, and its copy in a registry. Helm packs and pushes the
//! chart.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use bundle_core::reference::Digest;

/// Name of the chart.
const NAME: &str = "bundle-webhook";

/// Packs the chart into `target`, and returns the path of the archive. The function `helm` runs
/// Helm with the given arguments, and returns standard output and standard error.
pub async fn pack(
    target: &Path,
    helm: impl AsyncFn(Vec<String>) -> Result<String>,
) -> Result<PathBuf> {
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts");
    let folder = text(&charts.join(NAME))?;
    helm(words(&[
        "package",
        &folder,
        "--destination",
        &text(target)?,
    ]))
    .await?;
    Ok(target.join(format!("{NAME}-{}.tgz", env!("CARGO_PKG_VERSION"))))
}

/// Pushes `archive` to a folder of a registry, such as `registry.example.com/charts`, and returns
/// the pinned reference. The repository has the name of the chart, and the tag is the version of
/// the chart. `flags` are additional flags of `helm push`. The function `helm` runs Helm as for
/// [`pack`].
pub async fn push(
    archive: &Path,
    folder: &str,
    flags: &[String],
    helm: impl AsyncFn(Vec<String>) -> Result<String>,
) -> Result<String> {
    let mut arguments = words(&["push", &text(archive)?, &format!("oci://{folder}")]);
    arguments.extend_from_slice(flags);
    let digest = pushed_digest(&helm(arguments).await?)?;
    Ok(format!("{folder}/{NAME}@{digest}"))
}

/// Returns the digest in the output of `helm push`.
fn pushed_digest(output: &str) -> Result<Digest> {
    let mut lines = output.lines();
    let digest: Option<Digest> =
        lines.find_map(|line| line.strip_prefix("Digest: ")?.trim().parse().ok());
    digest.with_context(|| format!("`helm push` printed no digest: {output}"))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn text(path: &Path) -> Result<String> {
    let text = path.to_str();
    Ok(text
        .with_context(|| format!("`{}` is no UTF-8", path.display()))?
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_read_from_the_output_of_helm() {
        let digest = Digest::of(b"chart");
        let output = format!("Pushed: registry.example.com/charts/web:0.1.0\nDigest: {digest}\n");
        assert_eq!(pushed_digest(&output).unwrap(), digest);
        assert!(pushed_digest("Digest: sha256:short\n").is_err());
        assert!(pushed_digest("").is_err());
    }
}
