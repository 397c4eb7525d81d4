//! Values of `-o`, by verb.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;

use crate::ui::format::Format;

/// Formats of verbs that print their own data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Data {
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
    Format(Data),
    /// A path.
    Path(PathBuf),
}

impl FromStr for FormatOrPath {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "json" => Self::Format(Data::Json),
            "yaml" => Self::Format(Data::Yaml),
            path => Self::Path(path.into()),
        })
    }
}

/// Formats of verbs that print one object of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Object {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// kind/name
    Name,
}

/// Formats of verbs that print a table.
#[expect(clippy::enum_variant_names, reason = "kubectl calls it wide")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wide {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// kind/name, one per line
    Name,
    /// More columns
    Wide,
}

impl From<Data> for Format {
    fn from(data: Data) -> Self {
        match data {
            Data::Json => Self::Json,
            Data::Yaml => Self::Yaml,
        }
    }
}

impl From<Object> for Format {
    fn from(object: Object) -> Self {
        match object {
            Object::Json => Self::Json,
            Object::Yaml => Self::Yaml,
            Object::Name => Self::Name,
        }
    }
}

impl From<Wide> for Format {
    fn from(wide: Wide) -> Self {
        match wide {
            Wide::Json => Self::Json,
            Wide::Yaml => Self::Yaml,
            Wide::Name => Self::Name,
            Wide::Wide => Self::Wide,
        }
    }
}
