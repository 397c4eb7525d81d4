//! Single objects of content, read from the rendered copy in the cache and prepared for applying.
//! If the rendered copy is missing, damaged or incomplete, the whole content is loaded, and the
//! copy is written again. Callers check single objects like the objects of the whole content.

use std::collections::BTreeSet;

use bundle_api::names::reason;
use bundle_core::cancellation::Cancellation;
use bundle_core::diagnostic::codes;
use bundle_core::format::{self, Content, RenderTarget};
use bundle_core::object::CustomKind;
use bundle_core::object::Manifest;
use bundle_core::package::Format;
use bundle_core::plan::bundle::Compatibility;
use bundle_core::plan::conditions::ConditionStatus;
use bundle_core::plan::created_namespace::namespace_id;
use bundle_core::plan::placement::ObjectOwner;
use bundle_core::review::class::Provisioner;
use serde_json::{Map, Value};

use crate::budget::{WorkerThread, requester_key};
use crate::reconcile::bundle::compatibility::compatibility;
use crate::reconcile::content::objects::{self, HeldObjects, PreparedObject};
use crate::reconcile::context::ClassLookup;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::reader;

impl DeploymentReconcile<'_> {
    /// Returns the prepared objects with these object keys. If single objects cannot be read,
    /// returns all objects of the content. Keys without an object are ignored.
    pub(in crate::reconcile) async fn objects_of(
        &mut self,
        request: &InstallRequest<'_>,
        keys: &BTreeSet<String>,
    ) -> Result<HeldObjects, ReconcileError> {
        match Box::pin(self.selected_objects(request, keys)).await? {
            Some(items) => Ok(items),
            None => Box::pin(self.objects(request)).await,
        }
    }

    /// Reads the objects with these object keys from the rendered copy. Returns `None` if the copy
    /// does not exist or does not contain all these objects.
    async fn selected_objects(
        &mut self,
        request: &InstallRequest<'_>,
        keys: &BTreeSet<String>,
    ) -> Result<Option<HeldObjects>, ReconcileError> {
        let id = request.source()?;
        let Some(format) = self.bundle_format(request).await? else {
            return Ok(None);
        };
        let target = self.render_target()?;
        let rendered_for = format::dependencies(format).key(&target);
        let find = {
            let (ctx, id, keys) = (self.ctx.clone(), id.clone(), keys.clone());
            let rendered_for = rendered_for.clone();
            move |_: &Cancellation| {
                let key = ctx.shared.stamp_key();
                ctx.store.select(&id, &rendered_for, key.bytes(), &keys)
            }
        };
        let budget = &self.ctx.shared.budget;
        let found = budget
            .blocking(
                WorkerThread::Objects,
                requester_key(&self.requester.user),
                find,
            )
            .await;
        let Some(selected) = found.flatten() else {
            return Ok(None);
        };
        let created = target.namespace.as_deref();
        let created = created.filter(|_| self.spec.create_namespace);
        let created = created.map(|target| namespace_id(target).to_string());
        // Only the target namespace may be missing in the rendered copy, because
        // `add_created_namespace` adds its object later.
        if !selected
            .missing()
            .iter()
            .all(|key| created.as_ref() == Some(key))
        {
            return Ok(None);
        }
        let read = reason::READING_CONTENT_FAILED;
        let user = &self.requester.user;
        let weight = selected.weight().saturating_mul(self.copies());
        let share = match reader::memory(self.ctx, user, weight, read).await {
            Ok(share) => share,
            // The caller then loads the whole content. The error of that load contains the size of
            // the content.
            Err(error) if error.code == codes::install::CONTENT_TOO_LARGE => return Ok(None),
            Err(error) => return Err(error),
        };
        let work = move |_: &Cancellation| (selected.read(), share);
        let loaded = budget
            .blocking(WorkerThread::Objects, requester_key(user), work)
            .await;
        // Variables are dropped in reverse order. `share` is the first variable, so its memory is
        // released after the objects were dropped.
        let (share, (content, kinds)) = match loaded {
            Some((Ok(loaded), share)) => (share, loaded),
            Some((Err(error), _)) => {
                tracing::warn!(
                    deployment = self.name,
                    %error,
                    "ignored a damaged rendered copy in the cache"
                );
                self.ctx.store.remove_rendered(&id, &rendered_for);
                return Ok(None);
            }
            None => return Ok(None),
        };
        self.check_compatibility(request, &content)?;
        let mut objects = content.objects;
        self.write_certificates(content.format, &mut objects, read)?;
        if created.is_some_and(|key| keys.contains(&key)) {
            Box::pin(self.add_created_namespace(request, &mut objects)).await?;
        }
        let mut items = self.prepare_objects(request, &kinds, objects).await?;
        // If the scope of a kind has changed after its objects were recorded, the keys of these
        // objects differ from `keys`.
        let found: BTreeSet<&str> = items.iter().map(|item| item.key.as_str()).collect();
        if !keys.iter().all(|key| found.contains(key.as_str())) {
            return Ok(None);
        }
        items.retain(|item| keys.contains(&item.key));
        items.retain(|item| !self.has_expired(request, item));
        Ok(Some(HeldObjects::new(items, share)))
    }

    /// Returns the number of copies of each object that are in memory at the same time. The rules
    /// in `spec.drift.ignore` require a second copy.
    pub(in crate::reconcile) fn copies(&self) -> u64 {
        if self.spec.drift_ignore.is_empty() {
            1
        } else {
            2
        }
    }

    /// Returns the format of the content of the Bundle. The class of the Bundle determines the
    /// format, because only content with this format is unpacked. The status is not used, because
    /// other clients can write it. Returns `None` if the format is unknown because the class was
    /// deleted or changed.
    async fn bundle_format(
        &self,
        request: &InstallRequest<'_>,
    ) -> Result<Option<Format>, ReconcileError> {
        let name = request.class();
        if name == self.class.name {
            return Ok(format_of(&self.class.provisioner));
        }
        let found = self.ctx.class(name).await.map_err(|error| {
            ReconcileError::api("read the class of the Bundle", request.reason, &error)
        })?;
        Ok(match found {
            ClassLookup::Managed(class) => format_of(&class.provisioner),
            ClassLookup::Unmanaged | ClassLookup::NotFound | ClassLookup::Invalid(_) => None,
        })
    }

    /// Returns the target (settings and cluster) that the content is rendered for.
    pub(in crate::reconcile) fn render_target(&self) -> Result<RenderTarget, ReconcileError> {
        let server = self.ctx.shared.server_version();
        let config = match self.config() {
            Value::Null => Value::Object(Map::new()),
            config => config.clone(),
        };
        Ok(RenderTarget {
            name: Some(self.name.clone()),
            config: Some(config),
            kubernetes: server.map(|version| version.numbers()),
            ..RenderTarget::in_namespace(self.target_namespace()?)
        })
    }

    /// Checks that the content supports the Kubernetes version of the API server. If the spec
    /// accepts an unsupported version, adds a warning instead of an error. Also adds a warning if
    /// `spec.config` has no effect on the content, or if helm did not know all served API versions.
    pub(in crate::reconcile) fn check_compatibility(
        &mut self,
        request: &InstallRequest<'_>,
        content: &Content,
    ) -> Result<(), ReconcileError> {
        let package = content.package.as_ref();
        let is_used = format::uses_config(content.format, package);
        if !self.config().is_null() && !is_used {
            self.warnings.insert(format!(
                "spec.config is set and has no effect: bundle.yaml of the content has no config.patches ({})",
                codes::install::NOT_IMPLEMENTED
            ));
        }
        let warnings = content.warnings.iter();
        let omitted = warnings.filter(|found| found.code == codes::format::CHART_APIS_OMITTED);
        self.warnings
            .extend(omitted.map(|found| format!("{found} ({})", found.code)));
        let Compatibility { state, message, .. } = compatibility(self.ctx, content)?;
        if state == ConditionStatus::False {
            if !self.spec.accept_unsupported {
                return Err(ReconcileError::new(
                    codes::format::UNSUPPORTED_KUBERNETES,
                    request.reason,
                    message,
                    RetryPolicy::Slowly,
                ));
            }
            self.warnings.insert(format!(
                "{} ({message})",
                codes::review::KUBERNETES_ACCEPTED.title
            ));
        }
        Ok(())
    }

    /// Prepares `objects` of content: looks up kinds, sets namespaces and adds owner labels.
    /// `kinds` are the kinds that the content itself defines.
    pub(in crate::reconcile) async fn prepare_objects(
        &self,
        request: &InstallRequest<'_>,
        kinds: &[CustomKind],
        objects: Vec<Manifest>,
    ) -> Result<Vec<PreparedObject>, ReconcileError> {
        let owner = ObjectOwner {
            name: &self.name,
            applyset: &self.applyset,
            namespace: self.target_namespace()?,
        };
        objects::prepare(&self.ctx.apis, (kinds, objects), &owner, request.reason).await
    }
}

/// Returns the content format that `provisioner` supports. Returns `None` if another program
/// implements the provisioner.
fn format_of(provisioner: &Provisioner) -> Option<Format> {
    match provisioner {
        Provisioner::Plain => Some(Format::PlainV0),
        Provisioner::Registry => Some(Format::RegistryV1),
        Provisioner::Helm => Some(Format::HelmV3),
        Provisioner::Foreign(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use bundle_core::review::Class;
    use serde_json::json;

    use super::*;

    #[test]
    fn class_of_a_bundle_supports_only_the_format_of_its_provisioner() {
        for provisioner in ["plain", "registry", "helm"] {
            let spec = json!({"provisioner": format!("core.rukpak.io/{provisioner}")});
            let class = Class::parse(provisioner, &spec).unwrap();
            let own = format_of(&class.provisioner);
            for format in [Format::PlainV0, Format::RegistryV1, Format::HelmV3] {
                let is_read = class.reads(format).is_ok();
                assert_eq!(is_read, own == Some(format), "{provisioner} {format}");
            }
        }
        let other = Provisioner::Foreign("example.com/other".to_owned());
        assert_eq!(format_of(&other), None);
    }
}
