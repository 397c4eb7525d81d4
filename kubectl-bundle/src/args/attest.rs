//! Arguments of `attest`.

use std::path::PathBuf;

use clap::Args;

use super::{Data, Registry, SignerFlags};

/// Attest something about a bundle in a registry (its provenance, its contents) with a private key
/// or a certificate, and print its pinned reference on stdout.
///
/// The predicate is a JSON object. It is signed in an in-toto statement about the digest and stored
/// as a referrer in the format of cosign 3; `cosign verify-attestation` verifies it too. An
/// attestation is not a signature: it does not approve the bundle. Repeating an attestation of the
/// same signer changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle attest registry.example.com/team/web:1.4.0 --type spdxjson --predicate sbom.spdx.json --key release.key

  # Without a key, with the identity of the CI job
  kubectl bundle attest registry.example.com/team/web:1.4.0 --type slsaprovenance1 --predicate provenance.json

  # A saved archive, or any file
  kubectl bundle attest web.tar --bundle web.tar.sigstore.json --type custom --predicate scan.json --key release.key

  # A custom predicate type
  kubectl bundle attest registry.example.com/team/web:1.4.0 --type https://example.com/approval/v1 --predicate - --key release.key")]
pub(crate) struct Attest {
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST; with --bundle, a file
    #[arg(value_name = "REF|FILE")]
    pub(crate) reference: String,
    /// Attest something about a file, and write the attestation to this file (FILE.sigstore.json)
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,
    /// Replace the file of --bundle if it exists and is a Sigstore bundle
    #[arg(long, requires = "bundle")]
    pub(crate) force: bool,
    /// Predicate: a JSON object in a file, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) predicate: PathBuf,
    /// Predicate type: slsaprovenance, slsaprovenance02, slsaprovenance1, spdx, spdxjson,
    /// cyclonedx, link, vuln, openvex, custom, or a URI
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: String,
    /// Flags of the signer.
    #[command(flatten)]
    pub(crate) by: SignerFlags,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
