//! Arguments of `verify` and `policy test`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::{Data, Registry};

/// Verify the signatures of a bundle in a registry: by public keys, by the identity in a
/// certificate, or against SignaturePolicies in files.
///
/// Signatures of cosign 3 (Sigstore bundles) and cosign 2 (`.sig` tags) are verified. A certificate
/// must be issued by an authority of the trust root, be listed in its certificate log, have an
/// entry in its transparency log, and be valid at a time that the log or a timestamp authority
/// confirms. Exit code 0 means verified, 3 refused (not signed, or by another signer), 4 cannot
/// tell (the registry did not respond).
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("against").required(true).multiple(false).args(["key", "policy", "certificate_identity", "certificate_identity_regexp"]),
    group = ArgGroup::new("identity").multiple(false).args(["certificate_identity", "certificate_identity_regexp"]),
    group = ArgGroup::new("issuer").multiple(false).args(["certificate_oidc_issuer", "certificate_oidc_issuer_regexp"]),
    after_help = "\
Examples:
  kubectl bundle verify registry.example.com/team/web:1.4.0 --key release.pub

  # Signed by a workflow with a certificate
  kubectl bundle verify registry.example.com/team/web:1.4.0 \\
    --certificate-identity https://github.com/example/web/.github/workflows/release.yaml@refs/heads/main \\
    --certificate-oidc-issuer https://token.actions.githubusercontent.com

  # Attested, with the predicate as output
  kubectl bundle verify registry.example.com/team/web:1.4.0 --key release.pub --attestation spdxjson -o json

  # A saved archive, or any file
  kubectl bundle verify web.tar --bundle web.tar.sigstore.json --key release.pub

  # Against the policies of a cluster
  kubectl bundle verify registry.example.com/team/web:1.4.0 --policy policies.yaml")]
pub(crate) struct Verify {
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST; with --bundle, a file
    #[arg(value_name = "REF|FILE")]
    pub(crate) reference: String,
    /// Verify a file by the signature in this file, as written by `sign --bundle` or `cosign
    /// sign-blob`
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    pub(crate) bundle: Option<PathBuf>,
    /// Public key of an accepted signer: a file, or NAME://RESOURCE for a key of the KMS plugin
    /// sigstore-kms-NAME on PATH; if repeated, any of them is accepted
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Vec<PathBuf>,
    /// Identity in the certificate: an email address, or the URI of a workflow
    #[arg(long, value_name = "IDENTITY", requires = "issuer")]
    pub(crate) certificate_identity: Option<String>,
    /// Identity as a regular expression, which must match all of it
    #[arg(long, value_name = "REGEXP", requires = "issuer")]
    pub(crate) certificate_identity_regexp: Option<String>,
    /// Issuer of the identity's OIDC token
    #[arg(long, value_name = "URL", requires = "identity")]
    pub(crate) certificate_oidc_issuer: Option<String>,
    /// Issuer as a regular expression, which must match all of it
    #[arg(long, value_name = "REGEXP", requires = "identity")]
    pub(crate) certificate_oidc_issuer_regexp: Option<String>,
    /// Require an attestation of this type instead of a signature: a name as for `attest --type`,
    /// or a URI; if repeated, all of them are required
    #[arg(long, value_name = "TYPE", conflicts_with = "policy")]
    pub(crate) attestation: Vec<String>,
    /// File of SignaturePolicies, which must be satisfied if they match; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Vec<PathBuf>,
    /// Under which trust root certificates and logs count
    #[command(flatten)]
    pub(crate) root: TrustRoot,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}

/// Flags for the trust root.
#[derive(Debug, Args)]
pub(crate) struct TrustRoot {
    /// File trusted_root.json of a Sigstore instance [default: that of `trust init`, else the
    /// built-in public one]
    #[arg(long, value_name = "FILE")]
    pub(crate) trusted_root: Option<PathBuf>,
    /// Do not refresh the TUF repository of `trust init`. Logs are never queried: the evidence in
    /// the signature must be sufficient
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
    /// Evaluate the policies of a file for a bundle
    Test(PolicyTest),
}

/// Evaluate the SignaturePolicies of a file for a bundle, each and together.
///
/// Secrets and ConfigMaps that the policies reference are read from the same file. Exit code 0
/// means admitted, 3 refused, 4 cannot tell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle policy test policies.yaml --image registry.example.com/team/web:1.4.0")]
pub(crate) struct PolicyTest {
    /// File
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST
    #[arg(long, value_name = "REF")]
    pub(crate) image: String,
    /// Under which trust root certificates and logs count
    #[command(flatten)]
    pub(crate) root: TrustRoot,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
