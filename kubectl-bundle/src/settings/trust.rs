//! What `verify` and `policy test` are to do.
//! Not here: reading keys, policies and trust roots (commands).

use bundle_core::policy::{Identity, Matcher};

use bundle_trust::attest::PredicateType;

use super::{Environment, registry, unusable};
use crate::args;
use crate::commands::Command;
use crate::commands::blob::verify::VerifyFile;
use crate::commands::policy::test::PolicyTest;
use crate::commands::verify::wanted::Wanted;
use crate::commands::verify::{Against, Verify};
use crate::failure::Outcome;
use crate::kms::Place;

pub(super) fn verify(args: args::Verify, environment: &Environment) -> Outcome<Command> {
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
            Against::Signer(Wanted::Identity(Identity { issuer, subject }))
        }
        _ if args.policy.is_empty() => {
            let keys = args.key.into_iter();
            let place = |given| Place::read(given, environment.is_attended());
            Against::Signer(Wanted::Keys(keys.map(place).collect::<Outcome<_>>()?))
        }
        _ => Against::Policies(args.policy),
    };
    let kinds = args
        .attestation
        .iter()
        .map(|kind| PredicateType::parse(kind))
        .collect::<Result<_, _>>()
        .map_err(|why| unusable("--attestation", &why))?;
    let against = match (args.bundle, against) {
        (Some(bundle), Against::Signer(wanted)) => {
            return Ok(Command::VerifyFile(VerifyFile {
                file: args.reference.into(),
                bundle,
                wanted,
                trusted_root: root(args.root),
                format: args.output.map(Into::into),
            }));
        }
        (_, against) => against,
    };
    let reference = registry::reference_or_file(&args.reference)?;
    Ok(Command::Verify(Verify {
        kinds,
        against,
        trusted_root: root(args.root),
        format: args.output.map(Into::into),
        registry: registry::settings(args.registry, environment)?.of(&reference),
        reference,
    }))
}

pub(super) fn policy_test(
    args: args::PolicyTest,
    environment: &Environment,
) -> Outcome<PolicyTest> {
    Ok(PolicyTest {
        file: args.file,
        image: registry::reference(&args.image)?,
        trusted_root: root(args.root),
        format: args.output.map(Into::into),
        registry: registry::settings(args.registry, environment)?,
    })
}

/// Nothing is ever asked but the registry, so that `--offline` changes nothing.
fn root(args: args::TrustRoot) -> Option<std::path::PathBuf> {
    let args::TrustRoot {
        trusted_root,
        offline: _,
    } = args;
    trusted_root
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
