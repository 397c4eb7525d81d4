//! Settings of the verbs that sign or create keys.

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use bundle_trust::attest::PredicateType;
use bundle_trust::keyless::LogVersion;
use bundle_trust::keys::KeyKind;

use super::{Environment, identity, not_a_path, registry, unusable};
use crate::args::{self, KeyType};
use crate::commands::ArtifactOrFile;
use crate::commands::signing::sign::file::SignFile;
use crate::commands::signing::{attest, keys, sign};
use crate::failure::Outcome;
use crate::registry::RegistrySettings;
use crate::signer::kms::KeyLocation;
use crate::signer::{KeySettings, SignerSettings};
use crate::sigstore;
use crate::sigstore::root::WantedRoot;

/// Returns the settings of `keys generate`.
pub(crate) fn generate(
    args: args::Generate,
    environment: &Environment,
) -> keys::generate::Generate {
    keys::generate::Generate {
        prefix: args.output_key_prefix,
        kind: match args.key_type {
            KeyType::P256 => KeyKind::EcdsaP256,
            KeyType::Ed25519 => KeyKind::Ed25519,
        },
        password: environment.password_source(args.password_stdin),
    }
}

/// Returns the settings of `keys public`.
pub(crate) fn public(
    args: args::PublicKey,
    environment: &Environment,
) -> Outcome<keys::public::Public> {
    Ok(keys::public::Public {
        key: secret(args.key, args.password_stdin, environment)?,
    })
}

/// Returns the settings of `keys import`.
pub(crate) fn import(
    args: args::Import,
    environment: &Environment,
) -> Outcome<keys::import::Import> {
    if args.password_stdin && args.key == Path::new("-") {
        let why = "standard input cannot be both the key and its new password";
        return Err(unusable("--key", why).into());
    }
    Ok(keys::import::Import {
        key: args.key,
        prefix: args.output_key_prefix,
        password: environment.password_source(args.password_stdin),
    })
}

/// Returns the settings of `keys export`. clap has checked that the confirming flag is set.
pub(crate) fn export(
    args: args::Export,
    environment: &Environment,
) -> Outcome<keys::export::Export> {
    let args::Export {
        key,
        unencrypted_private_key: _,
        to,
        output,
        password_stdin,
    } = args;
    if let Some(path) = output {
        return Err(not_a_path("no format is required here", &path).into());
    }
    Ok(keys::export::Export {
        key,
        password: environment.password_source(password_stdin),
        output: to.unwrap_or_default(),
    })
}

/// Returns the settings of `sign`.
pub(crate) fn sign(
    args: args::Sign,
    environment: &Environment,
) -> Outcome<ArtifactOrFile<sign::Sign, SignFile>> {
    if let Some(bundle) = args.bundle {
        let registry = registry::settings(args.registry, environment)?;
        return Ok(ArtifactOrFile::File(SignFile {
            file: args.reference.into(),
            bundle,
            force: args.force,
            predicate: None,
            by: signer(args.by, environment, &registry)?,
            format: args.output.map(Into::into),
        }));
    }
    let reference = registry::reference_or_file(&args.reference)?;
    let registry = registry::settings(args.registry, environment)?.of(&reference);
    let mut by_args = args.by;
    if matches!(args.format, args::SignatureForm::Legacy) {
        let version = &mut by_args.keyless.rekor_version;
        *version = require_rekor_v1(*version)?;
    }
    let by = signer(by_args, environment, &registry)?;
    Ok(ArtifactOrFile::Artifact(sign::Sign {
        by,
        form: match args.format {
            args::SignatureForm::Bundle => sign::StorageFormat::Bundle,
            args::SignatureForm::Legacy => sign::StorageFormat::Legacy,
        },
        format: args.output.map(Into::into),
        registry,
        reference,
    }))
}

/// Returns the settings of `attest`.
pub(crate) fn attest(
    args: args::Attest,
    environment: &Environment,
) -> Outcome<ArtifactOrFile<attest::Attest, SignFile>> {
    let kind = PredicateType::parse(&args.kind).map_err(|why| unusable("--type", &why))?;
    let stdin = args.by.password_stdin || args.by.keyless.identity_token.as_deref() == Some("-");
    if stdin && args.predicate == Path::new("-") {
        let why = "standard input cannot be both the predicate and a secret";
        return Err(unusable("--predicate", why).into());
    }
    if let Some(bundle) = args.bundle {
        let registry = registry::settings(args.registry, environment)?;
        return Ok(ArtifactOrFile::File(SignFile {
            file: args.reference.into(),
            bundle,
            force: args.force,
            predicate: Some((args.predicate, kind)),
            by: signer(args.by, environment, &registry)?,
            format: args.output.map(Into::into),
        }));
    }
    let reference = registry::reference_or_file(&args.reference)?;
    let registry = registry::settings(args.registry, environment)?.of(&reference);
    Ok(ArtifactOrFile::Artifact(attest::Attest {
        predicate: args.predicate,
        kind,
        by: signer(args.by, environment, &registry)?,
        format: args.output.map(Into::into),
        registry,
        reference,
    }))
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

/// Returns the signer: a key, or the identity of a token.
fn signer(
    args: args::SignerFlags,
    environment: &Environment,
    registry: &RegistrySettings,
) -> Outcome<SignerSettings> {
    let args::SignerFlags {
        key,
        password_stdin,
        keyless,
    } = args;
    Ok(match key {
        Some(given) => SignerSettings::Key(secret(given, password_stdin, environment)?),
        None => SignerSettings::Certificate(Box::new(sigstore::Settings {
            token: identity::source(&keyless, environment)?,
            audience: keyless.oidc_client_id,
            issuer: keyless.oidc_issuer,
            config: keyless.signing_config,
            fulcio: keyless.fulcio_url,
            rekor: keyless.rekor_url,
            rekor_version: keyless.rekor_version.and_then(LogVersion::of),
            timestamps: keyless.timestamp_server_url,
            root: WantedRoot {
                file: keyless.trusted_root,
                offline: false,
                folders: environment.trust_folders(),
                ca_files: registry.ca_files.clone(),
            },
            ca_files: registry.ca_files.clone(),
        })),
    })
}

fn secret(given: PathBuf, password_stdin: bool, environment: &Environment) -> Outcome<KeySettings> {
    Ok(KeySettings {
        place: KeyLocation::read(given, environment.is_attended())?,
        password: environment.password_source(password_stdin),
    })
}
