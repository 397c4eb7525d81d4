//! Writes the fixtures for unit tests of signatures. cosign 3 and cosign 2 create the signatures,
//! with keys and with certificates of a local Sigstore instance. The README in the target folder
//! describes each file.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::sigstore::{Clocks, Sigstore, person, workflow};
use crate::{Registry, Tool, ToolEnvironment, bundles};

/// Difference between the clocks of the certificate authority and the log, in seconds. Certificates
/// are valid for less than one hour, so they have expired at the time of the log entry.
const LATE: i64 = 3600;

/// Replaces the fixtures in `target`.
pub async fn write(target: &Path) -> Result<()> {
    let bench = ToolEnvironment::new()?;
    let maker = Maker {
        sigstore: bench.sigstore().await?,
        registry: bench.registry().await?,
        bench,
        target,
    };
    fs_err::create_dir_all(target)?;
    maker.make().await
}

struct Maker<'a> {
    bench: ToolEnvironment,
    sigstore: Sigstore,
    registry: Registry,
    target: &'a Path,
}

impl Maker<'_> {
    async fn make(&self) -> Result<()> {
        let bundle = self.bench.folder().join("bundle");
        bundles::greeting(&bundle, "1.0.0", None)?;
        let pushed = self
            .bench
            .plugin()
            .await?
            .args(["push", "bundle", &self.registry.reference("greeting:1.0.0")])
            .output()
            .await?
            .success()?;
        let pinned = pushed.trim();
        let (_, digest) = pinned.split_once('@').context("`push` printed no digest")?;
        self.keep("subject.txt", format!("{digest}\n"))?;
        self.keep(
            "trusted_root.json",
            fs_err::read(self.sigstore.trusted_root())?,
        )?;
        let untimed = self.bench.folder().join("untimed.json");
        fs_err::write(&untimed, without_timestamps(&self.sigstore)?)?;
        let timed = self.sigstore.signing_config();

        let identity = self.identity(&person("ana@example.com")).await?;
        self.cosign3(pinned, &identity, &timed, "person").await?;
        let identity = self.identity(&workflow()).await?;
        self.cosign3(pinned, &identity, &timed, "workflow").await?;
        self.cosign3(pinned, &identity, &untimed, "untimed").await?;
        self.cosign2(pinned, digest, &identity, "legacy-workflow")
            .await?;
        let clocks = Clocks {
            log: LATE,
            ..Clocks::default()
        };
        self.sigstore.set_clocks(clocks).await?;
        self.cosign3(pinned, &identity, &untimed, "late").await?;
        self.sigstore.set_clocks(Clocks::default()).await?;

        self.run(Tool::Cosign2, &["generate-key-pair".to_owned()])
            .await?;
        let key = ["--key", "cosign.key"].map(ToOwned::to_owned);
        self.keep(
            "key.pub",
            fs_err::read(self.bench.folder().join("cosign.pub"))?,
        )?;
        self.cosign3(pinned, &key, &timed, "key").await?;
        self.cosign2(pinned, digest, &key, "legacy-key").await?;
        self.tiled(pinned, &key).await
    }

    /// Writes the fixtures for Rekor v2 into the folder `tiled`. Their trust root contains the
    /// Rekor v1 log and the Rekor v2 log.
    async fn tiled(&self, pinned: &str, key: &[String]) -> Result<()> {
        let log = self.bench.tiled_log(&self.sigstore).await?;
        let config = log.signing_config();
        fs_err::create_dir_all(self.target.join("tiled"))?;
        self.keep("tiled/trusted_root.json", fs_err::read(log.trusted_root())?)?;
        let identity = self.identity(&person("ana@example.com")).await?;
        self.cosign3(pinned, &identity, &config, "tiled/person")
            .await?;
        let identity = self.identity(&workflow()).await?;
        self.cosign3(pinned, &identity, &config, "tiled/workflow")
            .await?;
        self.keep(
            "tiled/key.pub",
            fs_err::read(self.bench.folder().join("cosign.pub"))?,
        )?;
        self.cosign3(pinned, key, &config, "tiled/key").await?;
        let clocks = Clocks {
            ca: -LATE,
            ..Clocks::default()
        };
        self.sigstore.set_clocks(clocks).await?;
        self.cosign3(pinned, &identity, &config, "tiled/late")
            .await?;
        self.sigstore.set_clocks(Clocks::default()).await?;

        // cosign signs the manifest as a file. The Sigstore bundle contains the signature of this
        // file, and no DSSE envelope.
        let manifest = self
            .run(Tool::Crane, &["manifest".to_owned(), pinned.to_owned()])
            .await?;
        let subject = self.bench.folder().join("manifest.json");
        fs_err::write(&subject, manifest)?;
        let file = self.target.join("tiled/message.bundle.json");
        let mut line = vec!["sign-blob".to_owned()];
        line.extend_from_slice(&identity);
        line.extend(["--signing-config".to_owned(), config.display().to_string()]);
        line.extend(["--bundle".to_owned(), file.display().to_string()]);
        line.extend(["-y".to_owned(), subject.display().to_string()]);
        self.run(Tool::Cosign3, &line).await.map(drop)
    }

    /// Returns the flags of cosign for an identity token with these claims.
    async fn identity(&self, claims: &Value) -> Result<[String; 2]> {
        let token = self.sigstore.token_file(claims).await?;
        Ok(["--identity-token".to_owned(), token.display().to_string()])
    }

    /// Signs with cosign 3, and writes the Sigstore bundle into the target folder.
    async fn cosign3(
        &self,
        pinned: &str,
        identity: &[String],
        config: &Path,
        name: &str,
    ) -> Result<()> {
        let file = self.target.join(format!("{name}.bundle.json"));
        let mut line = vec!["sign".to_owned()];
        line.extend_from_slice(identity);
        line.extend(["--signing-config".to_owned(), config.display().to_string()]);
        line.extend(["--bundle".to_owned(), file.display().to_string()]);
        line.extend(["--upload=false", "--allow-http-registry", "-y", pinned].map(str::to_owned));
        self.run(Tool::Cosign3, &line).await?;
        let bundle: Value = serde_json::from_slice(&fs_err::read(&file)?)?;
        fs_err::write(&file, format!("{bundle}\n"))?;
        Ok(())
    }

    /// Signs with cosign 2. Copies the manifest of the `.sig` tag and the payload of the signature
    /// into the target folder.
    async fn cosign2(
        &self,
        pinned: &str,
        digest: &str,
        identity: &[String],
        name: &str,
    ) -> Result<()> {
        // Each version of cosign has its own repository. Otherwise both versions would write to the
        // same repository.
        let repository = self.registry.reference(&format!("signatures/{name}"));
        let mut line = vec!["sign".to_owned()];
        line.extend_from_slice(identity);
        let url = self.sigstore.url();
        line.extend(["--fulcio-url", url, "--rekor-url", url].map(str::to_owned));
        line.extend(["--allow-http-registry", "-y", pinned].map(str::to_owned));
        let cosign = self.bench.tool(Tool::Cosign2).await?;
        self.sigstore
            .cosign2_environment()
            .into_iter()
            .fold(cosign, |command, (name, path)| command.env(name, path))
            .args(&line)
            .env("COSIGN_PASSWORD", "fixture")
            .env("COSIGN_REPOSITORY", &repository)
            .output()
            .await?
            .success()?;
        let tag = format!("{repository}:{}.sig", digest.replace(':', "-"));
        let manifest = self.run(Tool::Crane, &["manifest".to_owned(), tag]).await?;
        let document: Value = serde_json::from_str(&manifest)?;
        let layer = document["layers"][0]["digest"]
            .as_str()
            .context("cosign 2 wrote no layer")?;
        let blob = format!("{repository}@{layer}");
        let payload = self.run(Tool::Crane, &["blob".to_owned(), blob]).await?;
        self.keep(&format!("{name}.manifest.json"), manifest)?;
        self.keep(&format!("{name}.payload.json"), payload)
    }

    async fn run(&self, tool: Tool, line: &[String]) -> Result<String> {
        self.bench
            .tool(tool)
            .await?
            .args(line)
            .env("COSIGN_PASSWORD", "fixture")
            .output()
            .await?
            .success()
    }

    fn keep(&self, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
        Ok(fs_err::write(self.target.join(name), content)?)
    }
}

/// Returns the signing config without timestamp authorities. Only the log entry then confirms the
/// time of a signature.
fn without_timestamps(sigstore: &Sigstore) -> Result<String> {
    let mut config: Value = serde_json::from_slice(&fs_err::read(sigstore.signing_config())?)?;
    let fields = config
        .as_object_mut()
        .context("the signing configuration is no object")?;
    fields.remove("tsaUrls");
    fields.remove("tsaConfig");
    Ok(config.to_string())
}
