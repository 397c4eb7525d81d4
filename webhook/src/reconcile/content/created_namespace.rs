//! The target namespace as an object of the content, where the spec asks for its creation.
//! The rule is in `bundle_core::plan::created_namespace`; whether it is deleted again is in `occupants`.

use bundle_core::object::Manifest;
use bundle_core::plan::created_namespace::{
    NamespaceState, created_namespace, missing_namespace_hint, namespace_id,
};
use bundle_core::plan::inventory::Claim;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::discovery::ApiResource;

use crate::reconcile::api::discovery::Kind;
use crate::reconcile::api::object;
use crate::reconcile::deployment::controller::DeploymentReconcile;
use crate::reconcile::error::ReconcileError;

impl DeploymentReconcile<'_> {
    /// Adds the target namespace to the `objects` of a content if it is created with them. It is looked at as the pod itself.
    pub(in crate::reconcile) async fn add_created_namespace(
        &mut self,
        objects: &mut Vec<Manifest>,
    ) -> Result<(), ReconcileError> {
        self.created_namespace = None;
        let Some(target) = self.spec.target_namespace.clone() else {
            return Ok(());
        };
        if !self.spec.create_namespace {
            return Ok(());
        }
        let state = self.namespace_state(&target).await?;
        if let Some(namespace) = created_namespace(Some(&target), true, objects, state) {
            self.created_namespace = Some(namespace.id.to_string());
            objects.insert(0, namespace);
        }
        Ok(())
    }

    async fn namespace_state(&self, name: &str) -> Result<NamespaceState, ReconcileError> {
        let kind = Kind {
            resource: ApiResource::erase::<Namespace>(&()),
            namespaced: false,
        };
        let id = namespace_id(name);
        let found = object::look(&self.ctx.own, &kind, &id).await;
        let found = found.map_err(|error| {
            ReconcileError::api("read the target namespace", self.install_reason(), &error)
        })?;
        Ok(match found {
            None => NamespaceState::Absent,
            Some(found) => match self.inventory.claim(&id.to_string(), found.live()) {
                Claim::Ours => NamespaceState::Ours,
                Claim::Replaced | Claim::Unrecorded => NamespaceState::Foreign,
            },
        })
    }

    /// Adds the next step to an error about a target namespace that is missing.
    pub(in crate::reconcile) fn with_namespace_hint(
        &self,
        error: ReconcileError,
    ) -> ReconcileError {
        let target = self.spec.target_namespace.as_deref();
        let hint = target
            .filter(|_| !self.spec.create_namespace)
            .and_then(|target| missing_namespace_hint(&error.message, target));
        match hint {
            Some(hint) => ReconcileError {
                message: format!("{} ({hint})", error.message),
                ..error
            },
            None => error,
        }
    }
}
