//! Formats of `-o`, and the output of a value as JSON or YAML.

use serde::Serialize;

use super::Ui;
use crate::failure::Outcome;

/// Value of `-o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// JSON, indented.
    Json,
    /// YAML.
    Yaml,
    /// Only kind and name, for scripts.
    Name,
    /// More columns.
    Wide,
}

impl Ui {
    /// Prints `value` if the format is JSON or YAML. Returns `true` if `value` was printed.
    pub(crate) fn structured(
        &mut self,
        format: Option<Format>,
        value: &impl Serialize,
    ) -> Outcome<bool> {
        let text = match format {
            Some(Format::Json) => serde_json::to_string_pretty(value)
                .map(|text| text + "\n")
                .map_err(std::io::Error::other),
            Some(Format::Yaml) => serde_json::to_value(value)
                .map(|value| bundle_core::yaml::to_string(&value))
                .map_err(std::io::Error::other),
            Some(Format::Name | Format::Wide) | None => return Ok(false),
        }
        .map_err(|error| crate::failure::Failure::stdout(&error))?;
        self.text(&text)?;
        Ok(true)
    }
}
