//! `keys`: what kind, and where to.
//! Not here: passwords; they come from the environment, a prompt or stdin, never from a flag.

use clap::{Args, Subcommand, ValueEnum};

/// Make key pairs for signing.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Keys {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: KeysVerb,
}

/// What can be done with keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysVerb {
    /// Make a key pair, encrypted under a password, as cosign makes it
    Generate(Generate),
    /// Print the public half of a private key
    Public(PublicHalf),
}

/// Make a key pair: PREFIX.key (private, encrypted under a password, mode 0600) and PREFIX.pub.
///
/// cosign can use these files, and `sign` can use cosign's. The password is taken from $BUNDLE_PASSWORD, else $COSIGN_PASSWORD,
/// else standard input with --password-stdin, else asked for. Files that exist are never overwritten.
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

/// Print the public half of a private key, as PEM text on stdout: of a file, or of a key that a plugin holds.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle keys public --key release.key > release.pub

  # Of a key that the program sigstore-kms-my-hsm holds
  kubectl bundle keys public --key my-hsm://slot/1 > release.pub")]
pub(crate) struct PublicHalf {
    /// The private key: a file, or NAME://RESOURCE for a key that the program sigstore-kms-NAME on PATH holds
    #[arg(long, value_name = "KEY")]
    pub(crate) key: std::path::PathBuf,
    /// Read the key's password from the first line of standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

/// Kinds of key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyType {
    /// ECDSA on the curve P-256, cosign's own kind
    P256,
    /// Ed25519
    Ed25519,
}
