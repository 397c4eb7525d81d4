//! Arguments of `attest`.

use std::path::{Path, PathBuf};

use bundle_trust::attest::PredicateType;
use clap::Args;

use super::Attest;
use crate::commands::ArtifactOrFile;
use crate::commands::signing::arguments::SignerFlags;
use crate::commands::signing::sign::file::SignFile;
use crate::failure::Outcome;
use crate::flags::{Environment, OutputFlags, RegistryFlags, invalid_flag, registry};

/// Sign a statement about a bundle in a registry, such as its provenance or its contents, with a
/// private key or a certificate. Print the pinned reference of the bundle on stdout.
///
/// The predicate is a JSON object. The command signs an in-toto statement with the predicate and
/// the digest, and stores the attestation as a referrer in the format of cosign 3. `cosign
/// verify-attestation` verifies the attestation too. An attestation is not a signature: an
/// attestation does not approve the bundle. A repeated attestation of the same signer changes
/// nothing.
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
pub(crate) struct Arguments {
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST; with --bundle, a file
    #[arg(value_name = "REF|FILE")]
    pub(crate) reference: String,
    /// Sign a statement about a file, and write the attestation to this file (FILE.sigstore.json)
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
    pub(crate) signer: SignerFlags,
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `attest`.
    pub(crate) fn settings(
        self,
        environment: &Environment,
    ) -> Outcome<ArtifactOrFile<Attest, SignFile>> {
        let kind = PredicateType::parse(&self.kind).map_err(|why| invalid_flag("--type", &why))?;
        let stdin = self.signer.password_stdin
            || self.signer.keyless.identity_token.as_deref() == Some("-");
        if stdin && self.predicate == Path::new("-") {
            let why = "standard input cannot be both the predicate and a secret";
            return Err(invalid_flag("--predicate", why).into());
        }
        if let Some(bundle) = self.bundle {
            let registry = self.registry.settings(environment)?;
            return Ok(ArtifactOrFile::File(SignFile {
                file: self.reference.into(),
                bundle,
                force: self.force,
                predicate: Some((self.predicate, kind)),
                by: self.signer.settings(environment, &registry)?,
                format: self.output.format(),
            }));
        }
        let reference = registry::reference_or_file(&self.reference)?;
        let registry = self.registry.settings(environment)?.of(&reference);
        Ok(ArtifactOrFile::Artifact(Attest {
            predicate: self.predicate,
            kind,
            by: self.signer.settings(environment, &registry)?,
            format: self.output.format(),
            registry,
            reference,
        }))
    }
}
