//! `sign`: what, and with which key.
//! Not here: cryptography.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Data, Registry};

/// Sign a bundle in a registry with a private key, and print its pinned reference on stdout.
///
/// The signature is a Sigstore bundle beside the content, which cosign 3 verifies too. A tag is resolved first: what is signed is
/// always the digest. Signing again what the same key has signed changes nothing; signatures by others stay beside it. The password of the
/// key is taken from $BUNDLE_PASSWORD, else $COSIGN_PASSWORD, else asked for.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle sign registry.example.com/team/web:1.4.0 --key release.key

  # In the form that cosign 2 reads
  kubectl bundle sign registry.example.com/team/web:1.4.0 --key release.key --format legacy

  # In a pipeline, by digest
  kubectl bundle sign $(kubectl bundle push web registry.example.com/team/web:1.4.0) --key release.key")]
pub(crate) struct Sign {
    /// The bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// The private key, as `keys generate` or cosign made it
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Read the key's password from the first line of standard input
    #[arg(long, conflicts_with_all = ["registry_password_stdin", "registry_token_stdin"])]
    pub(crate) password_stdin: bool,
    /// How the signature is stored
    #[arg(long, value_name = "FORM", value_enum, default_value_t = SignatureForm::Bundle)]
    pub(crate) format: SignatureForm,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// How to talk to registries.
    #[command(flatten)]
    pub(crate) registry: Registry,
}

/// How signatures are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SignatureForm {
    /// A Sigstore bundle as a referrer: cosign 3's form
    Bundle,
    /// A layer under the tag `sha256-….sig`: cosign 2's form
    Legacy,
}
