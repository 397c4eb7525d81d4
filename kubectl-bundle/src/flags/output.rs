//! Values of `-o`, by verb.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use super::path_after_output;
use crate::failure::Outcome;
use crate::ui::format::Format;

/// Flag for the output format of verbs that print a report instead of objects.
#[derive(Debug, Default, Clone, Copy, Args)]
pub(crate) struct OutputFlags {
    /// Output format
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        help_heading = "Output options"
    )]
    output: Option<DataFormat>,
}

impl OutputFlags {
    /// Returns the format, if the flag is set.
    pub(crate) fn format(self) -> Option<Format> {
        self.output.map(Into::into)
    }
}

/// Flags for the output format of verbs that write to a path.
#[derive(Debug, Default, Args)]
pub(crate) struct DestinationFlags {
    /// Output format: json or yaml
    #[arg(short, long, value_name = "FORMAT", help_heading = "Output options")]
    output: Option<FormatOrPath>,
    /// Alias of --output
    #[arg(long, value_name = "FORMAT", value_enum, hide = true)]
    format: Option<DataFormat>,
}

impl DestinationFlags {
    /// Returns the path from `to` (the value of `--to`), and the format.
    pub(crate) fn destination(
        self,
        to: Option<PathBuf>,
    ) -> Outcome<(Option<PathBuf>, Option<Format>)> {
        let format = self.format.map(Into::into);
        match self.output {
            None => Ok((to, format)),
            Some(FormatOrPath::Format(data)) => Ok((to, Some(data.into()))),
            Some(FormatOrPath::Path(path)) => {
                let message = format!("`{}` is not a format: json or yaml", path.display());
                Err(path_after_output(&message, &path).into())
            }
        }
    }
}

/// Formats of verbs that print a report instead of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Value of `-o` of verbs that write to a path. A path is parsed too, so that the error can name
/// `--to`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FormatOrPath {
    /// A format.
    Format(DataFormat),
    /// A path.
    Path(PathBuf),
}

impl FromStr for FormatOrPath {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "json" => Self::Format(DataFormat::Json),
            "yaml" => Self::Format(DataFormat::Yaml),
            path => Self::Path(path.into()),
        })
    }
}

/// Formats of verbs that print one object of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObjectFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// kind/name
    Name,
}

/// Formats of verbs that print a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// kind/name, one per line
    Name,
    /// More columns
    Wide,
}

/// Output flags of verbs that list objects.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output options")]
pub(crate) struct ListFlags {
    /// Print tables without column names
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<TableFormat>,
}

impl From<DataFormat> for Format {
    fn from(data: DataFormat) -> Self {
        match data {
            DataFormat::Json => Self::Json,
            DataFormat::Yaml => Self::Yaml,
        }
    }
}

impl From<ObjectFormat> for Format {
    fn from(object: ObjectFormat) -> Self {
        match object {
            ObjectFormat::Json => Self::Json,
            ObjectFormat::Yaml => Self::Yaml,
            ObjectFormat::Name => Self::Name,
        }
    }
}

impl From<TableFormat> for Format {
    fn from(wide: TableFormat) -> Self {
        match wide {
            TableFormat::Json => Self::Json,
            TableFormat::Yaml => Self::Yaml,
            TableFormat::Name => Self::Name,
            TableFormat::Wide => Self::Wide,
        }
    }
}
