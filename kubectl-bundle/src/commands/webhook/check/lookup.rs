//! Looks up the facts for a review (classes, policies, permissions, versions) with the user's
//! permissions. Facts that the user has no permission to read are unknown. The rules are the same
//! as in admission (`bundle_core::review`).

use std::sync::Arc;

use bundle_api::{ProvisionerClass, SignaturePolicy};
use bundle_cluster::review::{ImageLookups, MatchingPolicies, ReviewLookups};
use bundle_cluster::{ByName, access};
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::names::KubeName;
use bundle_core::policy::{self, Policy};
use bundle_core::review::target::default_state_namespace;
use bundle_core::review::{AccessReviewResult, Class, ClassFact, Image, Kind, Requester};
use bundle_core::rights::AccessReview;
use bundle_core::version::ServerVersion;
use bundle_oci::registry::{Client, ImageMetadata};
use bundle_trust::proof;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use serde_json::Value;
use tokio::time::Instant;

use super::unavailable::unavailable;
use super::{OnlineSettings, policy_references};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::registry;

/// Source of the facts for reviews. The fields contain the connections, and the facts that do not
/// depend on the reviewed object.
pub(super) struct ClusterFacts {
    cluster: Cluster,
    pub(super) registry: Client,
    system_namespace: String,
    state_namespace: String,
    pub(super) requester: Requester,
    server: Option<ServerVersion>,
    policies: Result<Vec<Arc<Policy>>, Finding>,
    examinations: proof::ExaminationCache,
    now: Timestamp,
}

fn is_missing(failure: &Failure) -> bool {
    match failure {
        Failure::Server(status) => status.code == 404,
        // Without the CRD of a kind, the cluster has no objects of this kind.
        Failure::Findings { findings, .. } => findings
            .iter()
            .any(|finding| finding.code == codes::cluster::NO_API),
        Failure::Reported(_) | Failure::BrokenPipe => false,
    }
}

impl ClusterFacts {
    /// Connects, and reads the facts that do not depend on the reviewed object.
    pub(super) async fn start(online: &OnlineSettings, system_namespace: &str) -> Outcome<Self> {
        let cluster = Cluster::connect(&online.cluster).await?;
        let registry = registry::client(&online.registry)?;
        // The first request also detects an unreachable cluster. Without a cluster, no object can
        // be reviewed.
        let version = cluster.send(cluster.client.apiserver_version()).await?;
        let requester = cluster.send(access::own_identity(&cluster.client)).await?;
        let mut lookup = Self {
            server: ServerVersion::parse(&version.git_version).ok(),
            policies: Ok(Vec::new()),
            examinations: proof::ExaminationCache::default(),
            now: Timestamp::now(),
            system_namespace: system_namespace.to_owned(),
            state_namespace: default_state_namespace(system_namespace),
            cluster,
            registry,
            requester,
        };
        lookup.policies = lookup.read_policies().await;
        Ok(lookup)
    }

    fn objects<K: kube::Resource<DynamicType = ()>>(&self) -> Api<DynamicObject> {
        Api::all_with(self.cluster.client.clone(), &ApiResource::erase::<K>(&()))
    }

    async fn read_policies(&self) -> Result<Vec<Arc<Policy>>, Finding> {
        let api = self.objects::<SignaturePolicy>();
        let list = match self.cluster.send(api.list(&ListParams::default())).await {
            Ok(list) => list.items,
            // A cluster without the CRDs has no policies. The lookup of classes reports the missing
            // CRDs.
            Err(failure) if is_missing(&failure) => Vec::new(),
            Err(failure) => {
                return Err(unavailable(
                    codes::trust::CANNOT_TELL,
                    "cannot list SignaturePolicies",
                    &failure,
                ));
            }
        };
        let mut policies = Vec::new();
        for object in list {
            let name = object.metadata.name.clone().unwrap_or_default();
            let policy = Policy::read(&name, &object.data["spec"]);
            policies.push(Arc::new(self.resolve_references(policy).await));
        }
        Ok(policies)
    }

    /// Returns the policy with the referenced keys and trust roots from the system namespace. Keys
    /// and trust roots that the user cannot read are unknown.
    pub(super) async fn resolve_references(&self, policy: Policy) -> Policy {
        policy_references::resolve_references(&self.cluster, &self.system_namespace, policy).await
    }

    /// Returns the object in the cluster, if it exists.
    pub(super) async fn existing(&self, kind: Kind, name: &str) -> Result<Option<Value>, Finding> {
        let why = || format!("cannot read {kind} {name}");
        self.object(kind, name, why).await
    }

    /// Returns the client of the user.
    pub(super) fn client(&self) -> &kube::Client {
        &self.cluster.client
    }

    /// Returns the CustomResourceDefinition in the cluster, if it exists.
    pub(super) async fn definition(&self, name: &str) -> Result<Option<Value>, Finding> {
        let api = self.objects::<CustomResourceDefinition>();
        match self.cluster.send(ByName(&api).get(name)).await {
            Ok(object) => Ok(serde_json::to_value(object).ok()),
            Err(failure) if is_missing(&failure) => Ok(None),
            Err(failure) => {
                let why = format!("cannot read CustomResourceDefinition {name}");
                Err(unavailable(codes::review::RIGHTS_UNKNOWN, &why, &failure))
            }
        }
    }

    async fn object(
        &self,
        kind: Kind,
        name: &str,
        why: impl Fn() -> String,
    ) -> Result<Option<Value>, Finding> {
        let resource = ApiResource {
            group: bundle_api::names::GROUP.to_owned(),
            version: bundle_api::names::VERSION.to_owned(),
            api_version: bundle_api::names::API_VERSION.to_owned(),
            kind: kind.as_str().to_owned(),
            plural: kind.plural().to_owned(),
        };
        let api: Api<DynamicObject> = Api::all_with(self.cluster.client.clone(), &resource);
        match self.cluster.send(ByName(&api).get(name)).await {
            Ok(object) => Ok(serde_json::to_value(object).ok()),
            Err(failure) if is_missing(&failure) => Ok(None),
            Err(failure) => Err(unavailable(codes::review::RIGHTS_UNKNOWN, &why(), &failure)),
        }
    }
}

impl ReviewLookups for ClusterFacts {
    type HeldDeployment = Box<Value>;

    fn system_namespace(&self) -> &str {
        &self.system_namespace
    }

    fn state_namespace(&self) -> &str {
        &self.state_namespace
    }

    fn server(&self) -> Option<ServerVersion> {
        self.server.clone()
    }

    async fn class(&self, name: &KubeName) -> ClassFact {
        let api = self.objects::<ProvisionerClass>();
        match self.cluster.send(ByName(&api).get(name)).await {
            Ok(object) => match Class::parse(name, &object.data["spec"]) {
                Ok(class) => ClassFact::Known(Box::new(class)),
                Err(findings) => ClassFact::Unreadable(findings),
            },
            Err(failure) if is_missing(&failure) => ClassFact::Unknown,
            Err(failure) => ClassFact::Unavailable(unavailable(
                codes::review::CLASSES_UNKNOWN,
                &format!("cannot read ProvisionerClass {:?}", name.as_str()),
                &failure,
            )),
        }
    }

    /// Sends the access review for the user who runs the command.
    async fn has_permission(
        &self,
        _requester: &Requester,
        question: &AccessReview,
    ) -> AccessReviewResult {
        let request = access::has_own_permission(&self.cluster.client, question);
        match self.cluster.send(request).await {
            Ok(true) => AccessReviewResult::Allowed,
            Ok(false) => AccessReviewResult::Denied,
            Err(failure) => AccessReviewResult::Unavailable(unavailable(
                codes::review::RIGHTS_UNKNOWN,
                "cannot review your permissions",
                &failure,
            )),
        }
    }

    async fn deployment(
        &self,
        _requester: &Requester,
        name: &KubeName,
    ) -> Result<Option<Box<Value>>, Finding> {
        let why = || format!("cannot read BundleDeployment {:?}", name.as_str());
        let found = self.object(Kind::BundleDeployment, name, why).await?;
        Ok(found.map(Box::new))
    }

    async fn immutable(
        &self,
        _requester: &Requester,
        name: &KubeName,
    ) -> Result<Option<bool>, Finding> {
        let api: Api<ConfigMap> =
            Api::namespaced(self.cluster.client.clone(), &self.system_namespace);
        match self.cluster.send(ByName(&api).get(name)).await {
            Ok(object) => Ok(Some(object.immutable == Some(true))),
            Err(failure) if is_missing(&failure) => Ok(None),
            Err(failure) => Err(unavailable(
                codes::review::RIGHTS_UNKNOWN,
                &format!("cannot read ConfigMap {}/{name}", self.system_namespace),
                &failure,
            )),
        }
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn examinations(&self) -> &proof::ExaminationCache {
        &self.examinations
    }
}

impl ImageLookups for ClusterFacts {
    type VerificationSlot = ();

    fn policies(&self, image: &Image) -> Result<MatchingPolicies, Finding> {
        let policies = self.policies.as_deref().map_err(Clone::clone)?;
        Ok(MatchingPolicies {
            policies: policy::matching(&image.reference, policies),
            // The policies are read only once, so their generation does not change.
            generation: 0,
        })
    }

    async fn read_image(
        &self,
        image: &Image,
        policies: &MatchingPolicies,
    ) -> Result<Arc<ImageMetadata>, Finding> {
        let signatures = !policies.policies.is_empty();
        let metadata = self
            .registry
            .image_metadata(&image.reference, signatures)
            .await;
        metadata.map(Arc::new).map_err(|error| error.finding())
    }

    async fn reserve(&self, _: u64) -> Result<(), Finding> {
        Ok(())
    }

    async fn forget(&self, _image: &Image, _policies: &MatchingPolicies) {}

    /// Returns `true`: the content of rejected images is read too, so that the user gets all
    /// findings in one run.
    fn reads_rejected_images(&self) -> bool {
        true
    }

    async fn verification_slot(&self) -> Result<(), Finding> {
        Ok(())
    }

    fn until(&self) -> Option<Instant> {
        None
    }
}
