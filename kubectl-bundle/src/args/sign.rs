//! Arguments of `sign`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Data, Registry};

/// Sign a bundle in a registry, or a file, with a private key or by certificate, and print its
/// pinned reference on stdout.
///
/// The signature is a Sigstore bundle beside the content, which cosign 3 verifies too. A tag is
/// resolved first: what is signed is always the digest. Signing again what the same key has signed
/// changes nothing; signatures by others stay beside it. The password of the key is taken from
/// $BUNDLE_PASSWORD, else $COSIGN_PASSWORD, else asked for.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle sign registry.example.com/team/web:1.4.0 --key release.key

  # With a key that stays in its device or service: the program sigstore-kms-my-hsm on PATH signs
  kubectl bundle sign registry.example.com/team/web:1.4.0 --key my-hsm://slot/1

  # Without a key: the identity token of the CI job makes a certificate that lives for ten minutes
  kubectl bundle sign registry.example.com/team/web:1.4.0
  kubectl bundle sign registry.example.com/team/web:1.4.0 --identity-token token.jwt

  # As oneself: somebody logs in, in a browser here or with a code on another device
  kubectl bundle sign registry.example.com/team/web:1.4.0 --fulcio-auth-flow device

  # In the form that cosign 2 reads
  kubectl bundle sign registry.example.com/team/web:1.4.0 --key release.key --format legacy

  # A saved archive, or any file
  kubectl bundle sign web.tar --bundle web.tar.sigstore.json --key release.key

  # In a pipeline, by digest
  kubectl bundle sign $(kubectl bundle push web registry.example.com/team/web:1.4.0) --key release.key")]
pub(crate) struct Sign {
    /// The bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST; with --bundle, a file
    #[arg(value_name = "REF|FILE")]
    pub(crate) reference: String,
    /// Sign a file, and put its signature into this one (FILE.sigstore.json)
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub(crate) bundle: Option<PathBuf>,
    /// Replace the file of --bundle if it exists and is a Sigstore bundle
    #[arg(long, requires = "bundle")]
    pub(crate) force: bool,
    /// Flags of the signer.
    #[command(flatten)]
    pub(crate) by: SignBy,
    /// How the signature is stored
    #[arg(long, value_name = "FORM", value_enum, default_value_t = SignatureForm::Bundle)]
    pub(crate) format: SignatureForm,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}

/// Flags of the signer.
#[derive(Debug, Args)]
pub(crate) struct SignBy {
    /// The private key: a file, as `keys generate` or cosign made it, or NAME://RESOURCE for a key
    /// that the program sigstore-kms-NAME on PATH holds
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
    /// The identity token: itself, a file, or - for standard input. Else it is $SIGSTORE_ID_TOKEN,
    /// or asked of GitHub Actions or Buildkite; else somebody at a terminal logs in
    #[arg(long, value_name = "TOKEN", conflicts_with = "key")]
    pub(crate) identity_token: Option<String>,
    /// How to get a token: log in in a browser on this machine, or with a code on any device, or
    /// not at all
    #[arg(long, value_name = "FLOW", value_enum, conflicts_with = "key")]
    pub(crate) fulcio_auth_flow: Option<AuthFlow>,
    /// Where to log in: an OpenID Connect issuer that the certificate authority knows. Else it is
    /// that of the signing config, or of the public instance
    #[arg(long, value_name = "URL", conflicts_with = "key")]
    pub(crate) oidc_issuer: Option<String>,
    /// As which application; identity tokens have to be for it
    #[arg(
        long,
        value_name = "ID",
        default_value = "sigstore",
        conflicts_with = "key"
    )]
    pub(crate) oidc_client_id: String,
    /// Where the services of a Sigstore instance are (signing_config.json, v0.2), instead of the
    /// public ones
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    pub(crate) signing_config: Option<PathBuf>,
    /// The certificate authority (Fulcio)
    #[arg(long, value_name = "URL", conflicts_with = "key")]
    pub(crate) fulcio_url: Option<String>,
    /// The transparency log (Rekor)
    #[arg(long, value_name = "URL", conflicts_with = "key")]
    pub(crate) rekor_url: Option<String>,
    /// Which Rekor that log is (default 1), or which of a signing config's logs to use (default the
    /// newest). Version 2 needs a timestamp authority
    #[arg(long, value_name = "VERSION", conflicts_with = "key", value_parser = clap::value_parser!(u32).range(1..=2))]
    pub(crate) rekor_version: Option<u32>,
    /// The timestamp authority (RFC 3161)
    #[arg(long, value_name = "URL", conflicts_with = "key")]
    pub(crate) timestamp_server_url: Option<String>,
    /// The trusted_root.json under which the signature has to hold before it is stored
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
    /// Only with a token that is given or there
    Token,
}

/// Storage format of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SignatureForm {
    /// A Sigstore bundle as a referrer: cosign 3's form
    Bundle,
    /// A layer under the tag `sha256-….sig`: cosign 2's form
    Legacy,
}
