//! Settings of `verify` and `policy test`.

use std::path::PathBuf;

use bundle_core::policy::{Identity, Matcher};

use bundle_trust::attest::PredicateType;

use super::{Environment, registry, unusable};
use crate::args;
use crate::commands::ArtifactOrFile;
use crate::commands::signing::policy::test::PolicyTest;
use crate::commands::signing::trust::{init, reset, show, update};
use crate::commands::signing::verify::accepted_signers::AcceptedSigners;
use crate::commands::signing::verify::file::VerifyFile;
use crate::commands::signing::verify::{VerificationRules, Verify};
use crate::failure::Outcome;
use crate::signer::kms::KeyLocation;
use crate::sigstore::root::WantedRoot;

/// Returns the settings of `verify`.
pub(crate) fn verify(
    args: args::Verify,
    environment: &Environment,
) -> Outcome<ArtifactOrFile<Verify, VerifyFile>> {
    let subject = matcher(
        ("--certificate-identity", args.certificate_identity),
        (
            "--certificate-identity-regexp",
            args.certificate_identity_regexp,
        ),
    )?;
    let issuer = matcher(
        ("--certificate-oidc-issuer", args.certificate_oidc_issuer),
        (
            "--certificate-oidc-issuer-regexp",
            args.certificate_oidc_issuer_regexp,
        ),
    )?;
    let against = match (subject, issuer) {
        (Some(subject), Some(issuer)) => {
            VerificationRules::Signer(AcceptedSigners::Identity(Identity { issuer, subject }))
        }
        _ if args.policy.is_empty() => {
            let keys = args.key.into_iter();
            let place = |given| KeyLocation::read(given, environment.is_attended());
            VerificationRules::Signer(AcceptedSigners::Keys(
                keys.map(place).collect::<Outcome<_>>()?,
            ))
        }
        _ => VerificationRules::Policies(args.policy),
    };
    let kinds = args
        .attestation
        .iter()
        .map(|kind| PredicateType::parse(kind))
        .collect::<Result<_, _>>()
        .map_err(|why| unusable("--attestation", &why))?;
    let settings = registry::settings(args.registry, environment)?;
    let against = match (args.bundle, against) {
        (Some(bundle), VerificationRules::Signer(wanted)) => {
            return Ok(ArtifactOrFile::File(VerifyFile {
                file: args.reference.into(),
                bundle,
                wanted,
                kinds,
                root: root(args.root, environment, &settings.ca_files),
                format: args.output.map(Into::into),
            }));
        }
        (_, against) => against,
    };
    let reference = registry::reference_or_file(&args.reference)?;
    let registry = settings.of(&reference);
    Ok(ArtifactOrFile::Artifact(Verify {
        kinds,
        against,
        root: root(args.root, environment, &registry.ca_files),
        format: args.output.map(Into::into),
        registry,
        reference,
    }))
}

/// Returns the settings of `policy test`.
pub(crate) fn policy_test(
    args: args::PolicyTest,
    environment: &Environment,
) -> Outcome<PolicyTest> {
    let registry = registry::settings(args.registry, environment)?;
    Ok(PolicyTest {
        file: args.file,
        image: registry::reference(&args.image)?,
        root: root(args.root, environment, &registry.ca_files),
        format: args.output.map(Into::into),
        registry,
    })
}

fn root(args: args::TrustRoot, environment: &Environment, ca_files: &[PathBuf]) -> WantedRoot {
    WantedRoot {
        file: args.trusted_root,
        offline: args.offline,
        folders: environment.trust_folders(),
        ca_files: ca_files.to_vec(),
    }
}

/// Returns the settings for the repository of `trust init`, with these connection flags.
fn wanted_root(connection: args::TufFlags, environment: &Environment) -> WantedRoot {
    WantedRoot {
        file: None,
        offline: false,
        folders: environment.trust_folders(),
        ca_files: connection.ca_file,
    }
}

/// Returns the settings of `trust init`.
pub(crate) fn init(args: args::TrustInit, environment: &Environment) -> init::Init {
    init::Init {
        repository: args.mirror.zip(args.root),
        wanted: wanted_root(args.connection, environment),
        format: args.output.map(Into::into),
    }
}

/// Returns the settings of `trust update`.
pub(crate) fn update(args: args::TrustUpdate, environment: &Environment) -> update::Update {
    update::Update {
        wanted: wanted_root(args.connection, environment),
        format: args.output.map(Into::into),
    }
}

/// Returns the settings of `trust show`.
pub(crate) fn show(args: args::TrustShow, environment: &Environment) -> show::Show {
    show::Show {
        wanted: WantedRoot {
            offline: args.offline,
            ..wanted_root(args.connection, environment)
        },
        text: args.root_file,
        format: args.output.map(Into::into),
    }
}

/// Returns the settings of `trust reset`.
pub(crate) fn reset(environment: &Environment) -> reset::Reset {
    let connection = args::TufFlags {
        ca_file: Vec::new(),
    };
    reset::Reset {
        wanted: wanted_root(connection, environment),
    }
}

type Flag = (&'static str, Option<String>);

fn matcher(exact: Flag, pattern: Flag) -> Outcome<Option<Matcher>> {
    let (flag, read) = match (exact, pattern) {
        ((flag, Some(text)), _) => (flag, Matcher::exact(&text)),
        (_, (flag, Some(text))) => (flag, Matcher::pattern(&text)),
        _ => return Ok(None),
    };
    read.map(Some).map_err(|why| unusable(flag, &why).into())
}
