//! helm+v3: the chart in a bundle, the external command `helm` that renders the chart, and the
//! output of helm.

mod chart;
mod command;
mod failure;
mod files;
mod hooks;
mod ignore;
mod output;
mod schema_file;
mod served_apis;
mod template;
mod values;

use super::{
    Files,
    renderer::{
        CommandOutput, ContentFormat, RenderCommand, RenderDependencies, RenderInput, RenderPart,
        RenderTarget,
    },
};
use crate::{
    diagnostic::{Finding, Findings, codes},
    object::Manifest,
    package::Package,
    yaml::Allowance,
};

use chart::{REQUIREMENTS, bad};

pub use chart::{CHART, CHART_MEMORY, Chart, Dependency, Person, folder, read};
pub use command::pass_apis;
pub use failure::failure;
pub use files::{ChartFile, ChartFiles};
pub use ignore::{IGNORE, IGNORE_BYTES, Ignore};
pub use output::compare;
pub use served_apis::{RenderedApis, SelectedApis, ServedApis};

/// Format helm+v3.
pub(super) struct HelmV3;

impl ContentFormat for HelmV3 {
    fn is_format_of(&self, files: &Files) -> bool {
        folder(files).is_some() && !files.keys().any(|path| path.starts_with("manifests/"))
    }

    /// Returns `true` for `Chart.yaml` and `requirements.yaml` at the root, or in a folder directly
    /// below the root.
    fn reads(&self, path: &str) -> bool {
        let name = path.split_once('/').map_or(path, |(_, name)| name);
        [CHART, REQUIREMENTS].contains(&name)
    }

    fn dependencies(&self) -> RenderDependencies {
        RenderDependencies(&[
            RenderPart::Name,
            RenderPart::Namespace,
            RenderPart::Config,
            RenderPart::Kubernetes,
        ])
    }

    fn uses_config(&self, _: Option<&Package>) -> bool {
        true
    }

    fn describe(&self, files: &Files) -> Result<Option<Package>, Findings> {
        let (chart, _) = read(files, &mut Allowance::default())?;
        let package = chart.package();
        Ok(Some(package.map_err(|finding| finding.in_file(CHART))?))
    }

    fn has_command(&self) -> bool {
        true
    }

    fn command(
        &self,
        files: &Files,
        package: Option<&Package>,
        target: &RenderTarget,
        allowance: &mut Allowance,
    ) -> Result<Option<RenderCommand>, Findings> {
        command::command(files, package, target, allowance).map(Some)
    }

    fn render(
        &self,
        input: &RenderInput<'_>,
        package: Option<&Package>,
        allowance: &mut Allowance,
        findings: &mut Findings,
    ) -> Vec<Manifest> {
        match read(input.files, allowance) {
            // `kubeVersion` of the chart is used only if `bundle.yaml` has no range of Kubernetes
            // versions.
            Ok((chart, _)) if package.is_none_or(|own| own.kubernetes.is_none()) => {
                findings.extend(chart.unreadable_range());
            }
            Ok(_) => {}
            Err(errors) => {
                findings.extend(errors);
                return Vec::new();
            }
        }
        match input.output {
            CommandOutput::Missing => {
                findings.push(not_rendered());
                Vec::new()
            }
            CommandOutput::Later => Vec::new(),
            CommandOutput::Text(text) => {
                let objects = output::read(text, allowance, findings);
                hooks::without_hooks(objects, findings)
            }
        }
    }
}

fn not_rendered() -> Finding {
    Finding::error(
        codes::format::NOT_RENDERED,
        "the content is a chart that is not rendered",
    )
    .hint("`kubectl bundle render` renders the chart and shows its objects")
}
