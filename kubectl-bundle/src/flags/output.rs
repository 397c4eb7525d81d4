//! Values of `-o`, by verb.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;

use crate::ui::format::Format;

/// Formats of verbs that print their own data.
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
pub(crate) enum FormatOrPath {
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
