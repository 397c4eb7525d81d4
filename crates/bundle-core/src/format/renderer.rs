//! Interface between content and format:
//! - the input of a rendering
//! - the external command that renders
//! - the parts of the input that the objects depend on
//!
//! Each format implements [`ContentFormat`] in one file.

use std::{ffi::OsString, path::Path};

use serde_json::{Value, json};

use super::Files;
use crate::{
    diagnostic::Findings,
    json,
    object::Manifest,
    package::Package,
    reference::Digest,
    yaml::{Allowance, Weight},
};

/// Installation for which a content is rendered. Unknown parts are empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RenderTarget {
    /// Name of the BundleDeployment that installs the content; `None` if unknown.
    pub name: Option<String>,
    /// Namespace of the installation (`spec.targetNamespace`); `None` if unknown.
    pub namespace: Option<String>,
    /// Configuration (`spec.config`); `None` if unknown.
    pub config: Option<Value>,
    /// Kubernetes version: major, minor and patch; `None` if unknown.
    pub kubernetes: Option<[u64; 3]>,
}

impl RenderTarget {
    /// Returns an installation with only the namespace. All other parts are unknown.
    pub fn in_namespace(namespace: Option<&str>) -> Self {
        Self {
            namespace: namespace.map(str::to_owned),
            ..Self::default()
        }
    }
}

/// Input of a rendering.
#[derive(Debug, Clone, Copy)]
pub struct RenderInput<'a> {
    /// Files of the bundle.
    pub files: &'a Files,
    /// Installation for which the content is rendered.
    pub target: &'a RenderTarget,
    /// Output of the external command. Formats without a command ([`super::command`]) ignore this
    /// output.
    pub output: CommandOutput<'a>,
}

/// Output of the external command of a format.
#[derive(Debug, Clone, Copy)]
pub enum CommandOutput<'a> {
    /// The command did not run. Content that needs the command is rejected.
    Missing,
    /// The command runs later, for each installation. Content that needs the command is checked
    /// without its objects.
    Later,
    /// Standard output of the command.
    Text(&'a [u8]),
}

/// Part of a [`RenderTarget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenderPart {
    /// Name of the installation.
    Name,
    /// Namespace of the installation.
    Namespace,
    /// Configuration of the installation.
    Config,
    /// Kubernetes version of the server.
    Kubernetes,
}

/// Parts of a [`RenderTarget`] that the objects of a format depend on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenderDependencies(pub &'static [RenderPart]);

impl RenderDependencies {
    /// Returns a cache key. Targets with equal keys render the same files to the same objects. The
    /// objects of a chart also depend on the API versions of the server, which are not part of the
    /// key ([`super::helm::RenderedApis`]).
    pub fn key(self, target: &RenderTarget) -> Digest {
        let parts = self.0.iter().map(|part| match part {
            RenderPart::Name => json!(["name", target.name]),
            RenderPart::Namespace => json!(["namespace", target.namespace]),
            RenderPart::Config => json!(["config", target.config]),
            RenderPart::Kubernetes => json!(["kubernetes", target.kubernetes]),
        });
        json::digest(&parts.collect::<Value>())
    }
}

/// External command that renders a content. The caller writes the files of the content into one
/// folder and the extra files into a second folder. The caller passes the output of the command to
/// [`RenderInput::output`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderCommand {
    /// Name of the program on PATH.
    pub program: &'static str,
    /// Name of the chart.
    pub chart: String,
    /// Folder of the chart in the content; empty, or with a final `/`.
    pub folder: String,
    /// Field of the installation that contains the values of the chart.
    pub config_field: &'static str,
    /// Arguments of the program.
    pub arguments: Vec<RenderArgument>,
    /// Names and content of the extra files.
    pub extra_files: Vec<(&'static str, Vec<u8>)>,
    /// Environment variables that are removed, because they would change the output.
    pub removed_variables: &'static [&'static str],
    /// Environment variables for folders with the user's settings. The caller sets them to an empty
    /// folder, so that the settings have no effect.
    pub folder_variables: &'static [&'static str],
    /// Names and values of environment variables that the caller sets.
    pub fixed_variables: &'static [(&'static str, &'static str)],
    /// Next step if the program is missing.
    pub hint: &'static str,
}

/// Argument of a [`RenderCommand`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenderArgument {
    /// Text that is passed unchanged.
    Text(String),
    /// Absolute path of a file or folder of the content. The empty path is the root of the content.
    ContentPath(String),
    /// Absolute path of an extra file.
    ExtraFile(&'static str),
}

impl RenderCommand {
    /// Returns the arguments of the command. `content` is the folder of the content, and `extra` is
    /// the folder of the extra files. Both paths must be absolute.
    pub fn resolved(&self, content: &Path, extra: &Path) -> Vec<OsString> {
        let arguments = self.arguments.iter().map(|argument| match argument {
            RenderArgument::Text(text) => text.into(),
            RenderArgument::ContentPath(path) => content.join(path).into(),
            RenderArgument::ExtraFile(name) => extra.join(name).into(),
        });
        arguments.collect()
    }
}

impl From<&str> for RenderArgument {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A format of content.
pub(super) trait ContentFormat: Sync {
    /// Returns `true` if files without a `bundle.yaml` have this format.
    fn is_format_of(&self, files: &Files) -> bool;

    /// Returns `true` if rendering reads the content of the file at `path`. For other files,
    /// rendering needs only the path.
    fn reads(&self, path: &str) -> bool;

    /// Returns the memory that rendering these files requires, in bytes. `parsed` is the memory of
    /// the parsed files, including the weight of their documents.
    fn memory(&self, _has_file: &dyn Fn(&str) -> bool, parsed: u64, _weight: &Weight) -> u64 {
        parsed
    }

    /// Returns the parts of the target that the objects depend on.
    fn dependencies(&self) -> RenderDependencies;

    /// Returns `true` if the objects of this package depend on the configuration.
    fn uses_config(&self, package: Option<&Package>) -> bool {
        package.is_some_and(|package| package.patching_config().is_some())
    }

    /// Returns a `bundle.yaml` with the data in the files; `None` if files of this format contain
    /// no name and version.
    fn describe(&self, files: &Files) -> Result<Option<Package>, Findings>;

    /// Returns `true` if an external command renders the files.
    fn has_command(&self) -> bool {
        false
    }

    /// Returns the external command that renders the files; `None` if the files need no command.
    fn command(
        &self,
        _files: &Files,
        _package: Option<&Package>,
        _target: &RenderTarget,
        _allowance: &mut Allowance,
    ) -> Result<Option<RenderCommand>, Findings> {
        Ok(None)
    }

    /// Renders the files to objects, and parses the objects within `allowance`. If an object is
    /// invalid, its error is added to `findings` with the location. All valid objects are returned.
    fn render(
        &self,
        input: &RenderInput<'_>,
        package: Option<&Package>,
        allowance: &mut Allowance,
        findings: &mut Findings,
    ) -> Vec<Manifest>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_key_changes_with_the_parts_that_objects_depend_on_and_with_no_others() {
        let none = RenderTarget::default();
        let all = RenderTarget {
            name: Some("web".to_owned()),
            namespace: Some("web".to_owned()),
            config: Some(json!({"replicas": 2})),
            kubernetes: Some([1, 33, 0]),
        };
        assert_eq!(
            RenderDependencies::default().key(&none),
            RenderDependencies::default().key(&all)
        );
        let parts = [
            RenderDependencies(&[RenderPart::Name]),
            RenderDependencies(&[RenderPart::Namespace]),
            RenderDependencies(&[RenderPart::Config]),
            RenderDependencies(&[RenderPart::Kubernetes]),
        ];
        let keys: std::collections::BTreeSet<_> = parts.iter().map(|part| part.key(&all)).collect();
        assert_eq!(keys.len(), parts.len());
        for part in parts {
            assert_ne!(part.key(&none), part.key(&all));
        }
    }
}
