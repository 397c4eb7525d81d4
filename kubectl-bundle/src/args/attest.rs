//! Arguments of `attest`.

use std::path::PathBuf;

use clap::Args;

use super::{Data, Registry, SignBy};

/// Attest something about a bundle in a registry (its provenance, what it is made of), with a
/// private key or by certificate, and print its pinned reference on stdout.
///
/// The predicate is a JSON object. It becomes an in-toto statement about the digest, which is
/// signed and kept beside the content as cosign 3 does; cosign's `verify-attestation` verifies it
/// too. An attestation is no signature: it does not say that the bundle may be used. Attesting
/// again what the same signer has attested changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle attest registry.example.com/team/web:1.4.0 --type spdxjson --predicate sbom.spdx.json --key release.key

  # Without a key, by the identity of the CI job
  kubectl bundle attest registry.example.com/team/web:1.4.0 --type slsaprovenance1 --predicate provenance.json

  # A saved archive, or any file
  kubectl bundle attest web.tar --bundle web.tar.sigstore.json --type custom --predicate scan.json --key release.key

  # A kind of one's own
  kubectl bundle attest registry.example.com/team/web:1.4.0 --type https://example.com/approval/v1 --predicate - --key release.key")]
pub(crate) struct Attest {
    /// The bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST; with --bundle, a file
    #[arg(value_name = "REF|FILE")]
    pub(crate) reference: String,
    /// Attest something about a file, and put the attestation into this one (FILE.sigstore.json)
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,
    /// Replace the file of --bundle if it exists and is a Sigstore bundle
    #[arg(long, requires = "bundle")]
    pub(crate) force: bool,
    /// What is attested: a JSON object in a file, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) predicate: PathBuf,
    /// What kind it is: slsaprovenance, slsaprovenance02, slsaprovenance1, spdx, spdxjson,
    /// cyclonedx, link, vuln, openvex, custom, or a URI
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: String,
    /// Flags of the signer.
    #[command(flatten)]
    pub(crate) by: SignBy,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
