//! Arguments of `keys`.

use clap::{Args, Subcommand, ValueEnum};

/// Create key pairs for signing.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Keys {
    /// Verb.
    #[command(subcommand)]
    pub(crate) verb: KeysVerb,
}

/// Verbs of `keys`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysVerb {
    /// Create a key pair, encrypted with a password, in cosign's format
    Generate(Generate),
    /// Print the public key of a private key
    Public(PublicKey),
    /// Convert another program's private key to a key pair
    Import(Import),
    /// Write an unencrypted private key for another program
    Export(Export),
}

/// Create a key pair: PREFIX.key (private, encrypted with a password, mode 0600) and PREFIX.pub.
///
/// cosign can use these files, and `sign` can use cosign's. The password comes from
/// $BUNDLE_PASSWORD, else $COSIGN_PASSWORD, else standard input with --password-stdin, else a
/// prompt. Existing files are never overwritten.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Create release.key and release.pub, with a password prompt
  kubectl bundle keys generate --output-key-prefix release

  # In a pipeline
  kubectl bundle keys generate --password-stdin < password.txt")]
pub(crate) struct Generate {
    /// Path of the files without extension
    #[arg(long, value_name = "PREFIX", default_value = "bundle")]
    pub(crate) output_key_prefix: std::path::PathBuf,
    /// Type of the key
    #[arg(long = "type", value_name = "TYPE", value_enum, default_value_t = KeyType::P256)]
    pub(crate) key_type: KeyType,
    /// Read the password from the first line of standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

/// Print the public key of a private key as PEM on stdout: of a file, or of a key in a KMS plugin.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle keys public --key release.key > release.pub

  # A key of the KMS plugin sigstore-kms-my-hsm
  kubectl bundle keys public --key my-hsm://slot/1 > release.pub")]
pub(crate) struct PublicKey {
    /// Private key: a file, or NAME://RESOURCE for a key of the KMS plugin sigstore-kms-NAME on
    /// PATH
    #[arg(long, value_name = "KEY")]
    pub(crate) key: std::path::PathBuf,
    /// Read the key's password from the first line of standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

/// Convert a private key of OpenSSL and other programs to a key pair: PREFIX.key (encrypted with a
/// password, mode 0600) and PREFIX.pub.
///
/// The key is an unencrypted ECDSA P-256 or Ed25519 key, as PKCS#8 or (P-256) SEC 1. The new
/// password comes from the same sources as for `keys generate`; with --key - the prompt is on the
/// terminal. Existing files are never overwritten.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle keys import --key release.pem --output-key-prefix release

  # An encrypted key, without a temporary file
  openssl pkey -in release.pem | kubectl bundle keys import --key - --output-key-prefix release")]
pub(crate) struct Import {
    /// Private key: a PEM file, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) key: std::path::PathBuf,
    /// Path of the new files without extension
    #[arg(long, value_name = "PREFIX", default_value = "bundle")]
    pub(crate) output_key_prefix: std::path::PathBuf,
    /// Read the new password from the first line of standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

/// Write a private key as unencrypted PKCS#8 to a new file with mode 0600, for programs that cannot
/// read cosign's files.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle keys export --key release.key --unencrypted-private-key --to release.pem")]
pub(crate) struct Export {
    /// Private key of `keys generate` or cosign
    #[arg(long, value_name = "FILE")]
    pub(crate) key: std::path::PathBuf,
    /// Confirm that anyone who can read the new file can sign with the key
    #[arg(long, required = true)]
    pub(crate) unencrypted_private_key: bool,
    /// New file
    #[arg(long, value_name = "FILE", required_unless_present = "output")]
    pub(crate) to: Option<std::path::PathBuf>,
    /// Path after `-o`, the former name of the flag; the error names `--to`.
    #[arg(short, long, value_name = "FILE", hide = true)]
    pub(crate) output: Option<std::path::PathBuf>,
    /// Read the key's password from the first line of standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

/// Type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyType {
    /// ECDSA with curve P-256, cosign's default
    P256,
    /// Ed25519
    Ed25519,
}
