//! Flags for signers and trust roots, which several verbs share.

use std::path::PathBuf;

use bundle_trust::keyless::LogVersion;
use clap::{Args, ValueEnum};

use crate::failure::Outcome;
use crate::flags::{Environment, invalid_flag};
use crate::registry::RegistrySettings;
use crate::signer::kms::KeyLocation;
use crate::signer::{KeySettings, SignerSettings};
use crate::sigstore::root::TrustRootSettings;
use crate::sigstore::{self, LoginKind, Opener, TokenSource};

/// Flags of the signer.
#[derive(Debug, Args)]
pub(crate) struct SignerFlags {
    /// Private key: a file of `keys generate` or cosign, or NAME://RESOURCE for a key of the KMS
    /// plugin sigstore-kms-NAME on PATH
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<PathBuf>,
    /// Read the key's password from the first line of standard input
    #[arg(long, requires = "key", conflicts_with_all = ["registry_password_stdin", "registry_token_stdin"])]
    pub(crate) password_stdin: bool,
    /// Flags for a certificate instead of a key.
    #[command(flatten)]
    pub(crate) keyless: KeylessFlags,
}

impl SignerFlags {
    /// Returns the signer: a key, or the identity of a token.
    pub(crate) fn settings(
        self,
        environment: &Environment,
        registry: &RegistrySettings,
    ) -> Outcome<SignerSettings> {
        let Self {
            key,
            password_stdin,
            keyless,
        } = self;
        Ok(match key {
            Some(given) => SignerSettings::Key(key_settings(given, password_stdin, environment)?),
            None => SignerSettings::Certificate(Box::new(sigstore::Settings {
                token: token_source(&keyless, environment)?,
                audience: keyless.oidc_client_id,
                issuer: keyless.oidc_issuer,
                config: keyless.signing_config,
                fulcio: keyless.fulcio_url,
                rekor: keyless.rekor_url,
                rekor_version: keyless.rekor_version.and_then(LogVersion::of),
                timestamps: keyless.timestamp_server_url,
                root: TrustRootSettings {
                    file: keyless.trusted_root,
                    offline: false,
                    folders: environment.trust_folders(),
                    ca_files: registry.ca_files.clone(),
                },
                ca_files: registry.ca_files.clone(),
            })),
        })
    }
}

/// Flags for a certificate of Fulcio with an entry in Rekor.
#[derive(Debug, Args)]
#[command(next_help_heading = "Signing without a key")]
pub(crate) struct KeylessFlags {
    /// Identity token: the token, a file, or - for standard input [default: $SIGSTORE_ID_TOKEN,
    /// else a token of GitHub Actions or Buildkite, else a login]
    #[arg(long, value_name = "TOKEN", conflicts_with = "key")]
    pub(crate) identity_token: Option<String>,
    /// Login: in a browser on this machine, with a code on any device, or never
    #[arg(long, value_name = "FLOW", value_enum, conflicts_with = "key")]
    pub(crate) fulcio_auth_flow: Option<AuthFlow>,
    /// OpenID Connect issuer for the login. The certificate authority must accept this issuer
    /// [default: the issuer of the signing config or of the public instance]
    #[arg(long, value_name = "URL", conflicts_with = "key")]
    pub(crate) oidc_issuer: Option<String>,
    /// Client ID of the login. Identity tokens must have this ID as their audience
    #[arg(
        long,
        value_name = "ID",
        default_value = "sigstore",
        conflicts_with = "key"
    )]
    pub(crate) oidc_client_id: String,
    /// URLs of the services of a Sigstore instance (signing_config.json, v0.2), instead of the
    /// public services
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    pub(crate) signing_config: Option<PathBuf>,
    /// URL of the certificate authority (Fulcio)
    #[arg(long, value_name = "URL", conflicts_with = "key")]
    pub(crate) fulcio_url: Option<String>,
    /// URL of the transparency log (Rekor)
    #[arg(long, value_name = "URL", conflicts_with = "key")]
    pub(crate) rekor_url: Option<String>,
    /// Version of the log in --rekor-url (default 1), or of the log to select from the signing
    /// config (default newest). Version 2 requires a timestamp authority
    #[arg(long, value_name = "VERSION", conflicts_with = "key", value_parser = clap::value_parser!(u32).range(1..=2))]
    pub(crate) rekor_version: Option<u32>,
    /// URL of the timestamp authority (RFC 3161)
    #[arg(long, value_name = "URL", conflicts_with = "key")]
    pub(crate) timestamp_server_url: Option<String>,
    /// File trusted_root.json. The signature must be valid under this trust root before it is
    /// stored
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    pub(crate) trusted_root: Option<PathBuf>,
}

/// Kind of login, with cosign's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuthFlow {
    /// Log in in a browser on this machine
    Normal,
    /// Log in on any device, with a code
    Device,
    /// Use only a token from a flag or the environment
    Token,
}

/// Returns the settings of a private key.
pub(crate) fn key_settings(
    given: PathBuf,
    password_stdin: bool,
    environment: &Environment,
) -> Outcome<KeySettings> {
    Ok(KeySettings {
        location: KeyLocation::read(given, environment.is_attended())?,
        password: environment.password_source(password_stdin),
    })
}

/// Returns the source of the token. A login is used only if it was requested, or if a user is
/// present.
fn token_source(args: &KeylessFlags, environment: &Environment) -> Outcome<TokenSource> {
    let opener = || Opener::find(environment.graphical);
    let there = environment.token_source();
    Ok(match (&args.identity_token, args.fulcio_auth_flow) {
        (Some(_), Some(AuthFlow::Normal | AuthFlow::Device)) => {
            let why = "a login is not necessary with a token";
            return Err(invalid_flag("--fulcio-auth-flow", why).into());
        }
        (Some(given), _) => TokenSource::Flag(given.clone().into()),
        (None, Some(AuthFlow::Normal)) => TokenSource::Login(LoginKind::Browser(opener())),
        (None, Some(AuthFlow::Device)) => TokenSource::Login(LoginKind::Device),
        (None, None) if there.is_none() && environment.is_attended() => match opener() {
            Some(opener) => TokenSource::Login(LoginKind::Browser(Some(opener))),
            None => TokenSource::Login(LoginKind::Device),
        },
        (None, _) => there.unwrap_or(TokenSource::Missing),
    })
}

/// Flags for the trust root.
#[derive(Debug, Args)]
#[command(next_help_heading = "Trust options")]
pub(crate) struct TrustRootFlags {
    /// File trusted_root.json of a Sigstore instance [default: the trust root of `trust init`, else
    /// the built-in trust root of the public instance]
    #[arg(long, value_name = "FILE")]
    pub(crate) trusted_root: Option<PathBuf>,
    /// Do not refresh the TUF repository of `trust init`. Logs are never queried: the evidence in
    /// the signature must be sufficient
    #[arg(long)]
    pub(crate) offline: bool,
}

impl TrustRootFlags {
    /// Returns the settings of the trust root.
    pub(crate) fn settings(
        self,
        environment: &Environment,
        ca_files: &[PathBuf],
    ) -> TrustRootSettings {
        TrustRootSettings {
            file: self.trusted_root,
            offline: self.offline,
            folders: environment.trust_folders(),
            ca_files: ca_files.to_vec(),
        }
    }
}
