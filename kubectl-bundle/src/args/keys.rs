//! Arguments of `keys`.

use clap::{Args, Subcommand, ValueEnum};

/// Make key pairs for signing.
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
    /// Make a key pair, encrypted under a password, as cosign makes it
    Generate(Generate),
    /// Print the public half of a private key
    Public(PublicHalf),
    /// Make a key pair out of another program's private key
    Import(Import),
    /// Write a private key for another program, not encrypted
    Export(Export),
}

/// Make a key pair: PREFIX.key (private, encrypted under a password, mode 0600) and PREFIX.pub.
///
/// cosign can use these files, and `sign` can use cosign's. The password is taken from
/// $BUNDLE_PASSWORD, else $COSIGN_PASSWORD, else standard input with --password-stdin, else asked
/// for. Files that exist are never overwritten.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # release.key and release.pub, asking for a password
  kubectl bundle keys generate --output-key-prefix release

  # In a pipeline
  kubectl bundle keys generate --password-stdin < password.txt")]
pub(crate) struct Generate {
    /// Path of the files, without their endings
    #[arg(long, value_name = "PREFIX", default_value = "bundle")]
    pub(crate) output_key_prefix: std::path::PathBuf,
    /// Kind of key
    #[arg(long = "type", value_name = "TYPE", value_enum, default_value_t = KeyType::P256)]
    pub(crate) key_type: KeyType,
    /// Read the password from the first line of standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

/// Print the public half of a private key, as PEM text on stdout: of a file, or of a key that a
/// plugin holds.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle keys public --key release.key > release.pub

  # Of a key that the program sigstore-kms-my-hsm holds
  kubectl bundle keys public --key my-hsm://slot/1 > release.pub")]
pub(crate) struct PublicHalf {
    /// The private key: a file, or NAME://RESOURCE for a key that the program sigstore-kms-NAME on
    /// PATH holds
    #[arg(long, value_name = "KEY")]
    pub(crate) key: std::path::PathBuf,
    /// Read the key's password from the first line of standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

/// Make a key pair out of a private key as OpenSSL and others write it: PREFIX.key (encrypted under
/// a password, mode 0600) and PREFIX.pub.
///
/// The key is ECDSA P-256 or Ed25519, as PKCS#8 or (P-256) SEC 1 have it, and not encrypted. The
/// new password comes from where that of `keys generate` does; with --key - it is asked for on the
/// terminal itself. Files that exist are never overwritten.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle keys import --key release.pem --output-key-prefix release

  # One that is encrypted, without writing it to a file on the way
  openssl pkey -in release.pem | kubectl bundle keys import --key - --output-key-prefix release")]
pub(crate) struct Import {
    /// The private key: a file of PEM text, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) key: std::path::PathBuf,
    /// Path of the new files, without their endings
    #[arg(long, value_name = "PREFIX", default_value = "bundle")]
    pub(crate) output_key_prefix: std::path::PathBuf,
    /// Read the new password from the first line of standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

/// Write a private key as PKCS#8 that is not encrypted, into a new file of mode 0600, for programs
/// that cannot read cosign's files.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle keys export --key release.key --unencrypted-private-key --to release.pem")]
pub(crate) struct Export {
    /// The private key, as `keys generate` or cosign made it
    #[arg(long, value_name = "FILE")]
    pub(crate) key: std::path::PathBuf,
    /// Yes: whoever can read the new file can sign with the key
    #[arg(long, required = true)]
    pub(crate) unencrypted_private_key: bool,
    /// The new file
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
    /// ECDSA on the curve P-256, cosign's own kind
    P256,
    /// Ed25519
    Ed25519,
}
