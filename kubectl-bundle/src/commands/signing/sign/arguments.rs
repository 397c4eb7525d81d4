//! Arguments of `sign`.

use std::path::PathBuf;

use bundle_core::diagnostic::{Finding, codes};
use clap::{Args, ValueEnum};

use super::file::SignFile;
use super::{Sign, StorageFormat};
use crate::commands::ArtifactOrFile;
use crate::commands::signing::arguments::SignerFlags;
use crate::failure::Outcome;
use crate::flags::{Environment, OutputFlags, RegistryFlags, registry};

/// Sign a bundle in a registry, or a file, with a private key or a certificate. For a bundle, print
/// the pinned reference on stdout.
///
/// The signature is a Sigstore bundle that refers to the content. cosign 3 verifies the signature
/// too. A tag is resolved first: the digest is signed. A second signature with the same key changes
/// nothing. Signatures that were made with other keys are kept. The password of the key comes from
/// the first of these sources: standard input with --password-stdin, $BUNDLE_PASSWORD,
/// $COSIGN_PASSWORD, a prompt.
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

  # In a pipeline: sign the digest that was pushed
  kubectl bundle sign $(kubectl bundle push web registry.example.com/team/web:1.4.0) --key release.key")]
pub(crate) struct Arguments {
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
    pub(crate) signer: SignerFlags,
    /// Storage format of the signature
    #[arg(long, value_name = "FORM", value_enum, default_value_t = SignatureForm::Bundle)]
    pub(crate) format: SignatureForm,
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `sign`.
    pub(crate) fn settings(
        self,
        environment: &Environment,
    ) -> Outcome<ArtifactOrFile<Sign, SignFile>> {
        if let Some(bundle) = self.bundle {
            let registry = self.registry.settings(environment)?;
            return Ok(ArtifactOrFile::File(SignFile {
                file: self.reference.into(),
                bundle,
                force: self.force,
                predicate: None,
                by: self.signer.settings(environment, &registry)?,
                format: self.output.format(),
            }));
        }
        let reference = registry::reference_or_file(&self.reference)?;
        let registry = self.registry.settings(environment)?.of(&reference);
        let mut signer = self.signer;
        if matches!(self.format, SignatureForm::Legacy) {
            let version = &mut signer.keyless.rekor_version;
            *version = require_rekor_v1(*version)?;
        }
        let by = signer.settings(environment, &registry)?;
        Ok(ArtifactOrFile::Artifact(Sign {
            signer: by,
            form: match self.format {
                SignatureForm::Bundle => StorageFormat::Bundle,
                SignatureForm::Legacy => StorageFormat::Legacy,
            },
            format: self.output.format(),
            registry,
            reference,
        }))
    }
}

/// Storage format of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SignatureForm {
    /// Sigstore bundle as a referrer, as in cosign 3
    Bundle,
    /// Layer under the tag `sha256-….sig`, as in cosign 2
    Legacy,
}

/// Returns an error for Rekor v2: cosign 2's format needs the signed entry timestamp, which only
/// Rekor v1 returns.
fn require_rekor_v1(version: Option<u32>) -> Outcome<Option<u32>> {
    match version {
        None | Some(1) => Ok(Some(1)),
        Some(_) => Err(Finding::error(
            codes::usage::BAD_ARGUMENT,
            "cosign 2's format cannot store log entries of Rekor v2",
        )
        .hint("omit --format legacy or --rekor-version")
        .into()),
    }
}
