//! Requests for one object by its name.
#![expect(
    clippy::disallowed_methods,
    reason = "the only module that passes names to the client library, after it parsed them"
)]

use std::fmt::Debug;

use kube::Api;
use kube::api::{DeleteParams, PartialObjectMeta, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::url::object_name;

/// Resource whose objects are accessed by name. For an invalid name, all methods fail without a
/// request.
pub struct ByName<'a, K>(pub &'a Api<K>);

impl<K: Clone + DeserializeOwned + Debug> ByName<'_, K> {
    /// Returns the object, or an error if it does not exist.
    pub async fn get(&self, name: &str) -> Result<K, kube::Error> {
        self.0.get(&object_name(name)?).await
    }

    /// Returns the object, or `None` if it does not exist.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>, kube::Error> {
        self.0.get_opt(&object_name(name)?).await
    }

    /// Returns the metadata of the object, or `None` if it does not exist.
    pub async fn get_metadata_opt(
        &self,
        name: &str,
    ) -> Result<Option<PartialObjectMeta<K>>, kube::Error> {
        self.0.get_metadata_opt(&object_name(name)?).await
    }

    /// Patches the object. An apply patch creates the object if it does not exist.
    pub async fn patch<P: Serialize + Debug>(
        &self,
        name: &str,
        parameters: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        self.0.patch(&object_name(name)?, parameters, patch).await
    }

    /// Patches the object, and returns only its metadata.
    pub async fn patch_metadata<P: Serialize + Debug>(
        &self,
        name: &str,
        parameters: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<PartialObjectMeta<K>, kube::Error> {
        let name = object_name(name)?;
        self.0.patch_metadata(&name, parameters, patch).await
    }

    /// Patches the status of the object.
    pub async fn patch_status<P: Serialize + Debug>(
        &self,
        name: &str,
        parameters: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        let name = object_name(name)?;
        self.0.patch_status(&name, parameters, patch).await
    }

    /// Replaces the object with `object`.
    pub async fn replace(&self, name: &str, object: &K) -> Result<K, kube::Error>
    where
        K: Serialize,
    {
        let name = object_name(name)?;
        self.0.replace(&name, &PostParams::default(), object).await
    }

    /// Sends the replacement of the object as a dry run. Returns the object that the API server
    /// would store.
    pub async fn dry_run_replace(&self, name: &str, object: &K) -> Result<K, kube::Error>
    where
        K: Serialize,
    {
        let name = object_name(name)?;
        let parameters = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        self.0.replace(&name, &parameters, object).await
    }

    /// Deletes the object. Success means that the API server accepted the request.
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
    async fn sends_no_request_for_a_name_that_changes_the_path() {
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
