//! The state of one BundleDeployment reconcile, and the request to install content.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bundle_api::deployment::status::BundleDeploymentStatus;
use bundle_api::names::{self, reason};
use bundle_core::content::ContentId;
use bundle_core::diagnostic::{Code, codes};
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::package_rules::PackageRules;
use bundle_core::plan::rollout::RolloutContent;
use bundle_core::plan::status::DeploymentFacts;
use bundle_core::review::{
    CheckedBundleSpec, CheckedDeploymentSpec, Class, PartRequesters, Requester,
};
use bundle_core::serving_certificate::CertificatePeriod;
use bundle_core::text::MessageList;
use kube::Client;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::clients::cluster::ServiceAccount;
use crate::reconcile::apply::scalers::ScaledObjects;
use crate::reconcile::bundle::generated::GeneratedBundle;
use crate::reconcile::bundle::verify::AppliedPolicies;
use crate::reconcile::context::{Context, class_name};
use crate::reconcile::drift::restored::RestoredObject;
use crate::reconcile::drift::states::PhaseProgress;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::status::condition_set::ConditionSet;

/// Interval of health checks for objects that could not be read. For all other objects, watch
/// events start the health checks.
pub(in crate::reconcile) const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// One reconcile of a BundleDeployment.
pub(in crate::reconcile) struct DeploymentReconcile<'a> {
    /// The BundleDeployment with the spec that is reconciled. During an automatic rollback, this
    /// spec contains the template and the configuration of the former content. While installed
    /// content is maintained that the spec no longer requests, this spec contains the configuration
    /// of the installed content.
    pub(in crate::reconcile) object: &'a DynamicObject,
    pub(in crate::reconcile) ctx: &'a Arc<Context>,
    pub(in crate::reconcile) class: &'a Class,
    /// The spec of `object`. While installed content is maintained that the spec no longer
    /// requests, this field still contains the requested spec.
    pub(in crate::reconcile) spec: CheckedDeploymentSpec,
    /// The BundleDeployment with the spec as its requesters wrote it, and the state of its rollout.
    pub(in crate::reconcile) requested: RequestedDeployment<'a>,
    /// The requester of the template of the reconciled content. For former content, this is the
    /// requester of the former template.
    pub(in crate::reconcile) requester: Requester,
    /// The requester of each part of the spec, for example of the template.
    pub(in crate::reconcile) parts: PartRequesters,
    /// True if this reconcile is an automatic rollback: it installs the former content instead of
    /// the content of the spec.
    pub(in crate::reconcile) is_rollback: bool,
    /// The requesters of the installed content who are not among the requesters of the spec.
    /// Contains requesters only while installed content is maintained that the spec no longer
    /// requests.
    pub(in crate::reconcile) departed_requesters: Vec<Requester>,
    pub(in crate::reconcile) name: String,
    pub(in crate::reconcile) applyset: String,
    /// The annotations of the object, including annotations that this reconcile has written.
    pub(in crate::reconcile) annotations: BTreeMap<String, String>,
    /// The value of the ApplySet label of the object, also if this reconcile has written the label.
    pub(in crate::reconcile) applyset_label: Option<String>,
    /// The inventory of the BundleDeployment. The inventory records the installed objects.
    pub(in crate::reconcile) inventory: Arc<Inventory>,
    /// The conditions of the status that this reconcile writes.
    pub(in crate::reconcile) conditions: ConditionSet,
    /// The facts from which the conditions are computed.
    pub(in crate::reconcile) facts: DeploymentFacts,
    pub(in crate::reconcile) old: BundleDeploymentStatus,
    pub(in crate::reconcile) status: BundleDeploymentStatus,
    pub(in crate::reconcile) warnings: MessageList,
    pub(in crate::reconcile) approved_by: Option<String>,
    pub(in crate::reconcile) restored: Vec<RestoredObject>,
    /// True if this reconcile tried to restore the objects that were due for a restore.
    pub(in crate::reconcile) restores_tried: bool,
    pub(in crate::reconcile) has_installed: bool,
    /// The policies that were used to verify the content in this reconcile.
    pub(in crate::reconcile) applied_policies: Option<AppliedPolicies>,
    /// Objects whose `spec.replicas` was not applied, because another field manager or an
    /// autoscaler sets this field.
    pub(in crate::reconcile) scaled_objects: Arc<ScaledObjects>,
    /// The object key of the target namespace, if the prepared content includes this namespace
    /// because of `spec.createNamespace`.
    pub(in crate::reconcile) created_namespace: Option<String>,
    /// The rules in `bundle.yaml` of the content that was loaded last.
    pub(in crate::reconcile) package_rules: Option<PackageRules>,
    /// The current validity period of the serving certificates for operator webhooks.
    pub(in crate::reconcile) certificate_period: CertificatePeriod,
    /// The next periodic permission check, if the permissions of the requesters are allowed. The
    /// end of the reconcile decides if a group executes this check.
    pub(in crate::reconcile) permission_check: Option<NextPermissionCheck>,
}

/// The next periodic permission check of a BundleDeployment.
#[derive(Debug, Clone, Copy)]
pub(in crate::reconcile) struct NextPermissionCheck {
    /// The time until the check, if a reconcile executes the check.
    pub(in crate::reconcile) wait: Duration,
    /// True if reconciles renew serving certificates in the content.
    pub(in crate::reconcile) has_certificates: bool,
}

impl DeploymentReconcile<'_> {
    /// Returns `spec.config`: any JSON value, or null.
    pub(in crate::reconcile) fn config(&self) -> &Value {
        &self.object.data["spec"]["config"]
    }

    /// Returns the user towards whose limits the installed objects and the watches count: the
    /// requester of the template in the spec as its requesters wrote it. The limit of a former
    /// requester must not block the maintenance of former content.
    pub(in crate::reconcile) fn limited_user(&self) -> &str {
        &self.parts.template.user
    }
}

/// The BundleDeployment with the spec as its requesters wrote it.
pub(in crate::reconcile) struct RequestedDeployment<'a> {
    pub(in crate::reconcile) object: &'a DynamicObject,
    pub(in crate::reconcile) spec: CheckedDeploymentSpec,
    /// The object with the former template and configuration. Set during an automatic rollback.
    pub(in crate::reconcile) replacement: &'a OnceLock<DynamicObject>,
    /// The object with the configuration of the installed content. Set while the installed content
    /// is maintained and the spec contains another configuration.
    pub(in crate::reconcile) installed: &'a OnceLock<DynamicObject>,
    /// The reconciled content and the uid of its Bundle. `None` if the content is not unpacked.
    pub(in crate::reconcile) content: Option<(RolloutContent, String)>,
    /// The phase that the installation of the reconciled content waits for.
    pub(in crate::reconcile) awaited: Option<PhaseProgress>,
    /// Reason code and note of an Event about the rollout. It is emitted at the end of the
    /// reconcile.
    pub(in crate::reconcile) event: Option<(Code, String)>,
}

/// The content to install, and the ServiceAccount that installs it.
pub(in crate::reconcile) struct InstallRequest<'a> {
    pub(in crate::reconcile) generated: &'a GeneratedBundle,
    pub(in crate::reconcile) account: &'a ServiceAccount,
    pub(in crate::reconcile) client: &'a Client,
    pub(in crate::reconcile) reason: &'static str,
}

impl InstallRequest<'_> {
    /// Returns the digest of the content to install.
    pub(in crate::reconcile) fn digest(&self) -> &str {
        self.generated
            .content
            .as_ref()
            .map_or("", |content| content.digest.as_str())
    }

    /// Returns the identity of the content: digest and resolved source. Fails if the content is
    /// unknown.
    pub(in crate::reconcile) fn source(&self) -> Result<ContentId, ReconcileError> {
        let lost = |why: &str| {
            ReconcileError::new(
                codes::install::CONTENT_LOST,
                reason::BUNDLE_LOAD_FAILED,
                format!("Bundle {}: {why}", self.generated.name),
                RetryPolicy::OnChange,
            )
        };
        let spec = CheckedBundleSpec::parse(&self.generated.object.data["spec"])
            .map_err(|_| lost("its source is invalid"))?;
        let content = self.generated.content.as_ref();
        let content = content.ok_or_else(|| lost("its content is unknown"))?;
        Ok(ContentId::sealed(&spec.source, content))
    }

    /// Returns the class name of the Bundle.
    pub(in crate::reconcile) fn class(&self) -> &str {
        class_name(&self.generated.object)
    }
}

/// Returns true if the BundleDeployment has the finalizer of this controller.
pub(in crate::reconcile) fn has_finalizer(object: &DynamicObject) -> bool {
    object
        .finalizers()
        .iter()
        .any(|name| name == names::FINALIZER_INSTALLED)
}
