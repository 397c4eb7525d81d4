//! `deploy`: creates or updates a BundleDeployment with the Bundle in its template.

mod arguments;

use serde_json::Value;

use super::bundle_spec::BundleContent;
use super::deployment::DeploymentWrite;
use crate::failure::Outcome;
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Settings of `deploy`.
pub(crate) struct Deploy {
    /// Content.
    pub(crate) content: BundleContent,
    /// Settings of the BundleDeployment.
    pub(crate) deployment: DeploymentWrite,
}

impl Deploy {
    /// Pins the reference, applies the object, prints the result, and waits if requested.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let (content, deployment) = (&self.content, &self.deployment);
        let described = content.describe(ui).await?;
        let compose = async |before: Option<&Value>, spec: &mut Value| {
            let empty = Value::Null;
            let old = before.map_or(&empty, |before| &before["spec"]);
            content.put_class(&described, old, spec).await;
            let (old, bundle) = (&old["template"]["spec"], &mut spec["template"]["spec"]);
            content.put(&described, old, bundle).await;
            let image = "/spec/template/spec/source/image/ref";
            described.metadata(&deployment.name, before, image)
        };
        let class = content.class.as_deref();
        match deployment.apply(ui, class, compose).await? {
            Some(written) => deployment.wait(ui, &written).await,
            None => Ok(()),
        }
    }
}
