//! Arguments of `unpack`.

use std::path::PathBuf;

use clap::Args;

use super::{Data, FormatOrPath, Registry};

/// Write the files of a bundle, or of any other image, into a folder.
///
/// The folder is new or empty, and is there only when everything is: what fails leaves nothing
/// behind. Files get no more permissions than their owner's to write, and no setuid. Symbolic links
/// are made if they stay inside; those that begin at the image's root begin at the folder. Anything
/// else - devices, named pipes, links that lead outside - is refused, or left out with
/// --skip-unsafe.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # A bundle, into ./web
  kubectl bundle unpack registry.example.com/team/web:1.4.0 --to web

  # What an archive holds
  kubectl bundle unpack web-1.4.0.tar --to web

  # Any image, for one platform, without its devices
  kubectl bundle unpack registry.example.com/library/debian:13 --platform linux/arm64 --skip-unsafe --to debian")]
pub(crate) struct Unpack {
    /// A reference, an OCI layout or an archive
    #[arg(value_name = "REF|LAYOUT|ARCHIVE")]
    pub(crate) source: String,
    /// The folder [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Of an index, the image for this platform, such as linux/amd64
    #[arg(long, value_name = "OS/ARCH")]
    pub(crate) platform: Option<String>,
    /// Replace the folder as a whole if there is something in it
    #[arg(long)]
    pub(crate) force: bool,
    /// Leave out what cannot be written safely, and say so, instead of refusing everything
    #[arg(long)]
    pub(crate) skip_unsafe: bool,
    /// Print as data: json or yaml
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<FormatOrPath>,
    /// The same as --output
    #[arg(long, value_name = "FORMAT", value_enum, hide = true)]
    pub(crate) format: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
