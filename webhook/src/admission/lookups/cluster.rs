//! The implementation of the trait `Lookups`: requests to the API server with the credentials of
//! the pod, and requests to registries.

use std::sync::Arc;
use std::time::Duration;

use bundle_api::BundleDeployment;
use bundle_cluster::review::ReviewLookups;
use bundle_cluster::{ByName, access};
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::names::KubeName;
use bundle_core::review::config_maps::referenced_config_maps;
use bundle_core::review::{AccessReviewResult, Class, ClassFact, Image, Requester};
use bundle_core::rights::AccessReview;
use bundle_core::version::ServerVersion;
use bundle_oci::registry::ImageMetadata;
use bundle_trust::proof;
use jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{CustomResourceExt as _, ResourceExt};
use tokio::sync::OnceCell;

use super::config_map_reads::{ConfigMapReads, is_immutable};
use super::held_deployment::{DeploymentReads, HeldDeployment};
use super::serial_reads::SerialReads;
use super::{Lookups, Policies};
use crate::admission::rejections;
use crate::budget::lookups::LookupMemory;
use crate::chain;
use crate::clients::{names, registries};
use crate::reconcile::{RecordedOwner, StoredInventories};
use crate::shared::Shared;

/// Number of Bundles in one page of a list.
const PAGE_SIZE: u32 = 50;

/// Lookups in the cluster that the pod serves.
pub struct ClusterLookups {
    shared: Arc<Shared>,
    own_user: OnceCell<String>,
    deployment_reads: DeploymentReads,
    config_map_reads: ConfigMapReads,
    /// Lists Bundles for one review at a time. Therefore at most one page of Bundles is in memory.
    bundle_lists: SerialReads,
    /// Reads inventories for one review at a time, to limit the memory in use.
    inventory_reads: SerialReads,
    /// Time limit of one lookup. It is shorter than the time limit of the review, so that the
    /// response can name the lookup that failed.
    timeout: Duration,
}

impl ClusterLookups {
    /// Creates the lookups for reviews with time limit `deadline`.
    pub fn new(shared: Arc<Shared>, deadline: Duration) -> Self {
        Self {
            shared,
            own_user: OnceCell::new(),
            deployment_reads: DeploymentReads::default(),
            config_map_reads: ConfigMapReads::default(),
            bundle_lists: SerialReads::default(),
            inventory_reads: SerialReads::default(),
            timeout: deadline / 2,
        }
    }

    async fn with_timeout<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Finding> {
        let unreachable = |why: String| {
            Finding::error(codes::cluster::UNREACHABLE, why).hint("try again; no decision was made")
        };
        match tokio::time::timeout(self.timeout, work).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(unreachable(format!("cannot {what}: {}", chain(&error)))),
            Err(_) => Err(unreachable(format!(
                "cannot {what}: no response within {:?}",
                self.timeout
            ))),
        }
    }
}

impl ReviewLookups for ClusterLookups {
    type HeldDeployment = HeldDeployment;

    fn system_namespace(&self) -> &str {
        &self.shared.settings.namespace
    }

    fn state_namespace(&self) -> &str {
        &self.shared.settings.state_namespace
    }

    fn server(&self) -> Option<ServerVersion> {
        self.shared
            .server_version()
            .map(|version| (*version).clone())
    }

    async fn class(&self, name: &KubeName) -> ClassFact {
        let stored = &self.shared.classes;
        if !stored.is_synced() {
            return ClassFact::Unavailable(
                Finding::error(
                    codes::review::CLASSES_UNKNOWN,
                    "the ProvisionerClasses are not loaded yet",
                )
                .hint("try again"),
            );
        }
        if let Some(known) = stored.get(name) {
            return fact((*known).clone());
        }
        // The class may have been created after the last event of the watch, so it is read from the
        // API server.
        let api: Api<DynamicObject> = Api::all_with(
            self.shared.client(),
            &bundle_api::ProvisionerClass::api_resource(),
        );
        match self
            .with_timeout("read the ProvisionerClass", ByName(&api).get_opt(name))
            .await
        {
            Ok(None) => ClassFact::Unknown,
            Ok(Some(found)) => fact(Class::parse(name, &found.data["spec"])),
            Err(why) => ClassFact::Unavailable(why),
        }
    }

    async fn has_permission(
        &self,
        requester: &Requester,
        question: &AccessReview,
    ) -> AccessReviewResult {
        let asked = Box::pin(async {
            let client = self.shared.client();
            let asked = access::has_permission(&client, requester, question);
            self.with_timeout("check the permissions of the requester", asked)
                .await
        });
        let allowed_reviews = &self.shared.allowed_reviews;
        match allowed_reviews.ask(requester, question, asked).await {
            Ok(true) => AccessReviewResult::Allowed,
            Ok(false) => AccessReviewResult::Denied,
            Err(why) => AccessReviewResult::Unavailable(rights_unknown(requester, question, &why)),
        }
    }

    async fn deployment(
        &self,
        requester: &Requester,
        name: &KubeName,
    ) -> Result<Option<HeldDeployment>, Finding> {
        let resource: ApiResource = BundleDeployment::api_resource();
        let api: Api<DynamicObject> = Api::all_with(self.shared.client(), &resource);
        let by_name = ByName(&api);
        let reading = self
            .deployment_reads
            .read(&requester.user, by_name.get_opt(name));
        self.with_timeout("read the BundleDeployment", reading)
            .await
    }

    async fn immutable(
        &self,
        requester: &Requester,
        name: &KubeName,
    ) -> Result<Option<bool>, Finding> {
        let client = self.shared.client();
        let reading = is_immutable(&client, self.system_namespace(), name);
        let reading = self.config_map_reads.read(&requester.user, reading);
        self.with_timeout("read the ConfigMap", reading).await
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn examinations(&self) -> &proof::ExaminationCache {
        &self.shared.examinations
    }
}

impl Lookups for ClusterLookups {
    fn with_stamp_key<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T {
        with(self.shared.stamp_key().bytes())
    }

    fn policies(&self) -> Option<(Policies, u64)> {
        let stored = &self.shared.policies;
        // The generation is read first. Otherwise, old policies could get the generation number of
        // newer policies.
        let generation = stored.generation();
        stored.is_synced().then(|| (stored.all(), generation))
    }

    async fn own_user(&self) -> Option<String> {
        let asking = async {
            let client = self.shared.client();
            let asked = access::own_identity(&client);
            let identity = self
                .with_timeout("read the identity of the pod", asked)
                .await?;
            if identity.user.is_empty() {
                let why = "the API server returned no identity of the pod";
                return Err(Finding::error(codes::cluster::BAD_ANSWER, why));
            }
            Ok(identity.user)
        };
        match self.own_user.get_or_try_init(|| asking).await {
            Ok(user) => Some(user.clone()),
            Err(error) => {
                tracing::warn!(%error, "cannot read the identity of the pod");
                None
            }
        }
    }

    fn intact_since(&self) -> Option<Timestamp> {
        self.shared.registrations.intact_since()
    }

    fn enforced_since(&self) -> Option<Timestamp> {
        self.shared.registrations.last_enforced_since()
    }

    async fn bundles_of_config_map(
        &self,
        requester: &Requester,
        name: &str,
    ) -> Result<Vec<String>, Finding> {
        let listing = async {
            let resource = bundle_api::Bundle::api_resource();
            let bundles: Api<DynamicObject> = Api::all_with(self.shared.client(), &resource);
            let mut parameters = ListParams::default().limit(PAGE_SIZE);
            let mut found = Vec::new();
            loop {
                let page = bundles.list(&parameters).await?;
                let with_name = page.items.iter().filter(|bundle| {
                    referenced_config_maps(&bundle.data["spec"]).any(|found| found == name)
                });
                found.extend(with_name.map(ResourceExt::name_any));
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => parameters.continue_token = Some(token),
                    None => break,
                }
            }
            found.sort();
            Ok::<_, kube::Error>(found)
        };
        let listed = self.bundle_lists.run(&requester.user, listing);
        self.with_timeout("list the Bundles", listed).await
    }

    async fn recorded_owner(
        &self,
        requester: &Requester,
        object: (&str, &str),
        likely: Option<&str>,
    ) -> Result<Option<RecordedOwner>, Finding> {
        let unreadable = |why: String| Finding::error(codes::install::INVENTORY_FAILED, why);
        let stored = StoredInventories::new(self.shared.client(), self.state_namespace());
        let reading = stored.owner(object, likely);
        let reading = self.inventory_reads.run(&requester.user, reading);
        match tokio::time::timeout(self.timeout, reading).await {
            Ok(found) => found.map_err(unreadable),
            Err(_) => Err(unreadable(format!(
                "the inventories were not read within {:?}",
                self.timeout
            ))),
        }
    }

    async fn read_image(
        &self,
        image: &Image,
        signatures: bool,
        memory: Arc<LookupMemory>,
    ) -> Result<ImageMetadata, Finding> {
        if !memory.begin().await {
            return Err(rejections::no_memory_for_image());
        }
        let registry = self
            .shared
            .registry_for(&image.reference, &image.class, &image.credentials)
            .await
            .map_err(|error| error.finding())?
            .with_deadline(self.timeout)
            .with_memory(memory.clone());
        let metadata = registry.image_metadata(&image.reference, signatures);
        let metadata = names::for_review(memory.requester(), memory.client(), metadata).await;
        if memory.is_refused() {
            return Err(rejections::no_memory_for_image());
        }
        metadata.map_err(|error| registries::image_finding(&error))
    }
}

fn rights_unknown(requester: &Requester, question: &AccessReview, why: &Finding) -> Finding {
    let right = match question {
        AccessReview::Resource {
            verb,
            resource,
            name,
            ..
        } => format!(
            "verb {verb} on {resource}/{}",
            name.as_deref().unwrap_or("*")
        ),
        AccessReview::Path { verb, path } => format!("verb {verb} on {path}"),
    };
    let message = format!(
        "cannot check that {:?} has {right}: {}",
        requester.user, why.message
    );
    Finding::error(codes::review::RIGHTS_UNKNOWN, message).hint("try again; no decision was made")
}

fn fact(class: Result<Class, bundle_core::diagnostic::Findings>) -> ClassFact {
    match class {
        Ok(class) => ClassFact::Known(Box::new(class)),
        Err(why) => ClassFact::Unreadable(why),
    }
}
