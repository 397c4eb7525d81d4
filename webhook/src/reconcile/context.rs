//! What the reconcilers of all kinds share: caches, books, watches, counters of failures.
//! Not here: what is done with them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bundle_api::names;
use bundle_cluster::ByName;
use bundle_core::content::ContentId;
use bundle_core::diagnostic::codes;
use bundle_core::review::Class;
use bundle_core::review::class::Provisioner;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, ObjectMeta};
use kube::core::discovery::ApiResource;
use kube::runtime::reflector;
use tokio::sync::mpsc;

use crate::reconcile::api::discovery::Apis;
use crate::reconcile::api::object;
use crate::reconcile::bundle::fetches::Fetches;
use crate::reconcile::bundle::unpack::{UnpackFailed, Unpacked};
use crate::reconcile::content::store::Store;
use crate::reconcile::deployment::failures::FailureCounts;
use crate::reconcile::deployment::inventory::Inventories;
use crate::reconcile::drift::scope::Scopes;
use crate::reconcile::drift::states::InstalledStates;
use crate::reconcile::drift::watch::Watches;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::rights::dry_run_memory::AllowedDryRuns;
use crate::reconcile::rights::schedule::RightsSchedule;
use crate::reconcile::slots::Slots;
use crate::reconcile::status::unreadable::ReportedObjects;
use crate::reconcile::status::writer::EventRecorder;
use crate::shared::Shared;

/// Objects of our own kinds of one page of a list: whoever writes one can give it a mebibyte.
const PAGE: u32 = 10;

/// One per process, while it leads.
pub(in crate::reconcile) struct Context {
    pub(in crate::reconcile) shared: Arc<Shared>,
    pub(in crate::reconcile) own: Client,
    pub(in crate::reconcile) bundles: ApiResource,
    pub(in crate::reconcile) deployments: ApiResource,
    pub(in crate::reconcile) classes: ApiResource,
    pub(in crate::reconcile) approvals: ApiResource,
    pub(in crate::reconcile) apis: Apis,
    pub(in crate::reconcile) scopes: Scopes,
    pub(in crate::reconcile) states: Arc<InstalledStates>,
    pub(in crate::reconcile) watches: Watches,
    pub(in crate::reconcile) inventories: Inventories,
    pub(in crate::reconcile) store: Store,
    /// Bundles that are being unpacked.
    pub(in crate::reconcile) unpacking: Fetches<Result<Unpacked, UnpackFailed>>,
    /// Sources of Bundles that are being looked at: the content that one names now, if that is other content than was unpacked.
    pub(in crate::reconcile) resolving: Fetches<Result<Option<ContentId>, String>>,
    /// Content of BundleDeployments that is fetched again.
    pub(in crate::reconcile) refetching: Fetches<Result<(), ReconcileError>>,
    pub(in crate::reconcile) allowed_dry_runs: AllowedDryRuns,
    pub(in crate::reconcile) rights_schedule: RightsSchedule,
    /// Places of reconciles of BundleDeployments.
    pub(in crate::reconcile) slots: Slots,
    /// Places of reconciles of Bundles.
    pub(in crate::reconcile) bundle_slots: Slots,
    /// All Bundles, as the watch of their controller shows them.
    pub(in crate::reconcile) bundle_cache: OnceLock<reflector::Store<DynamicObject>>,
    pub(in crate::reconcile) bundle_events: EventRecorder,
    pub(in crate::reconcile) deployment_events: EventRecorder,
    pub(in crate::reconcile) approval_events: EventRecorder,
    /// Objects of ours that are too large to be read.
    pub(in crate::reconcile) unreadable: ReportedObjects,
    pub(in crate::reconcile) failures: FailureCounts,
}

/// One of our own kinds.
pub(in crate::reconcile) fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: names::GROUP.to_owned(),
        version: names::VERSION.to_owned(),
        api_version: names::API_VERSION.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// What a class name leads to.
pub(in crate::reconcile) enum ClassFound {
    /// A class of ours.
    Ours(Box<Class>),
    /// Somebody else answers to it.
    Foreign,
    /// There is no such class.
    Gone,
    /// There is one and it cannot be read.
    Unreadable(String),
}

/// Says so where a class is ours and its provisioner is not built yet.
pub(in crate::reconcile) fn is_built(class: &Class) -> Result<(), ReconcileError> {
    if matches!(
        class.provisioner,
        Provisioner::Plain | Provisioner::Registry
    ) {
        return Ok(());
    }
    Err(ReconcileError::new(
        codes::install::NOT_IMPLEMENTED,
        names::reason::UNPACK_FAILED,
        format!(
            "class {} is of provisioner {:?}, which does nothing yet: only plain manifests and registry+v1 bundles are installed",
            class.name, class.provisioner
        ),
        RetryPolicy::OnChange,
    ))
}

impl Context {
    /// The two wakes are told names of Bundles and of BundleDeployments.
    pub(in crate::reconcile) fn new(
        shared: Arc<Shared>,
        states: Arc<InstalledStates>,
        wake_bundle: mpsc::UnboundedSender<String>,
        wake_deployment: mpsc::UnboundedSender<String>,
    ) -> Self {
        let own = shared.client();
        let bundles = resource("Bundle", "bundles");
        let deployments = resource(crate::reconcile::DEPLOYMENT, "bundledeployments");
        let approvals = resource("BundleApproval", "bundleapprovals");
        Self {
            apis: Apis::new(own.clone()),
            scopes: Scopes::default(),
            watches: Watches::new(states.clone()),
            inventories: Inventories::new(own.clone(), &shared.settings.state_namespace),
            states,
            store: Store::new(
                shared.settings.cache_dir.join("content"),
                shared.settings.cache_limit,
            ),
            unpacking: Fetches::new(wake_bundle.clone()),
            resolving: Fetches::new(wake_bundle),
            refetching: Fetches::new(wake_deployment),
            bundle_cache: OnceLock::new(),
            bundle_events: EventRecorder::new(own.clone(), bundles.clone()),
            deployment_events: EventRecorder::new(own.clone(), deployments.clone()),
            allowed_dry_runs: AllowedDryRuns::default(),
            rights_schedule: RightsSchedule::default(),
            slots: Slots::default(),
            bundle_slots: Slots::default(),
            approval_events: EventRecorder::new(own.clone(), approvals.clone()),
            unreadable: ReportedObjects::default(),
            classes: resource("ProvisionerClass", "provisionerclasses"),
            approvals,
            bundles,
            deployments,
            own,
            shared,
            failures: FailureCounts::default(),
        }
    }

    /// The class as it stands now: not from a cache, which may be behind the event that woke us.
    pub(in crate::reconcile) async fn class(&self, name: &str) -> Result<ClassFound, kube::Error> {
        let api: Api<DynamicObject> = Api::all_with(self.own.clone(), &self.classes);
        let Some(object) = ByName(&api).get_opt(name).await? else {
            return Ok(ClassFound::Gone);
        };
        Ok(match Class::parse(name, &object.data["spec"]) {
            Ok(class) if class.is_ours() => ClassFound::Ours(Box::new(Class {
                uid: object.metadata.uid.unwrap_or_default(),
                ..class
            })),
            Ok(_) => ClassFound::Foreign,
            Err(findings) => ClassFound::Unreadable(findings.to_string()),
        })
    }

    /// One object of our own kinds, by name.
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

    /// Passes every object of one of our own kinds to `each`, page by page, so that no more of them than a page are there at a time.
    pub(in crate::reconcile) async fn each(
        &self,
        resource: &ApiResource,
        labels: Option<&str>,
        mut each: impl FnMut(DynamicObject) + Send,
    ) -> Result<(), kube::Error> {
        let api: Api<DynamicObject> = Api::all_with(self.own.clone(), resource);
        let mut parameters = ListParams::default().limit(PAGE);
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

    /// The uids of all objects of one of our own kinds, by name.
    pub(in crate::reconcile) async fn identities(
        &self,
        resource: &ApiResource,
    ) -> Result<HashMap<String, String>, kube::Error> {
        let api: Api<DynamicObject> = Api::all_with(self.own.clone(), resource);
        let mut parameters = ListParams::default().limit(object::PAGE);
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
