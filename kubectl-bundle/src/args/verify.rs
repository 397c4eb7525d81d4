//! Arguments of `verify` and `policy test`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::{Data, Registry};

/// Verify who signed a bundle in a registry: by public keys, by the identity in a certificate, or
/// against SignaturePolicies in files.
///
/// Signatures of cosign 3 (Sigstore bundles) and cosign 2 (`.sig` tags) are verified. With a
/// certificate, all of this must hold: issued by an authority of the trust root, listed in its
/// certificate log, entered in its transparency log, and valid at a time that the log or a
/// timestamp authority vouches for. Exit code 0 is verified, 3 refused (not signed, or by somebody
/// else), 4 cannot tell (the registry did not answer).
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("against").required(true).multiple(false).args(["key", "policy", "certificate_identity", "certificate_identity_regexp"]),
    group = ArgGroup::new("identity").multiple(false).args(["certificate_identity", "certificate_identity_regexp"]),
    group = ArgGroup::new("issuer").multiple(false).args(["certificate_oidc_issuer", "certificate_oidc_issuer_regexp"]),
    after_help = "\
Examples:
  kubectl bundle verify registry.example.com/team/web:1.4.0 --key release.pub

  # Signed by one workflow, with a short-lived certificate
  kubectl bundle verify registry.example.com/team/web:1.4.0 \\
    --certificate-identity https://github.com/example/web/.github/workflows/release.yaml@refs/heads/main \\
    --certificate-oidc-issuer https://token.actions.githubusercontent.com

  # Attested, and what is attested
  kubectl bundle verify registry.example.com/team/web:1.4.0 --key release.pub --attestation spdxjson -o json

  # A saved archive, or any file
  kubectl bundle verify web.tar --bundle web.tar.sigstore.json --key release.pub

  # As a cluster with these policies would
  kubectl bundle verify registry.example.com/team/web:1.4.0 --policy policies.yaml")]
pub(crate) struct Verify {
    /// The bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST; with --bundle, a file
    #[arg(value_name = "REF|FILE")]
    pub(crate) reference: String,
    /// Verify a file by the signature in this one, as `sign --bundle` or `cosign sign-blob` wrote
    /// it
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    pub(crate) bundle: Option<PathBuf>,
    /// A public key that must have signed: a file, or NAME://RESOURCE for one that the program
    /// sigstore-kms-NAME on PATH holds; repeated: any of them
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Vec<PathBuf>,
    /// The identity in the certificate, exactly: an address, or the URI of a workflow
    #[arg(long, value_name = "IDENTITY", requires = "issuer")]
    pub(crate) certificate_identity: Option<String>,
    /// The identity as a regular expression, which must match it whole
    #[arg(long, value_name = "REGEXP", requires = "issuer")]
    pub(crate) certificate_identity_regexp: Option<String>,
    /// Who vouched for the identity, exactly: the issuer of its OIDC token
    #[arg(long, value_name = "URL", requires = "identity")]
    pub(crate) certificate_oidc_issuer: Option<String>,
    /// The issuer as a regular expression, which must match it whole
    #[arg(long, value_name = "REGEXP", requires = "identity")]
    pub(crate) certificate_oidc_issuer_regexp: Option<String>,
    /// Instead of a signature, an attestation of this kind by the key or identity: a name as for
    /// `attest --type`, or a URI; repeated: each of them
    #[arg(long, value_name = "TYPE", conflicts_with = "policy")]
    pub(crate) attestation: Vec<String>,
    /// A file of SignaturePolicies, each of which must be satisfied where it matches; may be
    /// repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Vec<PathBuf>,
    /// Under which trust root certificates and logs count
    #[command(flatten)]
    pub(crate) root: TrustRoot,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}

/// Flags for the trust root.
#[derive(Debug, Args)]
pub(crate) struct TrustRoot {
    /// The trusted_root.json of a Sigstore instance, instead of that of `trust init` or the public
    /// one that is built in
    #[arg(long, value_name = "FILE")]
    pub(crate) trusted_root: Option<PathBuf>,
    /// Do not ask the TUF repository of `trust init`. Logs are never asked: the evidence beside the
    /// signature has to be enough
    #[arg(long)]
    pub(crate) offline: bool,
}

/// Work with SignaturePolicies.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Policy {
    /// Verb.
    #[command(subcommand)]
    pub(crate) verb: PolicyVerb,
}

/// Verbs of `policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Say what policies in a file would decide on a bundle
    Test(PolicyTest),
}

/// Say what SignaturePolicies in a file would decide on a bundle, one by one and together.
///
/// Secrets and ConfigMaps that the policies name are looked for in the same file. Exit code 0 is
/// let in, 3 refused, 4 cannot tell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle policy test policies.yaml --image registry.example.com/team/web:1.4.0")]
pub(crate) struct PolicyTest {
    /// The file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST
    #[arg(long, value_name = "REF")]
    pub(crate) image: String,
    /// Under which trust root certificates and logs count
    #[command(flatten)]
    pub(crate) root: TrustRoot,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
