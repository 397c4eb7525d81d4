//! The state that all reconcilers share: clients, caches, inventories, watches and failure counts.

pub(super) mod failed_unpacks;
pub(super) mod failures;
pub(super) mod mutators;
pub(super) mod permission_groups;
pub(super) mod recent_classes;
pub(super) mod released;
pub(super) mod rights_schedule;
pub(super) mod unchanged_sources;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bundle_api::names;
use bundle_cluster::ByName;
use bundle_core::content::ContentId;
use bundle_core::diagnostic::codes;
use bundle_core::review::Class;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, ObjectMeta};
use kube::core::discovery::ApiResource;
use kube::runtime::reflector;
use tokio::sync::mpsc;

use crate::reconcile::api::discovery::Apis;
use crate::reconcile::api::object;
use crate::reconcile::apply::allowed_dry_runs::AllowedDryRuns;
use crate::reconcile::background_tasks::{BackgroundTasks, RENDERINGS_PER_REQUESTER};
use crate::reconcile::content::store::Store;
use crate::reconcile::content::unpacked::{UnpackError, Unpacked};
use crate::reconcile::context::failed_unpacks::FailedUnpacks;
use crate::reconcile::context::failures::FailureCounts;
use crate::reconcile::context::mutators::RegisteredMutators;
use crate::reconcile::context::recent_classes::RecentClasses;
use crate::reconcile::context::released::ReleasedCopies;
use crate::reconcile::context::rights_schedule::RightsSchedule;
use crate::reconcile::context::unchanged_sources::UnchangedSources;
use crate::reconcile::drift::scope::WatchPermissions;
use crate::reconcile::drift::states::InstalledStates;
use crate::reconcile::drift::watch::Watches;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::inventory::store::Inventories;
use crate::reconcile::slots::{ApplySlots, Slots, ValidationSlot};
use crate::reconcile::status::unreadable::ReportedObjects;
use crate::reconcile::status::writer::EventRecorder;
use crate::reconcile::watched::WatchedObject;
use crate::shared::Shared;

/// Maximum number of objects on one page of a list of the project's own kinds. One object can have
/// a size of 1 MiB.
const PAGE_SIZE: u32 = 10;

/// The shared state of all reconciles. The leader creates one context, and drops it when its lease
/// is lost.
pub(in crate::reconcile) struct Context {
    pub(in crate::reconcile) shared: Arc<Shared>,
    pub(in crate::reconcile) own: Client,
    pub(in crate::reconcile) bundles: ApiResource,
    pub(in crate::reconcile) deployments: ApiResource,
    pub(in crate::reconcile) classes: ApiResource,
    pub(in crate::reconcile) approvals: ApiResource,
    pub(in crate::reconcile) apis: Apis,
    pub(in crate::reconcile) scopes: WatchPermissions,
    pub(in crate::reconcile) states: Arc<InstalledStates>,
    pub(in crate::reconcile) watches: Watches,
    pub(in crate::reconcile) inventories: Inventories,
    pub(in crate::reconcile) store: Store,
    /// Background tasks that unpack the content of Bundles.
    pub(in crate::reconcile) unpacking: BackgroundTasks<Result<Unpacked, UnpackError>>,
    /// Deleted Bundles whose cached copies were released.
    pub(in crate::reconcile) released: ReleasedCopies,
    /// Background tasks that check the sources of unpacked Bundles. A result is the content that
    /// the source refers to now, or `None` if this content equals the unpacked content.
    pub(in crate::reconcile) resolving: BackgroundTasks<Result<Option<ContentId>, String>>,
    /// Bundles whose source was unchanged at a recent comparison.
    pub(in crate::reconcile) unchanged_sources: UnchangedSources,
    /// Classes that were read in the last second.
    pub(in crate::reconcile) recent_classes: Arc<RecentClasses>,
    pub(in crate::reconcile) mutators: RegisteredMutators,
    /// Background tasks that fetch content for BundleDeployments if the content is missing in the
    /// cache.
    pub(in crate::reconcile) refetching: BackgroundTasks<Result<(), ReconcileError>>,
    /// Background tasks that render charts. When a task succeeds, the rendered objects are in the
    /// cache.
    pub(in crate::reconcile) rendering: BackgroundTasks<Result<(), ReconcileError>>,
    pub(in crate::reconcile) allowed_dry_runs: AllowedDryRuns,
    pub(in crate::reconcile) rights_schedule: RightsSchedule,
    /// Slots for reconciles of BundleDeployments.
    pub(in crate::reconcile) slots: Slots,
    /// Slots for reconciles of Bundles.
    pub(in crate::reconcile) bundle_slots: Slots,
    /// Slots for comparisons of dry runs, and for reading complete managed fields.
    pub(in crate::reconcile) apply_slots: ApplySlots,
    /// The slot for validations of custom resources.
    pub(in crate::reconcile) validation_slot: ValidationSlot,
    /// The identity of each Bundle, from the reflector of the Bundle controller.
    pub(in crate::reconcile) bundle_cache: OnceLock<reflector::Store<WatchedObject>>,
    pub(in crate::reconcile) bundle_events: EventRecorder,
    pub(in crate::reconcile) deployment_events: EventRecorder,
    pub(in crate::reconcile) approval_events: EventRecorder,
    /// Objects of the project's own kinds that are too large to read and were reported.
    pub(in crate::reconcile) unreadable: ReportedObjects,
    pub(in crate::reconcile) failures: FailureCounts,
    /// The last failed attempt to unpack each Bundle.
    pub(in crate::reconcile) failed_unpacks: FailedUnpacks,
}

/// Returns the API resource of a kind of the project's own API group.
pub(in crate::reconcile) fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: names::GROUP.to_owned(),
        version: names::VERSION.to_owned(),
        api_version: names::API_VERSION.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Result of looking up a ProvisionerClass by name.
pub(in crate::reconcile) enum ClassLookup {
    /// A class whose provisioner bundle-webhook implements.
    Managed(Box<Class>),
    /// A class whose provisioner another program implements.
    Unmanaged,
    /// The class does not exist.
    NotFound,
    /// The class exists, but its spec is invalid. Contains the errors of the spec.
    Invalid(String),
}

/// Returns the class name in the spec of a Bundle or BundleDeployment. The text is empty if the
/// spec names no class.
pub(in crate::reconcile) fn class_name(object: &DynamicObject) -> &str {
    let name = &object.data["spec"]["provisionerClassName"];
    name.as_str().unwrap_or_default()
}

/// Fails if the class names the provisioner of another program.
pub(in crate::reconcile) fn check_provisioner(class: &Class) -> Result<(), ReconcileError> {
    if class.is_ours() {
        return Ok(());
    }
    Err(ReconcileError::new(
        codes::install::NOT_IMPLEMENTED,
        names::reason::UNPACK_FAILED,
        format!(
            "class {} has provisioner {}, which bundle-webhook does not implement: use a class for plain manifests, registry+v1 bundles or charts",
            class.name, class.provisioner
        ),
        RetryPolicy::OnChange,
    ))
}

impl Context {
    /// Creates the context. `wake_bundle` and `wake_deployment` receive the names of objects to
    /// reconcile.
    pub(in crate::reconcile) fn new(
        shared: Arc<Shared>,
        states: Arc<InstalledStates>,
        wake_bundle: mpsc::UnboundedSender<String>,
        wake_deployment: mpsc::UnboundedSender<String>,
    ) -> Self {
        let own = shared.leader_client();
        let bundles = resource("Bundle", "bundles");
        let deployments = resource(crate::reconcile::DEPLOYMENT, "bundledeployments");
        let approvals = resource("BundleApproval", "bundleapprovals");
        Self {
            apis: Apis::new(own.clone()),
            scopes: WatchPermissions::default(),
            watches: Watches::new(states.clone(), shared.budget.watches.clone()),
            inventories: Inventories::new(
                own.clone(),
                &shared.settings.state_namespace,
                shared.budget.installed_objects,
            ),
            states,
            store: Store::new(
                shared.settings.cache_dir.join("content"),
                shared.settings.cache_limit,
                shared.metrics.cache.clone(),
            ),
            unpacking: BackgroundTasks::new(wake_bundle.clone()),
            released: ReleasedCopies::default(),
            resolving: BackgroundTasks::new(wake_bundle),
            unchanged_sources: UnchangedSources::new(shared.settings.source_check_interval),
            recent_classes: Arc::default(),
            mutators: RegisteredMutators::default(),
            refetching: BackgroundTasks::new(wake_deployment.clone()),
            rendering: BackgroundTasks::new(wake_deployment)
                .with_unfinished_limit(RENDERINGS_PER_REQUESTER),
            bundle_cache: OnceLock::new(),
            bundle_events: EventRecorder::new(own.clone(), bundles.clone()),
            deployment_events: EventRecorder::new(own.clone(), deployments.clone()),
            allowed_dry_runs: AllowedDryRuns::default(),
            rights_schedule: RightsSchedule::default(),
            slots: Slots::default(),
            bundle_slots: Slots::default(),
            apply_slots: ApplySlots::default(),
            validation_slot: ValidationSlot::default(),
            approval_events: EventRecorder::new(own.clone(), approvals.clone()),
            unreadable: ReportedObjects::default(),
            classes: resource("ProvisionerClass", "provisionerclasses"),
            approvals,
            bundles,
            deployments,
            own,
            shared,
            failures: FailureCounts::default(),
            failed_unpacks: FailedUnpacks::default(),
        }
    }

    /// Returns the class. Reads the class from the API server, unless it was read in the last
    /// second and no event of a class has arrived since then. Therefore the class is never older
    /// than the event of the class that started the reconcile.
    ///
    /// Only for reconciles that write no objects of content, or that read the class again before
    /// the first write. Restores and removals must use [`Self::class`].
    pub(in crate::reconcile) async fn recent_class(
        &self,
        name: &str,
    ) -> Result<ClassLookup, kube::Error> {
        let read = match self.recent_classes.get(name, Instant::now()) {
            Ok(class) => return Ok(ClassLookup::Managed(Box::new(class))),
            Err(read) => read,
        };
        let found = self.class(name).await?;
        if let ClassLookup::Managed(class) = &found {
            self.recent_classes.insert(read, class);
        }
        Ok(found)
    }

    /// Reads the class from the API server.
    pub(in crate::reconcile) async fn class(&self, name: &str) -> Result<ClassLookup, kube::Error> {
        let api: Api<DynamicObject> = Api::all_with(self.own.clone(), &self.classes);
        let Some(object) = ByName(&api).get_opt(name).await? else {
            return Ok(ClassLookup::NotFound);
        };
        Ok(match Class::parse(name, &object.data["spec"]) {
            Ok(class) if class.is_ours() => ClassLookup::Managed(Box::new(Class {
                uid: object.metadata.uid.unwrap_or_default(),
                ..class
            })),
            Ok(_) => ClassLookup::Unmanaged,
            Err(findings) => ClassLookup::Invalid(findings.to_string()),
        })
    }

    /// Returns one object of the project's own kinds, or `None` if it does not exist.
    pub(in crate::reconcile) async fn get(
        &self,
        resource: &ApiResource,
        name: &str,
    ) -> Result<Option<DynamicObject>, kube::Error> {
        let api: Api<DynamicObject> = Api::all_with(self.own.clone(), resource);
        match ByName(&api).get_opt(name).await {
            Err(error) if object::is_not_found(&error) => Ok(None),
            answer => answer,
        }
    }

    /// Lists the objects of one of the project's own kinds, and calls `each` for every object.
    /// Holds at most one page of the list in memory.
    pub(in crate::reconcile) async fn for_each(
        &self,
        resource: &ApiResource,
        labels: Option<&str>,
        mut each: impl FnMut(DynamicObject) + Send,
    ) -> Result<(), kube::Error> {
        let api: Api<DynamicObject> = Api::all_with(self.own.clone(), resource);
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        parameters.label_selector = labels.map(str::to_owned);
        loop {
            let page = api.list(&parameters).await?;
            page.items.into_iter().for_each(&mut each);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => return Ok(()),
            }
        }
    }

    /// Returns the uid of each object of one of the project's own kinds, by name.
    pub(in crate::reconcile) async fn uids_by_name(
        &self,
        resource: &ApiResource,
    ) -> Result<HashMap<String, String>, kube::Error> {
        let api: Api<DynamicObject> = Api::all_with(self.own.clone(), resource);
        let mut parameters = ListParams::default().limit(object::PAGE_SIZE);
        let mut found = HashMap::new();
        loop {
            let page = api.list_metadata(&parameters).await?;
            for object in page.items {
                let ObjectMeta { name, uid, .. } = object.metadata;
                found.insert(name.unwrap_or_default(), uid.unwrap_or_default());
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => return Ok(found),
            }
        }
    }
}
