//! Changes of field ownership before an apply. They are necessary for adopted objects, for Secrets
//! that an earlier version of the program applied, and for lists that other field managers have
//! written. This module writes only `managedFields`. Afterwards the apply is checked and sent. The
//! apply changes all values in one request. `bundle_core::plan::ownership` decides the change.

use std::time::Instant;

use bundle_api::names;
use bundle_cluster::{ByName, ObjectUrl};
use bundle_core::plan::ownership::{OwnershipChange, contested_lists};
use kube::Client;
use kube::api::{DynamicObject, GetParams, Patch};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};

use super::client::{Attempts, RETRY_LIMIT};
use super::{ApplyClient, ApplyError, ApplyRejection, CheckedApply, PreparedApply, Target};
use crate::clients::cluster::KeepFields;
use crate::dry_run::{causes, json_patch_parameters};
use crate::reconcile::api::object;
use crate::reconcile::content::objects::PreparedObject;

impl ApplyClient<'_> {
    /// Changes the field ownership as the apply requires. If the ownership was changed, checks the
    /// apply again.
    pub(super) async fn with_moved_ownership<'i>(
        &self,
        client: &Client,
        checked: CheckedApply<'i>,
    ) -> Result<CheckedApply<'i>, ApplyError> {
        let change = self.preparer.ownership_change(checked.prepared());
        if change.is_empty()
            || !self
                .move_ownership(client, checked.prepared(), &change)
                .await?
        {
            return Ok(checked);
        }
        self.repeat_check(checked.prepared().clone()).await
    }

    /// Moves the ownership of lists to this field manager, if conflicting items of these lists
    /// caused `error`. Returns the checked apply. Returns `None` if the error has another cause, or
    /// if no other field manager owns items of the lists.
    pub(super) async fn with_moved_lists<'i>(
        &self,
        client: &Client,
        prepared: &PreparedApply<'i>,
        error: &kube::Error,
    ) -> Result<Option<CheckedApply<'i>>, ApplyError> {
        let kube::Error::Api(status) = error else {
            return Ok(None);
        };
        let causes = causes(status);
        let causes = causes
            .iter()
            .map(|(reason, field)| (reason.as_str(), field.as_str()));
        let change = OwnershipChange {
            lists: contested_lists(&prepared.item().id, causes),
            ..OwnershipChange::default()
        };
        if status.code != 422
            || change.is_empty()
            || !self.move_ownership(client, prepared, &change).await?
        {
            return Ok(None);
        }
        self.repeat_check(prepared.clone()).await.map(Some)
    }

    async fn repeat_check<'i>(
        &self,
        prepared: PreparedApply<'i>,
    ) -> Result<CheckedApply<'i>, ApplyError> {
        let (item, target) = (prepared.item(), prepared.target().clone());
        let prepared = self
            .preparer
            .prepare(item, target)
            .await?
            .with_moved_fields();
        let checked = Box::pin(self.check(prepared, true, Instant::now() + RETRY_LIMIT)).await;
        checked.map_err(|(_, refusal)| refusal.into())
    }

    /// Returns true if [`Self::move_ownership`] would change the ownership of a field.
    pub(super) async fn can_move_ownership(
        &self,
        prepared: &PreparedApply<'_>,
        change: &OwnershipChange,
    ) -> bool {
        let Target::Uid(uid) = prepared.target() else {
            return false;
        };
        let item = prepared.item();
        let found = self.patch(&self.preparer.client, item, uid, change).await;
        matches!(found, Ok(Some(_)))
    }

    /// Moves the ownership of fields to this field manager. Returns true if the ownership was
    /// changed.
    pub(super) async fn move_ownership(
        &self,
        client: &Client,
        prepared: &PreparedApply<'_>,
        change: &OwnershipChange,
    ) -> Result<bool, ApplyError> {
        let (item, Target::Uid(uid)) = (prepared.item(), prepared.target()) else {
            return Ok(false);
        };
        let mut attempts = Attempts::new(Instant::now() + RETRY_LIMIT);
        loop {
            let Some(patch) = self.patch(client, item, uid, change).await? else {
                return Ok(false);
            };
            let refusal = match self.dry_runs.check_patch(item, &patch).await {
                Ok(()) => match send(client, item, patch).await {
                    Ok(()) => return Ok(true),
                    Err(error) if object::is_passing(&error) => ApplyError::Api(error),
                    Err(error) => return Err(ApplyError::Api(error)),
                },
                // Another actor wrote the object after it was read.
                Err(refusal @ ApplyRejection::Conflict(_)) => refusal.into(),
                Err(refusal) if refusal.may_change() => refusal.into(),
                Err(refusal) => return Err(refusal.into()),
            };
            let is_conflict =
                matches!(refusal, ApplyError::NotAllowed(ApplyRejection::Conflict(_)));
            if !attempts.next(is_conflict).await {
                return Err(refusal);
            }
        }
    }

    /// Returns the patch of `managedFields` for the object with this uid. Returns `None` if the
    /// field ownership needs no change.
    async fn patch(
        &self,
        client: &Client,
        item: &PreparedObject,
        uid: &str,
        change: &OwnershipChange,
    ) -> Result<Option<json_patch::Patch>, ApplyError> {
        let _slot = self.dry_runs.entries_slot().await;
        let live = match read_entries(client, item).await {
            Err(error) if object::is_not_found(&error) => None,
            live => Some(live.map_err(ApplyError::Api)?),
        };
        let live = live.filter(|live| live.metadata.uid.as_deref() == Some(uid));
        let metadata = live.ok_or(ApplyError::Moved)?.metadata;
        let unreadable = |error| ApplyError::Api(kube::Error::SerdeError(error));
        let entries: Vec<Value> = metadata
            .managed_fields
            .iter()
            .flatten()
            .map(serde_json::to_value)
            .collect::<Result<_, _>>()
            .map_err(unreadable)?;
        let version = item.id.api_version();
        let Some(changed) = change.applied(&entries, names::FIELD_MANAGER, &version) else {
            return Ok(None);
        };
        // Because of the resourceVersion, the API server rejects the patch with a conflict (409) if
        // the object has changed since it was read.
        let operations = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "replace", "path": "/metadata/managedFields", "value": changed},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
        ]);
        serde_json::from_value(operations)
            .map(Some)
            .map_err(unreadable)
    }
}

impl From<ApplyRejection> for ApplyError {
    fn from(refusal: ApplyRejection) -> Self {
        match refusal {
            ApplyRejection::DeletedOrCreated => Self::Moved,
            refusal => Self::NotAllowed(refusal),
        }
    }
}

/// Reads the metadata of an object with the complete managed fields of all managers.
async fn read_entries(
    client: &Client,
    item: &PreparedObject,
) -> Result<PartialObjectMeta, kube::Error> {
    let namespace = item.id.namespace.as_deref();
    let namespace = namespace.filter(|_| item.kind.namespaced);
    let request = ObjectUrl::parse(&item.kind.resource, namespace, &item.id.name).and_then(|url| {
        url.requests()
            .get_metadata(url.name(), &GetParams::default())
    });
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    request.extensions_mut().insert(KeepFields);
    client.request(request).await
}

/// Sends a patch as the user of `client`.
async fn send(
    client: &Client,
    item: &PreparedObject,
    patch: json_patch::Patch,
) -> Result<(), kube::Error> {
    let namespace = item.id.namespace.as_deref();
    let api = object::api::<DynamicObject>(client, &item.kind, namespace)?;
    let parameters = json_patch_parameters(false);
    let patch = Patch::Json::<()>(patch);
    ByName(&api)
        .patch_metadata(&item.id.name, &parameters, &patch)
        .await
        .map(drop)
}
