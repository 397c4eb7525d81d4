//! Requests for one object by its name.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place where names reach the client library, each parsed"
)]

use std::fmt::Debug;

use kube::Api;
use kube::api::{DeleteParams, PartialObjectMeta, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::url::object_name;

/// One resource, whose objects are reached by name. Each method fails before anything is sent if the name cannot be one.
pub struct ByName<'a, K>(pub &'a Api<K>);

impl<K: Clone + DeserializeOwned + Debug> ByName<'_, K> {
    /// Returns the object. That there is none is an error.
    pub async fn get(&self, name: &str) -> Result<K, kube::Error> {
        self.0.get(&object_name(name)?).await
    }

    /// Returns the object, or `None` if there is none.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>, kube::Error> {
        self.0.get_opt(&object_name(name)?).await
    }

    /// Returns the metadata of the object, or `None` if there is none.
    pub async fn get_metadata_opt(
        &self,
        name: &str,
    ) -> Result<Option<PartialObjectMeta<K>>, kube::Error> {
        self.0.get_metadata_opt(&object_name(name)?).await
    }

    /// Changes the object, or creates it where the patch is an apply.
    pub async fn patch<P: Serialize + Debug>(
        &self,
        name: &str,
        parameters: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        self.0.patch(&object_name(name)?, parameters, patch).await
    }

    /// Changes the object, and returns its metadata alone.
    pub async fn patch_metadata<P: Serialize + Debug>(
        &self,
        name: &str,
        parameters: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<PartialObjectMeta<K>, kube::Error> {
        let name = object_name(name)?;
        self.0.patch_metadata(&name, parameters, patch).await
    }

    /// Changes the status of the object.
    pub async fn patch_status<P: Serialize + Debug>(
        &self,
        name: &str,
        parameters: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        let name = object_name(name)?;
        self.0.patch_status(&name, parameters, patch).await
    }

    /// Stores `object` in the place of the one that is there.
    pub async fn replace(&self, name: &str, object: &K) -> Result<K, kube::Error>
    where
        K: Serialize,
    {
        let name = object_name(name)?;
        self.0.replace(&name, &PostParams::default(), object).await
    }

    /// Deletes the object. Success says that the API server has accepted that.
    pub async fn delete(&self, name: &str, parameters: &DeleteParams) -> Result<(), kube::Error> {
        let name = object_name(name)?;
        self.0.delete(&name, parameters).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Secret;
    use kube::Client;
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn nothing_is_sent_for_a_name_that_leads_elsewhere() {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let api: Api<Secret> = Api::namespaced(Client::new(service, "team-a"), "team-a");
        for name in ["?watch=true&timeoutSeconds=3", "a/b", "..", ""] {
            let error = ByName(&api).get_opt(name).await.unwrap_err();
            assert!(matches!(error, kube::Error::BuildRequest(_)), "{error}");
        }
        drop(api);
        assert!(server.next_request().await.is_none());
    }
}
