//! The target namespace as an object of the content, if the spec requests its creation.
//! `bundle_core::plan::created_namespace` contains the rule.

use bundle_core::object::Manifest;
use bundle_core::plan::consent::{Consent, ObjectAction};
use bundle_core::plan::created_namespace::{
    NamespaceState, created_namespace, missing_namespace_hint, namespace_id,
};
use bundle_core::plan::inventory::ObjectOwnership;
use bundle_core::rights::AccessReview;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::discovery::ApiResource;

use crate::reconcile::api::discovery::Kind;
use crate::reconcile::api::object;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::ReconcileError;
use crate::reconcile::rights::authorize;

impl DeploymentReconcile<'_> {
    /// Adds the target namespace to `objects` if the installation must create it. The pod reads the
    /// namespace only if [`Self::can_read_namespace`] returns true. Otherwise the namespace counts
    /// as missing, so that errors do not disclose to the requesters whether the namespace exists.
    pub(in crate::reconcile) async fn add_created_namespace(
        &mut self,
        request: &InstallRequest<'_>,
        objects: &mut Vec<Manifest>,
    ) -> Result<(), ReconcileError> {
        self.created_namespace = None;
        let Some(target) = self.spec.target_namespace.clone() else {
            return Ok(());
        };
        if !self.spec.create_namespace {
            return Ok(());
        }
        let state = if self.can_read_namespace(request, &target).await? {
            self.namespace_state(&target).await?
        } else {
            NamespaceState::Absent
        };
        if let Some(namespace) = created_namespace(Some(&target), true, objects, state) {
            self.created_namespace = Some(namespace.id.to_string());
            objects.insert(0, namespace);
        }
        Ok(())
    }

    /// Returns true if every requester has permission to read or create the namespace. Also returns
    /// true if no permissions of the requesters are required, because the class authorizes the
    /// installation.
    async fn can_read_namespace(
        &self,
        request: &InstallRequest<'_>,
        name: &str,
    ) -> Result<bool, ReconcileError> {
        let consent = self.consent_rule(request);
        if consent.consent(ObjectAction::Install, &namespace_id(name)) == Consent::Delegated {
            return Ok(true);
        }
        for requester in &self.content_requesters() {
            let question =
                |verb, within| AccessReview::resource(verb, "", "namespaces", within, Some(name));
            // RBAC also evaluates RoleBindings in the namespace itself for `get` of the Namespace
            // object.
            let questions = [question("get", Some(name)), question("create", None)];
            let mut is_allowed = false;
            for question in &questions {
                is_allowed = is_allowed
                    || authorize::has_permission(&self.ctx.own, requester, question).await?;
            }
            if !is_allowed {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn namespace_state(&self, name: &str) -> Result<NamespaceState, ReconcileError> {
        let kind = Kind {
            resource: ApiResource::erase::<Namespace>(&()),
            namespaced: false,
        };
        let id = namespace_id(name);
        let found = object::observe(&self.ctx.own, &kind, &id).await;
        let found = found.map_err(|error| {
            ReconcileError::api("read the target namespace", self.install_reason(), &error)
        })?;
        Ok(match found {
            None => NamespaceState::Absent,
            Some(found) => match self.inventory.claim(&id.to_string(), found.live()) {
                ObjectOwnership::Ours => NamespaceState::Ours,
                ObjectOwnership::Replaced | ObjectOwnership::Unrecorded => NamespaceState::Foreign,
            },
        })
    }

    /// Adds a hint to an error about a missing target namespace.
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
