//! Arguments of `keys` and its verbs.

use std::path::{Path, PathBuf};

use bundle_trust::keys::KeyKind;
use clap::{Args, Subcommand, ValueEnum};

use super::export::Export;
use super::generate::Generate;
use super::import::Import;
use super::public::Public;
use crate::commands::signing::arguments::key_settings;
use crate::failure::Outcome;
use crate::flags::{Environment, invalid_flag, path_after_output};
use crate::ui::Ui;

/// Create key pairs for signing.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// Verb.
    #[command(subcommand)]
    pub(crate) verb: KeysVerb,
}

impl Arguments {
    /// Runs the verb.
    pub(crate) fn run(self, environment: &Environment, ui: &mut Ui) -> Outcome {
        match self.verb {
            KeysVerb::Generate(typed) => typed.settings(environment).run(ui),
            KeysVerb::Public(typed) => typed.settings(environment)?.run(ui),
            KeysVerb::Import(typed) => typed.settings(environment)?.run(ui),
            KeysVerb::Export(typed) => typed.settings(environment)?.run(ui),
        }
    }
}

/// Verbs of `keys`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysVerb {
    /// Create a key pair, encrypted with a password, in cosign's format
    Generate(GenerateArguments),
    /// Print the public key of a private key
    Public(PublicArguments),
    /// Convert another program's private key to a key pair
    Import(ImportArguments),
    /// Write an unencrypted private key for another program
    Export(ExportArguments),
}

/// Create a key pair: PREFIX.key (private, encrypted with a password, mode 0600) and PREFIX.pub.
///
/// cosign can use these files, and `sign` can use files of cosign. The password comes from the
/// first of these sources: standard input with --password-stdin, $BUNDLE_PASSWORD,
/// $COSIGN_PASSWORD, a prompt. Existing files are never overwritten.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Create release.key and release.pub, with a password prompt
  kubectl bundle keys generate --output-key-prefix release

  # In a pipeline
  kubectl bundle keys generate --password-stdin < password.txt")]
pub(crate) struct GenerateArguments {
    /// Path of the files without extension
    #[arg(long, value_name = "PREFIX", default_value = "bundle")]
    pub(crate) output_key_prefix: PathBuf,
    /// Type of the key
    #[arg(long = "type", value_name = "TYPE", value_enum, default_value_t = KeyType::P256)]
    pub(crate) key_type: KeyType,
    /// Read the password from the first line of standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

impl GenerateArguments {
    /// Returns the settings of `keys generate`.
    pub(crate) fn settings(self, environment: &Environment) -> Generate {
        Generate {
            prefix: self.output_key_prefix,
            kind: match self.key_type {
                KeyType::P256 => KeyKind::EcdsaP256,
                KeyType::Ed25519 => KeyKind::Ed25519,
            },
            password: environment.password_source(self.password_stdin),
        }
    }
}

/// Print the public key of a private key as PEM on stdout. The private key is a file, or a key in a
/// KMS plugin.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle keys public --key release.key > release.pub

  # A key of the KMS plugin sigstore-kms-my-hsm
  kubectl bundle keys public --key my-hsm://slot/1 > release.pub")]
pub(crate) struct PublicArguments {
    /// Private key: a file, or NAME://RESOURCE for a key of the KMS plugin sigstore-kms-NAME on
    /// PATH
    #[arg(long, value_name = "KEY")]
    pub(crate) key: PathBuf,
    /// Read the key's password from the first line of standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

impl PublicArguments {
    /// Returns the settings of `keys public`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Public> {
        Ok(Public {
            key: key_settings(self.key, self.password_stdin, environment)?,
        })
    }
}

/// Convert a private key of OpenSSL or another program to a key pair: PREFIX.key (encrypted with a
/// password, mode 0600) and PREFIX.pub.
///
/// The key is an unencrypted ECDSA P-256 or Ed25519 key in the format PKCS#8. A P-256 key can also
/// have the format SEC 1. The new password comes from the same sources as for `keys generate`. If
/// --key reads standard input, the prompt for the password is on the terminal. Existing files are
/// never overwritten.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle keys import --key release.pem --output-key-prefix release

  # An encrypted key, without a temporary file
  openssl pkey -in release.pem | kubectl bundle keys import --key - --output-key-prefix release")]
pub(crate) struct ImportArguments {
    /// Private key: a PEM file, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Path of the new files without extension
    #[arg(long, value_name = "PREFIX", default_value = "bundle")]
    pub(crate) output_key_prefix: PathBuf,
    /// Read the new password from the first line of standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

impl ImportArguments {
    /// Returns the settings of `keys import`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Import> {
        if self.password_stdin && self.key == Path::new("-") {
            let why = "standard input cannot be both the key and its new password";
            return Err(invalid_flag("--key", why).into());
        }
        Ok(Import {
            key: self.key,
            prefix: self.output_key_prefix,
            password: environment.password_source(self.password_stdin),
        })
    }
}

/// Write a private key as unencrypted PKCS#8 to a new file with mode 0600, for programs that cannot
/// read cosign's files.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle keys export --key release.key --unencrypted-private-key --to release.pem")]
pub(crate) struct ExportArguments {
    /// Private key of `keys generate` or cosign
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Confirm that every user who can read the new file can sign with the key
    #[arg(long, required = true)]
    pub(crate) unencrypted_private_key: bool,
    /// New file
    #[arg(long, value_name = "FILE", required_unless_present = "output")]
    pub(crate) to: Option<PathBuf>,
    /// Path after `-o`, which is the former name of the flag `--to`. The error names `--to`.
    #[arg(short, long, value_name = "FILE", hide = true)]
    pub(crate) output: Option<PathBuf>,
    /// Read the key's password from the first line of standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

impl ExportArguments {
    /// Returns the settings of `keys export`. clap has checked that the flag
    /// `--unencrypted-private-key` is set.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Export> {
        let Self {
            key,
            unencrypted_private_key: _,
            to,
            output,
            password_stdin,
        } = self;
        if let Some(path) = output {
            return Err(path_after_output("this command has no output format", &path).into());
        }
        Ok(Export {
            key,
            password: environment.password_source(password_stdin),
            output: to.unwrap_or_default(),
        })
    }
}

/// Type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyType {
    /// ECDSA with curve P-256, cosign's default
    P256,
    /// Ed25519
    Ed25519,
}
