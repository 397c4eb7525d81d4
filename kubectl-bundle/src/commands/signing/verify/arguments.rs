//! Arguments of `verify`.

use std::path::PathBuf;

use bundle_core::policy::{Identity, Matcher};
use bundle_trust::attest::PredicateType;
use clap::{ArgGroup, Args};

use super::accepted_signers::AcceptedSigners;
use super::file::VerifyFile;
use super::{VerificationRules, Verify};
use crate::commands::ArtifactOrFile;
use crate::commands::signing::arguments::TrustRootFlags;
use crate::failure::Outcome;
use crate::flags::{Environment, OutputFlags, RegistryFlags, invalid_flag, registry};
use crate::signer::kms::KeyLocation;

/// Verify the signatures of a bundle in a registry with one of these: public keys, the identity in
/// a certificate, or SignaturePolicies in files.
///
/// Signatures of cosign 3 (Sigstore bundles) and cosign 2 (`.sig` tags) are verified. A certificate
/// must be issued by an authority of the trust root, and be listed in its certificate log. The
/// signature must have an entry in the transparency log. The certificate must be valid at a time
/// that the log or a timestamp authority confirms. Exit code 0 means verified, 3 rejected (not
/// signed, or by another signer), 4 unknown (the registry did not respond).
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
pub(crate) struct Arguments {
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST; with --bundle, a file
    #[arg(value_name = "REF|FILE")]
    pub(crate) reference: String,
    /// Verify a file instead of a bundle. The signature is in this Sigstore bundle, written by
    /// `sign --bundle` or `cosign sign-blob`
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    pub(crate) bundle: Option<PathBuf>,
    /// Public key of an accepted signer: a file, or NAME://RESOURCE for a key of the KMS plugin
    /// sigstore-kms-NAME on PATH. If the flag is repeated, a signature by any of these keys is
    /// accepted
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Vec<PathBuf>,
    /// Identity in the certificate: an email address, or the URI of a workflow
    #[arg(long, value_name = "IDENTITY", requires = "issuer")]
    pub(crate) certificate_identity: Option<String>,
    /// Regular expression that must match the whole identity
    #[arg(long, value_name = "REGEXP", requires = "issuer")]
    pub(crate) certificate_identity_regexp: Option<String>,
    /// Issuer of the identity's OIDC token
    #[arg(long, value_name = "URL", requires = "identity")]
    pub(crate) certificate_oidc_issuer: Option<String>,
    /// Regular expression that must match the whole issuer
    #[arg(long, value_name = "REGEXP", requires = "identity")]
    pub(crate) certificate_oidc_issuer_regexp: Option<String>,
    /// Require an attestation of this type instead of a signature: a name as for `attest --type`,
    /// or a URI. If the flag is repeated, attestations of all these types are required
    #[arg(long, value_name = "TYPE", conflicts_with = "policy")]
    pub(crate) attestation: Vec<String>,
    /// File of SignaturePolicies. All policies that match the bundle must be satisfied; may be
    /// repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Vec<PathBuf>,
    /// Flags for the trust root.
    #[command(flatten)]
    pub(crate) root: TrustRootFlags,
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `verify`.
    pub(crate) fn settings(
        self,
        environment: &Environment,
    ) -> Outcome<ArtifactOrFile<Verify, VerifyFile>> {
        let subject = matcher(
            ("--certificate-identity", self.certificate_identity),
            (
                "--certificate-identity-regexp",
                self.certificate_identity_regexp,
            ),
        )?;
        let issuer = matcher(
            ("--certificate-oidc-issuer", self.certificate_oidc_issuer),
            (
                "--certificate-oidc-issuer-regexp",
                self.certificate_oidc_issuer_regexp,
            ),
        )?;
        let against = match (subject, issuer) {
            (Some(subject), Some(issuer)) => {
                VerificationRules::Signer(AcceptedSigners::Identity(Identity { issuer, subject }))
            }
            _ if self.policy.is_empty() => {
                let keys = self.key.into_iter();
                let location = |given| KeyLocation::read(given, environment.is_attended());
                VerificationRules::Signer(AcceptedSigners::Keys(
                    keys.map(location).collect::<Outcome<_>>()?,
                ))
            }
            _ => VerificationRules::Policies(self.policy),
        };
        let kinds = self
            .attestation
            .iter()
            .map(|kind| PredicateType::parse(kind))
            .collect::<Result<_, _>>()
            .map_err(|why| invalid_flag("--attestation", &why))?;
        let settings = self.registry.settings(environment)?;
        let against = match (self.bundle, against) {
            (Some(bundle), VerificationRules::Signer(wanted)) => {
                return Ok(ArtifactOrFile::File(VerifyFile {
                    file: self.reference.into(),
                    bundle,
                    accepted_signers: wanted,
                    kinds,
                    root: self.root.settings(environment, &settings.ca_files),
                    format: self.output.format(),
                }));
            }
            (_, against) => against,
        };
        let reference = registry::reference_or_file(&self.reference)?;
        let registry = settings.of(&reference);
        Ok(ArtifactOrFile::Artifact(Verify {
            kinds,
            rules: against,
            root: self.root.settings(environment, &registry.ca_files),
            format: self.output.format(),
            registry,
            reference,
        }))
    }
}

type Flag = (&'static str, Option<String>);

fn matcher(exact: Flag, pattern: Flag) -> Outcome<Option<Matcher>> {
    let (flag, read) = match (exact, pattern) {
        ((flag, Some(text)), _) => (flag, Matcher::exact(&text)),
        (_, (flag, Some(text))) => (flag, Matcher::pattern(&text)),
        _ => return Ok(None),
    };
    read.map(Some)
        .map_err(|why| invalid_flag(flag, &why).into())
}
