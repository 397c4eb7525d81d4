//! Arguments of `sign`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Data, Registry};

/// Sign a bundle in a registry, or a file, with a private key or a certificate, and print its
/// pinned reference on stdout.
///
/// The signature is a Sigstore bundle that refers to the content, which cosign 3 verifies too. A
/// tag is resolved first: the digest is signed. Signing again with the same key changes nothing;
/// signatures of others are kept. The password of the key comes from $BUNDLE_PASSWORD, else
/// $COSIGN_PASSWORD, else a prompt.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle sign registry.example.com/team/web:1.4.0 --key release.key

  # With a key of the KMS plugin sigstore-kms-my-hsm on PATH
  kubectl bundle sign registry.example.com/team/web:1.4.0 --key my-hsm://slot/1

  # Without a key: with a certificate for the identity token of the CI job
  kubectl bundle sign registry.example.com/team/web:1.4.0
  kubectl bundle sign registry.example.com/team/web:1.4.0 --identity-token token.jwt

  # Without a key: log in with a code on another device
  kubectl bundle sign registry.example.com/team/web:1.4.0 --fulcio-auth-flow device

  # In the format of cosign 2
  kubectl bundle sign registry.example.com/team/web:1.4.0 --key release.key --format legacy

  # A saved archive, or any file
  kubectl bundle sign web.tar --bundle web.tar.sigstore.json --key release.key

  # In a pipeline, by digest
  kubectl bundle sign $(kubectl bundle push web registry.example.com/team/web:1.4.0) --key release.key")]
pub(crate) struct Sign {
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST; with --bundle, a file
    #[arg(value_name = "REF|FILE")]
    pub(crate) reference: String,
    /// Sign a file, and write the signature to this file (FILE.sigstore.json)
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub(crate) bundle: Option<PathBuf>,
    /// Replace the file of --bundle if it exists and is a Sigstore bundle
    #[arg(long, requires = "bundle")]
    pub(crate) force: bool,
    /// Flags of the signer.
    #[command(flatten)]
    pub(crate) by: SignerFlags,
    /// Storage format of the signature
    #[arg(long, value_name = "FORM", value_enum, default_value_t = SignatureForm::Bundle)]
    pub(crate) format: SignatureForm,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}

/// Flags of the signer.
#[derive(Debug, Args)]
pub(crate) struct SignerFlags {
    /// Private key: a file of `keys generate` or cosign, or NAME://RESOURCE for a key of the KMS
    /// plugin sigstore-kms-NAME on PATH
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<PathBuf>,
    /// Read the key's password from the first line of standard input
    #[arg(long, requires = "key", conflicts_with_all = ["registry_password_stdin", "registry_token_stdin"])]
    pub(crate) password_stdin: bool,
    /// Flags for a certificate instead of a key.
    #[command(flatten)]
    pub(crate) keyless: Keyless,
}

/// Flags for a certificate of Fulcio with an entry in Rekor.
#[derive(Debug, Args)]
#[command(next_help_heading = "Signing without a key")]
pub(crate) struct Keyless {
    /// Identity token: the token, a file, or - for standard input [default: $SIGSTORE_ID_TOKEN,
    /// else a token of GitHub Actions or Buildkite, else a login]
    #[arg(long, value_name = "TOKEN", conflicts_with = "key")]
    pub(crate) identity_token: Option<String>,
    /// Login: in a browser on this machine, with a code on any device, or never
    #[arg(long, value_name = "FLOW", value_enum, conflicts_with = "key")]
    pub(crate) fulcio_auth_flow: Option<AuthFlow>,
    /// OpenID Connect issuer for the login, which the certificate authority must accept [default:
    /// that of the signing config or the public instance]
    #[arg(long, value_name = "URL", conflicts_with = "key")]
    pub(crate) oidc_issuer: Option<String>,
    /// Client ID of the login; identity tokens must have it as their audience
    #[arg(
        long,
        value_name = "ID",
        default_value = "sigstore",
        conflicts_with = "key"
    )]
    pub(crate) oidc_client_id: String,
    /// URLs of the services of a Sigstore instance (signing_config.json, v0.2), instead of the
    /// public ones
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    pub(crate) signing_config: Option<PathBuf>,
    /// URL of the certificate authority (Fulcio)
    #[arg(long, value_name = "URL", conflicts_with = "key")]
    pub(crate) fulcio_url: Option<String>,
    /// URL of the transparency log (Rekor)
    #[arg(long, value_name = "URL", conflicts_with = "key")]
    pub(crate) rekor_url: Option<String>,
    /// Version of that log (default 1), or of the log to select from the signing config (default
    /// newest). Version 2 requires a timestamp authority
    #[arg(long, value_name = "VERSION", conflicts_with = "key", value_parser = clap::value_parser!(u32).range(1..=2))]
    pub(crate) rekor_version: Option<u32>,
    /// URL of the timestamp authority (RFC 3161)
    #[arg(long, value_name = "URL", conflicts_with = "key")]
    pub(crate) timestamp_server_url: Option<String>,
    /// File trusted_root.json under which the signature must verify before it is stored
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    pub(crate) trusted_root: Option<PathBuf>,
}

/// Kind of login, with cosign's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuthFlow {
    /// Log in in a browser on this machine
    Normal,
    /// Log in on any device, with a code
    Device,
    /// Use only a token from a flag or the environment
    Token,
}

/// Storage format of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SignatureForm {
    /// Sigstore bundle as a referrer, as in cosign 3
    Bundle,
    /// Layer under the tag `sha256-….sig`, as in cosign 2
    Legacy,
}
