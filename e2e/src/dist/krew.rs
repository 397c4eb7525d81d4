//! krew: the manifest of the plugin, the folder of a custom index, and their validation with krew's
//! own `validate-krew-manifest`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::content::LICENSE;
use super::{Archive, DistPlatform, THIRD_PARTY};
use crate::image::sort;
use crate::tools::{self, Tool};

/// Name of the plugin, and of the manifest without `.yaml`.
const NAME: &str = "bundle";
/// Short description. In its lists, krew shows only the first 50 characters.
const SHORT_DESCRIPTION: &str = "Package, sign, ship and deploy manifests";
const DESCRIPTION: &str = "\
Packages Kubernetes manifests as OCI artifacts, signs and verifies them with
cosign's formats, checks them against a cluster before they are applied, and
deploys them as BundleDeployments of bundle-webhook.
";
const CAVEATS: &str = "\
To complete `kubectl bundle` in shells that complete kubectl, run:
  kubectl bundle completion install
Verbs for deployments need bundle-webhook in the cluster:
  kubectl bundle install --wait
";

/// Input of a krew manifest.
#[derive(Debug, Clone)]
pub struct KrewManifest<'a> {
    /// Version without `v`.
    pub version: &'a str,
    /// Page of the project.
    pub homepage: &'a str,
    /// URL of the folder that contains the archives.
    pub download: &'a str,
    /// Archives. There is at most one archive for each platform.
    pub archives: &'a [Archive],
}

impl KrewManifest<'_> {
    /// Returns the manifest as YAML.
    pub fn to_yaml(&self) -> String {
        let download = self.download.trim_end_matches('/');
        let platforms: Vec<Value> = self
            .archives
            .iter()
            .map(|archive| {
                let platform = archive.platform;
                let licenses = format!("{THIRD_PARTY}/*");
                let files = [
                    json!({ "from": platform.program(), "to": "." }),
                    json!({ "from": LICENSE, "to": "." }),
                    json!({ "from": licenses, "to": THIRD_PARTY }),
                ];
                json!({
                    "selector": {
                        "matchLabels": { "os": platform.os(), "arch": platform.architecture() },
                    },
                    "uri": format!("{download}/{}", archive.name),
                    "sha256": archive.sha256,
                    "bin": platform.program(),
                    "files": files,
                })
            })
            .collect();
        let manifest = json!({
            "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
            "kind": "Plugin",
            "metadata": { "name": NAME },
            "spec": {
                "version": format!("v{}", self.version),
                "homepage": self.homepage,
                "shortDescription": SHORT_DESCRIPTION,
                "description": DESCRIPTION,
                "caveats": CAVEATS,
                "platforms": platforms,
            },
        });
        bundle_core::yaml::to_string(&sort(manifest))
    }

    /// Writes the manifest into the folder of a custom index, and returns its path.
    pub fn write(&self, index: &Path) -> Result<PathBuf> {
        let folder = index.join("plugins");
        fs_err::create_dir_all(&folder)?;
        let file = folder.join(format!("{NAME}.yaml"));
        fs_err::write(&file, self.to_yaml())?;
        Ok(file)
    }
}

/// Returns an error if `platforms` does not contain all platforms. The error names the missing
/// platforms.
pub fn require_all_platforms(platforms: &[DistPlatform]) -> Result<()> {
    let missing: Vec<String> = DistPlatform::ALL
        .into_iter()
        .filter(|platform| !platforms.contains(platform))
        .map(|platform| platform.to_string())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "the krew manifest would have no archive for {}, so users of these platforms could not install the plugin\n\
         hint: build these platforms too, or add --allow-missing",
        missing.join(", ")
    )
}

/// Fails if krew's own rules reject the manifest. The archives are not downloaded.
pub fn validate(manifest: &Path) -> Result<()> {
    let program = tools::path(Tool::ValidateKrewManifest, None)?;
    let output = Command::new(program)
        .args(["-skip-install", "-manifest"])
        .arg(manifest)
        .output()
        .context("cannot start validate-krew-manifest")?;
    ensure!(
        output.status.success(),
        "krew rejects {}:\n{}",
        manifest.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_fit_the_lists_of_krew() {
        // https://krew.sigs.k8s.io/docs/developer-guide/develop/best-practices/ and the reviews of
        // krew-index require at most 50 characters for the short description, and lines of at most
        // 80 characters.
        assert!(SHORT_DESCRIPTION.len() <= 50);
        assert!(!SHORT_DESCRIPTION.ends_with('.'));
        for line in DESCRIPTION.lines().chain(CAVEATS.lines()) {
            assert!(line.len() <= 80, "{line}");
        }
    }

    #[test]
    fn manifest_names_archives_with_their_checksums() {
        let archive = |platform: DistPlatform| Archive {
            platform,
            name: platform.archive("1.2.3"),
            sha256: "ab".repeat(32),
        };
        let archives = [
            archive(DistPlatform::LinuxAmd64),
            archive(DistPlatform::WindowsArm64),
        ];
        let manifest = KrewManifest {
            version: "1.2.3",
            homepage: "https://example.com/project",
            download: "https://example.com/v1.2.3/",
            archives: &archives,
        };
        let yaml = manifest.to_yaml();
        for line in [
            "  version: v1.2.3\n",
            "uri: https://example.com/v1.2.3/kubectl-bundle-v1.2.3-linux-amd64.tar.gz\n",
            "uri: https://example.com/v1.2.3/kubectl-bundle-v1.2.3-windows-arm64.zip\n",
            "bin: kubectl-bundle.exe\n",
            "os: windows\n",
        ] {
            assert!(yaml.contains(line), "{line}: {yaml}");
        }
        let error = require_all_platforms(&[DistPlatform::LinuxAmd64]).unwrap_err();
        assert!(
            error.to_string().starts_with(
                "the krew manifest would have no archive for linux/arm64, darwin/amd64, darwin/arm64, windows/amd64, windows/arm64,"
            ),
            "{error}"
        );
        require_all_platforms(&DistPlatform::ALL).unwrap();
    }
}
