//! `plan`: prints the steps of the planner, the changes of the objects, and the checks that would
//! stop the installation.

mod arguments;
mod checks;
mod facts;
mod print;

use bundle_api::{Bundle, BundleApproval, BundleDeployment, ProvisionerClass, names};
use bundle_core::names::KubeName;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::steps::{AppliedContent, InstallOutcome, ObservedDeployment};
use bundle_core::review::Class;
use bundle_core::review::class::Approval;
use bundle_core::review::deployment::CheckedDeploymentSpec;
use kube::api::{Api, ListParams};
use serde_json::Value;

use super::preview::source::PreviewSource;
use super::preview::{self, Preview};
use super::revisions;
use super::state::{conditions, inventory};
use crate::artifact::location::ArtifactLocation;
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::{Failure, Outcome, api_server};
use crate::registry::RegistrySettings;
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::Arguments;
use checks::{ApprovalState, CheckFacts, ClassState, PlannedCheck};
use facts::{InventoryFact, KnownObjects};

/// Number of objects on one page of a list.
const PAGE_SIZE: u32 = 500;
/// Maximum number of pages of a list.
const MAX_PAGES: usize = 20;

/// Settings of `plan`.
pub(crate) struct Plan {
    /// Name of the BundleDeployment.
    pub(crate) name: String,
    /// Location of the content; `None` means the content of the current template.
    pub(crate) location: Option<ArtifactLocation>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
    /// Namespace of the inventories.
    pub(crate) state_namespace: Option<KubeName>,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

/// Plan of a BundleDeployment.
struct DeploymentPlan {
    name: String,
    digest: Option<String>,
    /// Names and effects of the steps.
    steps: Vec<(String, &'static str)>,
    preview: Preview,
    checks: Vec<PlannedCheck>,
    is_inventory_unread: bool,
}

impl Plan {
    /// Reads the objects, computes the plan, and prints it.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.cluster).await?;
        let plan = Box::pin(self.plan(ui, &cluster)).await?;
        for warning in cluster.take_warnings() {
            ui.server_warning(&warning);
        }
        if !ui.structured(self.format, &plan.data())? {
            ui.text(&plan.text())?;
            plan.note(ui);
        }
        plan.preview.warn_of_missing_deletions(ui);
        plan.result()
    }

    async fn plan(&self, ui: &mut Ui, cluster: &Cluster) -> Outcome<DeploymentPlan> {
        let Some(object) = cluster.read::<BundleDeployment>(&self.name).await? else {
            return Err(revisions::not_found(&self.name));
        };
        let item: BundleDeployment = serde_json::from_value(object.clone()).unwrap_or_default();
        let spec = CheckedDeploymentSpec::parse(&object["spec"])?;
        let location = self.location.as_ref();
        let mut source = PreviewSource::find(ui, cluster, &item, location, &self.registry).await?;
        source.pin(ui).await?;
        let digest = source.digest().map(str::to_owned);
        let preview = preview::preview(ui, cluster, &object, &source.content()).await?;
        let class = read_class(cluster, &spec.class).await?;
        let known_class = match &class {
            ClassState::Known(class) => Some(&**class),
            ClassState::Invalid(_) | ClassState::Unread(_) => None,
        };
        let bundle = self
            .bundle(cluster, &item, &spec, digest.as_deref())
            .await?;
        let inventory = self.inventory(cluster, &item).await?;
        let known = KnownObjects {
            object: &object,
            item: &item,
            spec: &spec,
            class: known_class,
            digest: digest.as_deref(),
            bundle: bundle
                .as_ref()
                .and_then(|bundle| bundle.metadata.name.as_deref()),
            inventory: &inventory,
        };
        let observed = known.observed();
        let approval = match known_class {
            Some(class) if class.approval != Approval::None => {
                approval(cluster, &item, digest.as_deref()).await
            }
            _ => ApprovalState::Missing,
        };
        let is_template = location.is_none() || bundle.is_some();
        let checks = CheckFacts {
            steps: &observed.installation(),
            is_paused: spec.paused,
            class: &class,
            approval: &approval,
            digest: digest.as_deref(),
            bundle: bundle.as_ref().and_then(not_unpacked),
            unauthorized: unauthorized(&item).filter(|_| is_template),
            preview: &preview,
        };
        Ok(DeploymentPlan {
            name: self.name.clone(),
            checks: checks.checks(),
            steps: steps(&observed),
            digest,
            preview,
            is_inventory_unread: matches!(inventory, InventoryFact::Unread),
        })
    }

    /// Returns the Bundle of the current template. Returns `None` if the plan is for other content,
    /// or if the user has no permission to list Bundles.
    async fn bundle(
        &self,
        cluster: &Cluster,
        item: &BundleDeployment,
        spec: &CheckedDeploymentSpec,
        digest: Option<&str>,
    ) -> Outcome<Option<Bundle>> {
        let bundles = match revisions::bundles(cluster, item).await {
            Ok(bundles) => bundles,
            Err(Failure::Server(status)) if status.code == 403 => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let of_template = bundles.into_iter().find(|bundle| {
            let hash = revisions::generated_hash(bundle, item);
            hash.as_ref() == Some(&spec.template.hash)
        });
        Ok(of_template.filter(|bundle| {
            let content = bundle
                .status
                .as_ref()
                .and_then(|status| status.content.as_ref());
            self.location.is_none()
                || content.is_some_and(|content| digest == Some(content.digest.as_str()))
        }))
    }

    async fn inventory(
        &self,
        cluster: &Cluster,
        item: &BundleDeployment,
    ) -> Outcome<InventoryFact> {
        let namespace = cluster.state_namespace(self.state_namespace.as_ref()).await;
        match inventory::read(cluster, &namespace, item).await {
            Ok(found) => {
                let found = found.unwrap_or_else(|| Inventory::new(&self.name));
                Ok(InventoryFact::Known(Box::new(found)))
            }
            Err(Failure::Server(status)) if status.code == 403 => Ok(InventoryFact::Unread),
            Err(failure) => Err(failure),
        }
    }
}

/// Returns names and effects of all steps: first the steps of the installation, then the steps that
/// maintain the installed objects.
fn steps(observed: &ObservedDeployment) -> Vec<(String, &'static str)> {
    let install = observed.installation();
    let outcome = InstallOutcome {
        in_place: AppliedContent::Wanted,
        has_completed: !install.is_empty(),
        ..InstallOutcome::default()
    };
    let install = install
        .into_iter()
        .map(|step| (format!("{step:?}"), step.effect()));
    let keep = outcome
        .maintenance()
        .into_iter()
        .filter(|_| !observed.is_paused)
        .map(|step| (format!("{step:?}"), step.effect()));
    install.chain(keep).collect()
}

async fn read_class(cluster: &Cluster, name: &KubeName) -> Outcome<ClassState> {
    let found = match cluster.read::<ProvisionerClass>(name).await {
        Err(Failure::Server(status)) if status.code == 403 => {
            return Ok(ClassState::Unread(api_server::message(&status)));
        }
        found => found?,
    };
    let Some(found) = found else {
        let why = format!("ProvisionerClass {name} does not exist");
        return Ok(ClassState::Invalid(why));
    };
    Ok(match Class::parse(name, &found["spec"]) {
        Ok(mut class) => {
            let uid = found["metadata"]["uid"].as_str();
            uid.unwrap_or_default().clone_into(&mut class.uid);
            ClassState::Known(Box::new(class))
        }
        Err(findings) => {
            ClassState::Invalid(format!("ProvisionerClass {name} is invalid: {findings}"))
        }
    })
}

/// Returns the approval of this content for the BundleDeployment.
async fn approval(
    cluster: &Cluster,
    item: &BundleDeployment,
    digest: Option<&str>,
) -> ApprovalState {
    let Some(digest) = digest else {
        return ApprovalState::Unknown(
            "an approval names the digest of content in a registry".to_owned(),
        );
    };
    let api: Api<BundleApproval> = Api::all(cluster.client.clone());
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    for _ in 0..MAX_PAGES {
        let list = match cluster.send(api.list(&parameters)).await {
            Ok(list) => list,
            Err(failure) => {
                let why = match failure {
                    Failure::Server(status) => api_server::message(&status),
                    _ => "the BundleApprovals could not be read".to_owned(),
                };
                return ApprovalState::Unknown(why);
            }
        };
        for approval in &list.items {
            if is_accepted(approval, item, digest) {
                let name = approval.metadata.name.clone().unwrap_or_default();
                return ApprovalState::Approved(name);
            }
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return ApprovalState::Missing,
        }
    }
    ApprovalState::Unknown("there are too many BundleApprovals".to_owned())
}

/// Returns `true` if bundle-webhook accepted the approval for this BundleDeployment and content.
fn is_accepted(approval: &BundleApproval, item: &BundleDeployment, digest: &str) -> bool {
    let target = &approval.spec.bundle_deployment;
    let conditions = approval.status.iter().flat_map(|status| &status.conditions);
    approval.metadata.deletion_timestamp.is_none()
        && approval.spec.digest == digest
        && item.metadata.uid.as_ref() == Some(&target.uid)
        && conditions
            .filter(|condition| condition.type_ == names::condition::ACCEPTED)
            .any(|condition| condition.status == "True")
}

/// Returns the reason why the Bundle is not unpacked. Returns `None` if the Bundle is unpacked.
fn not_unpacked(bundle: &Bundle) -> Option<String> {
    let conditions = bundle.status.iter().flat_map(|status| &status.conditions);
    let mut unpacked = conditions.filter(|found| found.type_ == names::condition::UNPACKED);
    let name = bundle.metadata.name.as_deref().unwrap_or_default();
    match unpacked.next() {
        Some(condition) if condition.status == "True" => None,
        Some(condition) => Some(format!("Bundle {name}: {}", condition.message)),
        None => Some(format!("Bundle {name} is not unpacked yet")),
    }
}

/// Returns the message for missing permissions of the recorded requester.
fn unauthorized(item: &BundleDeployment) -> Option<String> {
    let condition = conditions::find(item, names::condition::AUTHORIZED)?;
    (condition.status == "False" && condition.observed_generation == item.metadata.generation)
        .then(|| condition.message.clone())
}

impl DeploymentPlan {
    /// Returns the plan as data.
    fn data(&self) -> Value {
        print::data(self)
    }
}
