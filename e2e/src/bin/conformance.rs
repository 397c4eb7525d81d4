//! Client protocol of the public Sigstore conformance suite (`sign-bundle`, `verify-bundle`),
//! implemented with the functions that `verify` and `sign` use. The arguments contain the URLs of
//! the services and the tokens, unlike in the product.
#![allow(
    clippy::print_stderr,
    reason = "a program for a test suite, which reads exit code and stderr"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bundle_core::policy::{AcceptedSigner, Identity, Matcher};
use bundle_core::reference::Digest;
use bundle_trust::keyless::{
    Ephemeral, Evidence, LogVersion, SigningConfig, SigningInput, Token, check_timestamp,
};
use bundle_trust::keys::PublicKey;
use bundle_trust::root::Root;
use bundle_trust::verify::{self, Content, TrustMaterial};
use clap::{Args, Parser};
use jiff::Timestamp;

const DEADLINE: Duration = Duration::from_secs(60);
const JSON: &str = "application/json";
/// Audience that Fulcio requires in tokens.
const AUDIENCE: &str = "sigstore";
const PUBLIC: (&str, &str) = ("https://fulcio.sigstore.dev", "https://rekor.sigstore.dev");
const STAGING: (&str, &str) = ("https://fulcio.sigstage.dev", "https://rekor.sigstage.dev");

/// Sign and verify files with the protocol of the Sigstore conformance suite.
#[derive(Parser)]
enum Line {
    /// Sign a file with a Fulcio certificate, and write the Sigstore bundle
    SignBundle(Sign),
    /// Verify a file, or sha256:DIGEST, with its bundle
    VerifyBundle(Verify),
}

#[derive(Args)]
struct Sign {
    /// Use the staging instance
    #[arg(long)]
    staging: bool,
    /// The file is an in-toto statement: sign it unchanged in a DSSE envelope
    #[arg(long)]
    in_toto: bool,
    /// Identity token
    #[arg(long)]
    identity_token: String,
    /// Output file for the bundle
    #[arg(long)]
    bundle: PathBuf,
    /// Trust root with which the new bundle is verified before it is written
    #[arg(long)]
    trusted_root: Option<PathBuf>,
    /// Signing config with the URLs of Fulcio, Rekor and timestamp authorities
    #[arg(long)]
    signing_config: Option<PathBuf>,
    /// File to sign
    artifact: PathBuf,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("who").required(true).args(["key", "certificate_identity"]))]
struct Verify {
    /// Use the root of the staging instance
    #[arg(long)]
    staging: bool,
    /// Path of the bundle
    #[arg(long)]
    bundle: PathBuf,
    /// Expected identity, as exact text
    #[arg(long, requires = "certificate_oidc_issuer")]
    certificate_identity: Option<String>,
    /// Expected issuer, as exact text
    #[arg(long, requires = "certificate_identity")]
    certificate_oidc_issuer: Option<String>,
    /// Public key of the signer
    #[arg(long)]
    key: Option<PathBuf>,
    /// Trust root; default: the public instance
    #[arg(long)]
    trusted_root: Option<PathBuf>,
    /// File, or sha256:HEX if no file with that name exists
    artifact: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match Line::parse() {
        Line::SignBundle(sign) => sign.run().await,
        Line::VerifyBundle(verify) => verify.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Sign {
    async fn run(self) -> Result<()> {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let now = Timestamp::now();
        let services = match &self.signing_config {
            Some(file) => Services::read(&fs_err::read(file)?, now)?,
            None if self.staging => Services::instance(STAGING),
            None => Services::instance(PUBLIC),
        };
        let token = Token::parse(&self.identity_token, AUDIENCE, now.as_second())?;
        let content = fs_err::read(&self.artifact)?;
        let (what, digest) = if self.in_toto {
            let digest = subject(&content)?;
            (SigningInput::Statement(content), digest)
        } else {
            let digest = Digest::of(&content);
            (SigningInput::Bytes(content), digest)
        };
        let key = Ephemeral::new()?;
        let request = key.certificate_request(&token)?;
        let url = format!("{}/api/v2/signingCert", services.fulcio);
        let signed = key.sign(what, &ask(&url, JSON, request).await?)?;
        let mut evidence = Evidence::default();
        for url in &services.timestamps {
            let request = signed.timestamp_request(now.as_second().unsigned_abs());
            let answer = ask(url, "application/timestamp-query", request).await?;
            check_timestamp(&answer)?;
            evidence.timestamps.push(answer);
        }
        for (url, version) in &services.logs {
            let url = format!("{url}/{}", version.path());
            let answer = ask(&url, JSON, signed.entry_request(*version)).await?;
            evidence.entries.push(signed.entered(*version, &answer)?);
        }
        let bundle = signed.bundle(&evidence)?;
        // The Sigstore bundle is written only if its verification succeeds.
        let root = root(self.trusted_root.as_deref(), self.staging)?;
        let name = signed.identity();
        let wanted = identity(&name.subject, &name.issuer, &root)?;
        let content = Content::named(&digest);
        verify::blob_of_any_kind(
            bundle.clone(),
            &content,
            &[wanted],
            &material(Vec::new(), root),
        )?;
        Ok(fs_err::write(&self.bundle, bundle)?)
    }
}

impl Verify {
    fn run(self) -> Result<()> {
        let bundle = fs_err::read(&self.bundle)?;
        let digest = digest(&self.artifact)?;
        let root = root(self.trusted_root.as_deref(), self.staging)?;
        let (wanted, keys) = match (self.key, self.certificate_identity) {
            (Some(file), _) => {
                let key = PublicKey::parse(&fs_err::read_to_string(file)?)?;
                (AcceptedSigner::Key(key.id().clone()), vec![key])
            }
            (None, Some(subject)) => {
                let issuer = self.certificate_oidc_issuer.context("no issuer is given")?;
                (identity(&subject, &issuer, &root)?, Vec::new())
            }
            (None, None) => bail!("neither a key nor an identity is given"),
        };
        let content = Content::named(&digest);
        let accepted =
            verify::blob_of_any_kind(bundle, &content, &[wanted], &material(keys, root))?;
        eprintln!(
            "verified {digest}; checked: {}",
            accepted.checked.join(", ")
        );
        Ok(())
    }
}

fn material(keys: Vec<PublicKey>, root: std::sync::Arc<Root>) -> TrustMaterial {
    TrustMaterial {
        keys,
        roots: vec![root],
        now: Timestamp::now(),
    }
}

fn identity(subject: &str, issuer: &str, root: &Root) -> Result<AcceptedSigner> {
    let exact = |text: &str| Matcher::exact(text).map_err(|why| anyhow!("{text}: {why}"));
    let identities = vec![Identity {
        issuer: exact(issuer)?,
        subject: exact(subject)?,
    }];
    let root = root.id().clone();
    Ok(AcceptedSigner::Identities { identities, root })
}

fn root(file: Option<&Path>, staging: bool) -> Result<std::sync::Arc<Root>> {
    Ok(match file {
        Some(file) => Root::from_text(&fs_err::read_to_string(file)?)?,
        None if staging => Root::staging()?,
        None => Root::public()?,
    })
}

/// Returns the digest of the only subject of a statement.
fn subject(statement: &[u8]) -> Result<Digest> {
    let statement = bundle_core::json::object(statement)?;
    let subjects = statement
        .get("subject")
        .and_then(serde_json::Value::as_array);
    let Some([subject]) = subjects.map(Vec::as_slice) else {
        bail!("the file is no in-toto statement about one subject");
    };
    let hex = subject["digest"]["sha256"].as_str();
    let digest = format!("sha256:{}", hex.context("its subject has no sha256")?);
    digest.parse().map_err(|error| anyhow!("{digest}: {error}"))
}

/// Returns the digest that the argument contains. If a file has this name, returns the digest of
/// the file.
fn digest(artifact: &Path) -> Result<Digest> {
    let named = artifact
        .to_str()
        .and_then(|text| text.parse::<Digest>().ok());
    match named {
        Some(digest) if !artifact.exists() => Ok(digest),
        _ => Ok(Digest::of(&fs_err::read(artifact)?)),
    }
}

/// URLs of a Sigstore instance's services.
struct Services {
    fulcio: String,
    logs: Vec<(String, LogVersion)>,
    timestamps: Vec<String>,
}

impl Services {
    fn instance((fulcio, rekor): (&str, &str)) -> Self {
        Self {
            fulcio: fulcio.to_owned(),
            logs: vec![(rekor.to_owned(), LogVersion::One)],
            timestamps: Vec::new(),
        }
    }

    /// Returns the services of a signing config whose validity period contains `now`.
    fn read(text: &[u8], now: Timestamp) -> Result<Self> {
        let config = SigningConfig::parse(text)?;
        let logs = config.logs(&[LogVersion::One, LogVersion::Two], now)?;
        let place = |url: &str| url.trim_end_matches('/').to_owned();
        Ok(Self {
            fulcio: place(config.authority(now)?),
            logs: logs
                .into_iter()
                .map(|(url, version)| (place(url), version))
                .collect(),
            timestamps: config.timestamps(now)?.into_iter().map(place).collect(),
        })
    }
}

async fn ask(url: &str, media_type: &str, body: Vec<u8>) -> Result<Vec<u8>> {
    let client = reqwest::Client::builder().timeout(DEADLINE).build()?;
    let answer = client
        .post(url)
        .header("content-type", media_type)
        .body(body)
        .send()
        .await
        .with_context(|| format!("{url} does not respond"))?;
    let status = answer.status();
    let body = answer.bytes().await?;
    if !status.is_success() {
        bail!("{url}: {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(body.to_vec())
}
