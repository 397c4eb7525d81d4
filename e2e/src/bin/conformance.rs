//! The client protocol of the public Sigstore conformance suite (`sign-bundle`, `verify-bundle`) over what `verify` and `sign` use.
//! Not here: cryptography (bundle-trust), and how the product itself finds services and tokens.
#![allow(
    clippy::print_stderr,
    reason = "a program for a test suite, which reads exit code and stderr"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bundle_core::policy::{Identity, Matcher, Who};
use bundle_core::reference::Digest;
use bundle_trust::keyless::{Entry, Ephemeral, Token, What};
use bundle_trust::keys::PublicKey;
use bundle_trust::root::Root;
use bundle_trust::verify::{self, Against};
use clap::{Args, Parser};
use jiff::Timestamp;
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(60);
/// The audience that Fulcio asks for in tokens.
const AUDIENCE: &str = "sigstore";
const PUBLIC: (&str, &str) = ("https://fulcio.sigstore.dev", "https://rekor.sigstore.dev");
const STAGING: (&str, &str) = ("https://fulcio.sigstage.dev", "https://rekor.sigstage.dev");

/// Sign and verify files as the Sigstore conformance suite asks for it.
#[derive(Parser)]
enum Line {
    /// Sign a file by certificate, and write the bundle
    SignBundle(Sign),
    /// Verify a file, or sha256:DIGEST, with its bundle
    VerifyBundle(Verify),
}

#[derive(Args)]
struct Sign {
    /// Use the staging instance
    #[arg(long)]
    staging: bool,
    /// The identity token itself
    #[arg(long)]
    identity_token: String,
    /// Where to write the bundle
    #[arg(long)]
    bundle: PathBuf,
    /// The trust root under which it has to hold before it is written
    #[arg(long)]
    trusted_root: Option<PathBuf>,
    /// Where Fulcio and Rekor v1 are
    #[arg(long)]
    signing_config: Option<PathBuf>,
    /// What to sign
    artifact: PathBuf,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("who").required(true).args(["key", "certificate_identity"]))]
struct Verify {
    /// Under the root of the staging instance
    #[arg(long)]
    staging: bool,
    /// The bundle
    #[arg(long)]
    bundle: PathBuf,
    /// Who signed, exactly
    #[arg(long, requires = "certificate_oidc_issuer")]
    certificate_identity: Option<String>,
    /// Who vouched for them, exactly
    #[arg(long, requires = "certificate_identity")]
    certificate_oidc_issuer: Option<String>,
    /// The public key that signed
    #[arg(long)]
    key: Option<PathBuf>,
    /// Another trust root
    #[arg(long)]
    trusted_root: Option<PathBuf>,
    /// A file, or sha256:HEX where there is no file of that name
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
        let (fulcio, rekor) = match &self.signing_config {
            Some(file) => services(&fs_err::read_to_string(file)?)?,
            None if self.staging => (STAGING.0.to_owned(), STAGING.1.to_owned()),
            None => (PUBLIC.0.to_owned(), PUBLIC.1.to_owned()),
        };
        let now = Timestamp::now();
        let token = Token::parse(&self.identity_token, AUDIENCE, now.as_second())?;
        let content = fs_err::read(&self.artifact)?;
        let digest = Digest::of(&content);
        let key = Ephemeral::new()?;
        let request = key.certificate_request(&token)?;
        let issued = ask(&format!("{fulcio}/api/v2/signingCert"), request).await?;
        let signed = key.sign(What::Bytes(content), &issued)?;
        let entered = ask(
            &format!("{rekor}/api/v1/log/entries"),
            signed.entry_request(),
        )
        .await?;
        let bundle = signed.bundle(&Entry::read(&entered)?, None)?;
        // Nothing is written that would not verify.
        let root = root(self.trusted_root.as_deref(), self.staging)?;
        let name = signed.identity();
        let wanted = identity(&name.subject, &name.issuer, &root)?;
        verify::blob(bundle.clone(), &digest, &wanted, &against(Vec::new(), root))?;
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
                (Who::Key(key.id().clone()), vec![key])
            }
            (None, Some(subject)) => {
                let issuer = self.certificate_oidc_issuer.context("no issuer is given")?;
                (identity(&subject, &issuer, &root)?, Vec::new())
            }
            (None, None) => bail!("neither a key nor an identity is given"),
        };
        let accepted = verify::blob(bundle, &digest, &wanted, &against(keys, root))?;
        eprintln!(
            "verified {digest}; checked: {}",
            accepted.checked.join(", ")
        );
        Ok(())
    }
}

fn against(keys: Vec<PublicKey>, root: std::sync::Arc<Root>) -> Against {
    Against {
        keys,
        roots: vec![root],
        now: Timestamp::now(),
    }
}

fn identity(subject: &str, issuer: &str, root: &Root) -> Result<Who> {
    let exact = |text: &str| Matcher::exact(text).map_err(|why| anyhow!("{text}: {why}"));
    let identities = vec![Identity {
        issuer: exact(issuer)?,
        subject: exact(subject)?,
    }];
    let root = root.id().clone();
    Ok(Who::Identities { identities, root })
}

fn root(file: Option<&Path>, staging: bool) -> Result<std::sync::Arc<Root>> {
    Ok(match file {
        Some(file) => Root::from_text(&fs_err::read_to_string(file)?)?,
        None if staging => Root::staging()?,
        None => Root::public()?,
    })
}

/// The digest that an argument is, or that of the file that it names.
fn digest(artifact: &Path) -> Result<Digest> {
    let named = artifact
        .to_str()
        .and_then(|text| text.parse::<Digest>().ok());
    match named {
        Some(digest) if !artifact.exists() => Ok(digest),
        _ => Ok(Digest::of(&fs_err::read(artifact)?)),
    }
}

/// The first Fulcio and the first Rekor v1 of a signing config.
fn services(text: &str) -> Result<(String, String)> {
    let config: Value = serde_json::from_str(text).context("the signing config is not JSON")?;
    let first = |list: &str| -> Result<String> {
        let services = config[list].as_array().into_iter().flatten();
        let mut known = services.filter(|service| service["majorApiVersion"] == 1);
        let url = known.next().and_then(|service| service["url"].as_str());
        let url = url.with_context(|| format!("the signing config has no {list} of version 1"))?;
        Ok(url.trim_end_matches('/').to_owned())
    };
    Ok((first("caUrls")?, first("rekorTlogUrls")?))
}

async fn ask(url: &str, body: Vec<u8>) -> Result<Vec<u8>> {
    let client = reqwest::Client::builder().timeout(DEADLINE).build()?;
    let answer = client
        .post(url)
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await
        .with_context(|| format!("{url} does not answer"))?;
    let status = answer.status();
    let body = answer.bytes().await?;
    if !status.is_success() {
        bail!("{url}: {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(body.to_vec())
}
