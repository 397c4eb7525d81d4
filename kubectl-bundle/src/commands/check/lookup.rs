//! The facts that the judge asks for, looked up with the rights of the person at the keyboard. What they may not see is "cannot tell".
//! Not here: which facts are needed (bundle_core::review::needs) and what follows from them (judge).

use bundle_api::{BundleDeployment, ProvisionerClass, SignaturePolicy};
use bundle_cluster::ByName;
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::Policy;
use bundle_core::review::{
    Class, ClassFact, ConfigMapFact, DeploymentFact, Image, Kind, Needs, Requester,
};
use bundle_core::review::{approval_terms, has_default_terms};
use bundle_core::version::ServerVersion;
use bundle_oci::registry::{Client, Looked};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use serde_json::Value;

use super::Online;
use super::gathered::Gathered;
use super::identity::{Question, may, whoami};
use super::named;
use super::unavailable::unavailable;
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::registry;

/// Where facts come from, with those that are the same for every object.
pub(super) struct Lookup {
    cluster: Cluster,
    registry: Client,
    pub(super) system_namespace: String,
    pub(super) requester: Requester,
    pub(super) server: Option<ServerVersion>,
    pub(super) policies: Result<Vec<Policy>, Finding>,
    pub(super) now: Timestamp,
}

fn is_missing(failure: &Failure) -> bool {
    match failure {
        Failure::Server(status) => status.code == 404,
        // No CRD, no objects.
        Failure::Findings { findings, .. } => findings
            .0
            .iter()
            .any(|finding| finding.code == codes::cluster::NO_API),
        Failure::Said(_) | Failure::BrokenPipe => false,
    }
}

impl Lookup {
    /// Connects, and asks what does not depend on the object.
    pub(super) async fn start(online: &Online, system_namespace: &str) -> Outcome<Self> {
        let cluster = Cluster::connect(&online.cluster).await?;
        let registry = registry::client(&online.registry)?;
        // The first question also says whether there is a cluster at all: then nothing can be told.
        let version = cluster.ask(cluster.client.apiserver_version()).await?;
        let requester = whoami(&cluster).await?;
        let mut lookup = Self {
            server: ServerVersion::parse(&version.git_version).ok(),
            policies: Ok(Vec::new()),
            now: Timestamp::now(),
            system_namespace: system_namespace.to_owned(),
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

    async fn read_policies(&self) -> Result<Vec<Policy>, Finding> {
        let api = self.objects::<SignaturePolicy>();
        let list = match self.cluster.ask(api.list(&ListParams::default())).await {
            Ok(list) => list.items,
            // A cluster without our kinds has no policies either; the classes will say so.
            Err(failure) if is_missing(&failure) => Vec::new(),
            Err(failure) => {
                return Err(unavailable(
                    codes::trust::CANNOT_TELL,
                    "the SignaturePolicies cannot be listed",
                    &failure,
                ));
            }
        };
        let mut policies = Vec::new();
        for object in list {
            let name = object.metadata.name.clone().unwrap_or_default();
            let policy = Policy::read(&name, &object.data["spec"]);
            policies.push(named::complete(&self.cluster, &self.system_namespace, policy).await);
        }
        Ok(policies)
    }

    /// The policy with the keys and trust roots that it names in the system namespace, as far as they can be read.
    pub(super) async fn complete(&self, policy: Policy) -> Policy {
        named::complete(&self.cluster, &self.system_namespace, policy).await
    }

    /// The object as it is in the cluster, if it is.
    pub(super) async fn existing(&self, kind: Kind, name: &str) -> Result<Option<Value>, Finding> {
        let resource = ApiResource {
            group: bundle_api::names::GROUP.to_owned(),
            version: bundle_api::names::VERSION.to_owned(),
            api_version: bundle_api::names::API_VERSION.to_owned(),
            kind: kind.as_str().to_owned(),
            plural: kind.plural().to_owned(),
        };
        let api: Api<DynamicObject> = Api::all_with(self.cluster.client.clone(), &resource);
        match self.cluster.ask(ByName(&api).get(name)).await {
            Ok(object) => Ok(serde_json::to_value(object).ok()),
            Err(failure) if is_missing(&failure) => Ok(None),
            Err(failure) => Err(unavailable(
                codes::review::RIGHTS_UNKNOWN,
                &format!("whether {kind} {name} exists cannot be told"),
                &failure,
            )),
        }
    }

    /// Finds out what is needed.
    pub(super) async fn gather(&self, needs: &Needs) -> Gathered {
        let mut gathered = Gathered::default();
        for name in &needs.classes {
            gathered
                .classes
                .insert(name.to_string(), self.class(name).await);
            let question = Question::on_class("use", name, &self.system_namespace);
            gathered
                .may_use
                .insert(name.to_string(), may(&self.cluster, question).await);
        }
        if let Some(account) = &needs.impersonate {
            let question = Question::impersonate(&account.namespace, &account.name);
            gathered.may_impersonate = Some(may(&self.cluster, question).await);
        }
        if let Some(name) = &needs.deployment {
            let deployment = self.deployment(name).await;
            if let DeploymentFact::Found { class, .. } = &deployment {
                let question = Question::on_class("approve", class, &self.system_namespace);
                gathered.may_approve = Some(may(&self.cluster, question).await);
            }
            gathered.deployment = Some(deployment);
        }
        for name in &needs.config_maps {
            let question = Question::read_config_map(&self.system_namespace, name);
            gathered
                .may_read
                .insert(name.to_string(), may(&self.cluster, question).await);
            gathered
                .config_maps
                .insert(name.to_string(), self.config_map(name).await);
        }
        gathered
    }

    async fn class(&self, name: &str) -> ClassFact {
        let api = self.objects::<ProvisionerClass>();
        match self.cluster.ask(ByName(&api).get(name)).await {
            Ok(object) => match Class::parse(name, &object.data["spec"]) {
                Ok(class) => ClassFact::Known(Box::new(class)),
                Err(findings) => ClassFact::Unreadable(findings),
            },
            Err(failure) if is_missing(&failure) => ClassFact::Unknown,
            Err(failure) => ClassFact::Unavailable(unavailable(
                codes::review::CLASSES_UNKNOWN,
                &format!("provisioner class {name:?} cannot be read"),
                &failure,
            )),
        }
    }

    async fn deployment(&self, name: &str) -> DeploymentFact {
        let api: Api<BundleDeployment> = Api::all(self.cluster.client.clone());
        match self.cluster.ask(ByName(&api).get(name)).await {
            Ok(object) => {
                let spec = serde_json::to_value(&object.spec).unwrap_or_default();
                DeploymentFact::Found {
                    uid: object.metadata.uid.clone().unwrap_or_default(),
                    class: object.spec.provisioner_class_name,
                    terms: approval_terms(&spec),
                    generation: object.metadata.generation.unwrap_or_default(),
                    has_default_terms: has_default_terms(&spec),
                }
            }
            Err(failure) if is_missing(&failure) => DeploymentFact::Missing,
            Err(failure) => DeploymentFact::Unavailable(unavailable(
                codes::review::RIGHTS_UNKNOWN,
                &format!("bundledeployment {name:?} cannot be read"),
                &failure,
            )),
        }
    }

    async fn config_map(&self, name: &str) -> ConfigMapFact {
        let api: Api<ConfigMap> =
            Api::namespaced(self.cluster.client.clone(), &self.system_namespace);
        match self.cluster.ask(ByName(&api).get(name)).await {
            Ok(object) if object.immutable == Some(true) => ConfigMapFact::Immutable,
            Ok(_) => ConfigMapFact::Mutable,
            Err(failure) if is_missing(&failure) => ConfigMapFact::Missing,
            Err(failure) => ConfigMapFact::Unavailable(unavailable(
                codes::review::RIGHTS_UNKNOWN,
                &format!("ConfigMap {}/{name} cannot be read", self.system_namespace),
                &failure,
            )),
        }
    }

    /// What the registry says of the image.
    pub(super) async fn image(&self, image: &Image) -> Result<Looked, Finding> {
        let policies = self.policies.as_deref().map_err(Clone::clone)?;
        let matching = |policy: &Policy| policy.matches(&image.reference);
        let signatures = policies.iter().any(matching);
        let looked = self.registry.look(&image.reference, signatures).await;
        looked.map_err(|error| error.finding())
    }
}
