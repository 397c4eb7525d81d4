//! Requests for one object, by a parsed name. The client library puts names into URLs as they are; a [`KubeName`] cannot change where a URL leads.

use std::fmt::Debug;

use bundle_core::names::KubeName;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One resource, whose objects are reached by parsed names.
pub(crate) struct ByName<'a, K>(pub(crate) &'a Api<K>);

impl<K: Clone + DeserializeOwned + Debug> ByName<'_, K> {
    /// Returns the object, or `None` if there is none.
    pub(crate) async fn get_opt(&self, name: &KubeName) -> Result<Option<K>, kube::Error> {
        self.0.get_opt(name.as_str()).await
    }

    /// Changes the status of the object.
    pub(crate) async fn patch_status<P: Serialize + Debug>(
        &self,
        name: &KubeName,
        parameters: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        self.0.patch_status(name.as_str(), parameters, patch).await
    }
}
