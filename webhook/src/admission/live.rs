//! Asking the real ones: the API server as the pod's own identity, and registries.
//! Not here: what is asked (lookups).

use std::sync::Arc;
use std::time::Duration;

use bundle_api::BundleDeployment;
use bundle_cluster::ByName;
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::names::KubeName;
use bundle_core::review::{Class, ClassFact, Image};
use bundle_core::version::ServerVersion;
use bundle_oci::registry::Looked;
use bundle_trust::proof;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::CustomResourceExt as _;
use kube::api::{Api, PostParams};
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::lookups::{Lookups, Policies, Right};
use super::permits::Permits;
use super::review::UserInfo;
use crate::budget::looks::LookMemory;
use crate::chain;
use crate::shared::Shared;
use crate::sources::HeldConfigMap;

/// Lookups against the cluster that the pod serves.
pub struct Live {
    shared: Arc<Shared>,
    own_user: OnceCell<String>,
    permits: Permits,
    /// How long any one question may take: shorter than the review, so that its answer can say which question it was.
    patience: Duration,
}

impl Live {
    /// Over what the pod shares, for reviews that may take `deadline`.
    pub fn new(shared: Arc<Shared>, deadline: Duration) -> Self {
        Self {
            shared,
            own_user: OnceCell::new(),
            permits: Permits::default(),
            patience: deadline / 2,
        }
    }

    async fn patient<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Finding> {
        let unreachable = |why: String| {
            Finding::error(codes::cluster::UNREACHABLE, why).hint("try again; nothing was decided")
        };
        match tokio::time::timeout(self.patience, work).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(unreachable(format!("cannot {what}: {}", chain(&error)))),
            Err(_) => Err(unreachable(format!(
                "cannot {what}: no answer within {:?}",
                self.patience
            ))),
        }
    }
}

impl Lookups for Live {
    fn system_namespace(&self) -> &str {
        &self.shared.settings.namespace
    }

    fn state_namespace(&self) -> &str {
        &self.shared.settings.state_namespace
    }

    fn with_stamp_key<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T {
        with(self.shared.stamp_key().bytes())
    }

    fn policies(&self) -> Option<(Policies, u64)> {
        let stored = &self.shared.policies;
        // The number first: were it read last, old policies could be taken for new ones.
        let generation = stored.generation();
        stored.is_synced().then(|| (stored.all(), generation))
    }

    fn server(&self) -> Option<ServerVersion> {
        self.shared
            .server_version()
            .map(|version| (*version).clone())
    }

    async fn own_user(&self) -> Option<String> {
        let asking = async {
            let api: Api<SelfSubjectReview> = Api::all(self.shared.client());
            let (params, review) = (PostParams::default(), SelfSubjectReview::default());
            let asked = api.create(&params, &review);
            let answer = self.patient("ask who the pod is", asked).await?;
            answer
                .status
                .and_then(|status| status.user_info?.username)
                .ok_or_else(|| {
                    Finding::error(
                        codes::cluster::BAD_ANSWER,
                        "the API server did not say who the pod is",
                    )
                })
        };
        match self.own_user.get_or_try_init(|| asking).await {
            Ok(user) => Some(user.clone()),
            Err(error) => {
                tracing::warn!(%error, "cannot find out the pod's own identity");
                None
            }
        }
    }

    async fn class(&self, name: &KubeName) -> ClassFact {
        let stored = &self.shared.classes;
        if !stored.is_synced() {
            return ClassFact::Unavailable(
                Finding::error(
                    codes::review::CLASSES_UNKNOWN,
                    "the ProvisionerClasses are not known yet",
                )
                .hint("try again in a moment"),
            );
        }
        if let Some(known) = stored.get(name) {
            return fact((*known).clone());
        }
        // It may have been created just now.
        let api: Api<DynamicObject> = Api::all_with(
            self.shared.client(),
            &bundle_api::ProvisionerClass::api_resource(),
        );
        match self
            .patient("read the ProvisionerClass", ByName(&api).get_opt(name))
            .await
        {
            Ok(None) => ClassFact::Unknown,
            Ok(Some(found)) => fact(Class::parse(name, &found.data["spec"])),
            Err(why) => ClassFact::Unavailable(why),
        }
    }

    async fn may(&self, user: &UserInfo, right: &Right) -> Result<bool, Finding> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.username.clone()),
                uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(right.verb.to_owned()),
                    group: Some(right.group.to_owned()),
                    resource: Some(right.resource.to_owned()),
                    namespace: Some(right.namespace.clone()),
                    name: Some(right.name.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.shared.client());
        let params = PostParams::default();
        let question = Box::pin(async {
            let asked = api.create(&params, &review);
            let answer = self.patient("ask what the requester may do", asked).await?;
            Ok(answer.status.is_some_and(|status| status.allowed))
        });
        self.permits.ask(user, right, question).await
    }

    async fn deployment(&self, name: &KubeName) -> Result<Option<Value>, Finding> {
        let resource: ApiResource = BundleDeployment::api_resource();
        let api: Api<DynamicObject> = Api::all_with(self.shared.client(), &resource);
        let found = self
            .patient("read the BundleDeployment", ByName(&api).get_opt(name))
            .await?;
        // Whole: what vouches for it depends on its metadata and status.
        Ok(found.and_then(|found| serde_json::to_value(found).ok()))
    }

    async fn immutable(&self, name: &KubeName) -> Result<Option<bool>, Finding> {
        let api: Api<ConfigMap> = Api::namespaced(self.shared.client(), self.system_namespace());
        let found = self
            .patient("read the ConfigMap", HeldConfigMap::read(&api, name))
            .await?;
        Ok(found.map(|found| found.is_immutable()))
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn intact_since(&self) -> Option<Timestamp> {
        self.shared.registrations.intact_since()
    }

    fn enforced_since(&self) -> Option<Timestamp> {
        self.shared.registrations.last_enforced_since()
    }

    fn examinations(&self) -> &proof::Memory {
        &self.shared.examinations
    }

    async fn look(
        &self,
        image: &Image,
        signatures: bool,
        memory: Arc<LookMemory>,
    ) -> Result<Looked, Finding> {
        let registry = self
            .shared
            .registry_for(image.pull_secret.as_ref())
            .await
            .map_err(|error| error.finding())?
            .with_deadline(self.patience)
            .with_memory(memory.clone());
        let looked = registry.look(&image.reference, signatures).await;
        if memory.is_refused() {
            let why = "there was no memory left for what the registry says of the image";
            return Err(
                Finding::error(codes::review::BUSY, why).hint("try again; nothing was decided")
            );
        }
        looked.map_err(|error| error.finding())
    }
}

fn fact(class: Result<Class, bundle_core::diagnostic::Findings>) -> ClassFact {
    match class {
        Ok(class) => ClassFact::Known(Box::new(class)),
        Err(why) => ClassFact::Unreadable(why),
    }
}
