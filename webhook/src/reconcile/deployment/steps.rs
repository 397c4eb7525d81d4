//! Installation of the content of one Bundle. `bundle_core::plan::steps` orders the steps, and this
//! module executes them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bundle_api::names::{self, reason};
use bundle_core::diagnostic::codes;
use bundle_core::object::CustomKind;
use bundle_core::plan::ignore;
use bundle_core::plan::inventory::{ContentKey, ContentKeyPrefix};
use bundle_core::plan::package_rules::PackageRules;
use bundle_core::plan::steps::{InstallStep, ObservedDeployment};
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use crate::blocking;
use crate::reconcile::content::objects::HeldObjects;
use crate::reconcile::context::Context;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::drift::states::InstallationAttempt;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::install::authorized::AuthorizedInstall;
use crate::reconcile::install::executor::Install;
use crate::reconcile::install::phases::{ApplyMode, ApplyOutcome};
use crate::reconcile::maintenance::{health, restore};
use crate::reconcile::reader::{self, RenderedCopyChoice};
use crate::reconcile::removal::remove::removal_weight;

impl<'a> DeploymentReconcile<'a> {
    /// Loads installed content and returns its objects, prepared for applying. Omits Jobs that are
    /// recorded as expired.
    pub(in crate::reconcile) async fn objects(
        &mut self,
        request: &InstallRequest<'_>,
    ) -> Result<HeldObjects, ReconcileError> {
        Box::pin(self.load_objects(request, RenderedCopyChoice::Installed)).await
    }

    /// Loads content like [`Self::objects`]. `rendered_copy` determines which rendered copy of a
    /// chart is used.
    async fn load_objects(
        &mut self,
        request: &InstallRequest<'_>,
        rendered_copy: RenderedCopyChoice,
    ) -> Result<HeldObjects, ReconcileError> {
        let id = request.source()?;
        let target = self.render_target()?;
        let read = reason::READING_CONTENT_FAILED;
        let wanted = reader::LoadRequest {
            name: &self.name,
            uid: self.uid(),
            version: &self.version(),
            requester: &self.requester,
            class: request.class(),
            content: &id,
            target: &target,
            rendered_copy,
            copies: self.copies(),
            pruning: if self.is_installed(request) {
                0
            } else {
                removal_weight(self.inventory.objects().count())
            },
            reason: read,
        };
        let (content, share) = Box::pin(reader::load(self.ctx, &wanted)).await?;
        self.check_compatibility(request, &content)?;
        self.package_rules = content.package.as_ref().map(PackageRules::new);
        let probes = content.package.as_ref().map(|package| &package.probes[..]);
        let states = &self.ctx.states;
        states.set_probes(
            &self.name,
            request.digest(),
            probes.unwrap_or_default().into(),
        );
        let mut objects = content.objects;
        self.write_certificates(content.format, &mut objects, read)?;
        Box::pin(self.add_created_namespace(request, &mut objects)).await?;
        let kinds = CustomKind::all(&objects);
        let mut items = self.prepare_objects(request, &kinds, objects).await?;
        items.retain(|item| !self.has_expired(request, item));
        Ok(HeldObjects::new(items, share))
    }

    /// Returns the version of the BundleDeployment for its background tasks: uid and generation.
    fn version(&self) -> String {
        let generation = self.object.metadata.generation.unwrap_or_default();
        format!("{} {generation}", self.uid())
    }

    /// Installs the content if necessary. Returns true if this reconcile completed the
    /// installation. Returns false if no installation was necessary, or if the installation waits
    /// for a phase.
    pub(in crate::reconcile) async fn ensure_installed(
        &mut self,
        request: &InstallRequest<'_>,
        is_unpacked: bool,
    ) -> Result<bool, ReconcileError> {
        let key = self.content_key(request);
        let attempt = self.installation_attempt(&key);
        let delayed = self.ctx.states.delayed_error(&self.name, &attempt);
        let observed = self.observe_deployment(request, (&key, is_unpacked), delayed.is_some());
        let installing = self.install_content(request, &key, (observed, delayed));
        match Box::pin(installing).await {
            Err(error) if error.code == codes::install::INVALID_OBJECT => Err(self
                .ctx
                .states
                .delay_installation(&self.name, attempt, error)),
            result => result.map_err(|error| self.with_namespace_hint(error)),
        }
    }

    /// Returns the facts that are known before the first step.
    fn observe_deployment(
        &self,
        request: &InstallRequest<'_>,
        (key, is_unpacked): (&ContentKey, bool),
        is_held: bool,
    ) -> ObservedDeployment {
        ObservedDeployment {
            is_paused: self.spec.paused,
            corrects_drift: self.spec.correct_drift,
            is_unpacked,
            in_place: self.ctx.states.applied_content(&self.name, key),
            is_installed: self.is_installed(request),
            was_installed: self.was_installed(request),
            has_installed_config: self.has_installed_config(),
            is_unfinished: self.inventory.is_unfinished(),
            is_decided: self.is_decided(request),
            is_active: self.status.active_bundle.as_deref() == Some(&request.generated.name),
            is_held,
            waits_for_phase: self.waits_for_phase(key),
            ..ObservedDeployment::default()
        }
    }

    /// Returns true if the installation `key` waits for a phase, and a rollout is recorded for this
    /// generation of the spec. If no rollout is recorded, a new attempt records a rollout with a
    /// new deadline.
    fn waits_for_phase(&self, key: &ContentKey) -> bool {
        let rollout = self.rollout_record();
        rollout.of_generation(self.generation()).is_some()
            && self.ctx.states.phase_progress(&self.name, key).is_some()
    }

    fn installation_attempt(&self, content: &ContentKey) -> InstallationAttempt {
        let admitted = self.object.annotations().get(names::ANNOTATION_ADMIT);
        InstallationAttempt {
            content: content.clone(),
            generation: self.generation(),
            admitted: admitted.cloned(),
        }
    }

    /// Loads the content of the installation `key` and returns its objects, sorted by phase. Omits
    /// expired Jobs, and records those that are not recorded yet. Adds warnings about ignore rules
    /// without effect.
    async fn prepared_objects(
        &mut self,
        request: &InstallRequest<'_>,
        key: &ContentKey,
    ) -> Result<HeldObjects, ReconcileError> {
        let installed = self.installed_content();
        let is_recorded = installed.is_some_and(|installed| installed.installation == *key);
        let rendered_copy = if is_recorded && self.is_installed(request) {
            RenderedCopyChoice::Installed
        } else {
            RenderedCopyChoice::Current
        };
        let mut items = Box::pin(self.load_objects(request, rendered_copy)).await?;
        self.expire_unseen_jobs(request, &mut items).await?;
        items.sort_by_key(|item| item.phase);
        let objects: Vec<_> = items.iter().map(|item| (&item.id, &item.value)).collect();
        let rules = &self.spec.drift_ignore;
        let unused = blocking::run(|| ignore::without_effect(rules, &objects));
        self.warnings
            .extend(unused.iter().map(|line| ignore_warning(line)));
        Ok(items)
    }

    /// Executes the steps of the installation until no step remains or a step fails. Returns true
    /// if this reconcile completed the installation.
    async fn install_content(
        &mut self,
        request: &InstallRequest<'_>,
        key: &ContentKey,
        (mut observed, delayed): (ObservedDeployment, Option<ReconcileError>),
    ) -> Result<bool, ReconcileError> {
        let is_first = observed.is_first();
        let prepared = OnceLock::<HeldObjects>::new();
        let items = || prepared.get().map_or(&[][..], |items| items.as_slice());
        let mut authorized: Option<AuthorizedInstall<'_, '_>> = None;
        let mut seen = BTreeMap::new();
        let mut is_watched = false;
        loop {
            observed.is_authorization_old = authorized
                .as_ref()
                .is_some_and(|authorized| !authorized.is_recent());
            let Some(step) = observed.installation().first().copied() else {
                return Ok(observed.done.contains(&InstallStep::RecordInstalled));
            };
            match step {
                InstallStep::ReportDelayedError => return delayed.map_or(Ok(false), Err),
                InstallStep::CheckPhase => {
                    health::check_health(self.ctx, request.client, &self.name).await;
                    let progress = self.ctx.states.phase_progress(&self.name, key);
                    let is_ready = progress.is_none_or(|progress| progress.is_ready());
                    observed.is_phase_ready = Some(is_ready);
                }
                InstallStep::CheckContent => self.check_content_unchanged(request)?,
                InstallStep::Render => {
                    let items = match self.prepared_objects(request, key).await {
                        Ok(items) => items,
                        Err(error) => return Err(self.with_requirements(error).await),
                    };
                    prepared.get_or_init(|| items);
                }
                InstallStep::CheckTargets => self.check_targets(items())?,
                InstallStep::CheckApproval => self.approve(request, is_first).await?,
                InstallStep::CheckSource => self.check_source_allowed()?,
                InstallStep::Verify => self.verify(request).await?,
                InstallStep::CheckPackageRules => self.check_package_rules(request).await?,
                InstallStep::CheckDefinitions => self.check_definitions(request, items()).await?,
                InstallStep::Authorize | InstallStep::Reauthorize => {
                    authorized = Some(self.authorize_install(request, items(), is_first).await?);
                }
                InstallStep::CheckPreconditionsOfDecision | InstallStep::CheckPreconditions => {
                    self.check_preconditions(request).await?;
                    self.approve(request, is_first).await?;
                }
                InstallStep::RecordDecision => self.record_decision(request, items()).await?,
                InstallStep::Watch => is_watched = self.watch(request, items(), false).await?,
                InstallStep::FindDrift => self.find_state(request, items(), key).await?,
                InstallStep::Compare => {
                    seen = self.observed_objects(request, items()).await?;
                    let is_as_recorded = self.is_as_recorded(items(), request, (key, &seen));
                    observed.is_as_recorded = Some(is_as_recorded);
                }
                InstallStep::UseRecordedState => {
                    tracing::info!(
                        deployment = self.name,
                        "all objects are unchanged: nothing is applied"
                    );
                    let applied = restore::observed_as_applied(items(), &seen).unwrap_or_default();
                    self.ctx
                        .states
                        .finish_apply(&self.name, key, applied, &seen);
                }
                InstallStep::Apply => {
                    let authorized = match authorized.take() {
                        Some(authorized) => authorized,
                        None => self.authorize_install(request, items(), is_first).await?,
                    };
                    let mode = ApplyMode {
                        is_watched,
                        is_first,
                        is_gated: self.spec.rollout.wait_for_ready
                            && observed.is_gated(self.is_rollback),
                    };
                    let outcome = self.apply(request, items(), mode, authorized).await?;
                    let ApplyOutcome::Complete(applied) = outcome else {
                        return Ok(false);
                    };
                    let seen = self.ctx.watches.observed_objects(&self.name);
                    self.ctx
                        .states
                        .finish_apply(&self.name, key, applied, &seen);
                }
                InstallStep::Prune => self.prune(request, items()).await?,
                InstallStep::RecordInstalled => {
                    let fields = self.ctx.states.fields_digest(&self.name);
                    self.record(request, items(), fields).await?;
                }
                // Opens the watches of the new content, and closes watches that only the previous
                // content needed.
                InstallStep::WatchAll => {
                    self.watch(request, items(), true).await?;
                }
            }
            observed.done.insert(step);
        }
    }

    /// Returns the prefix of the content key: the content digest, the installing ServiceAccount and
    /// the target namespace.
    pub(in crate::reconcile) fn installation_prefix(
        &self,
        request: &InstallRequest<'_>,
    ) -> ContentKeyPrefix {
        let namespace = self.spec.target_namespace.as_deref();
        ContentKeyPrefix::new(request.digest(), request.account, namespace)
    }

    /// Returns the content key, which identifies an installation. If this key changes, the content
    /// is installed again.
    pub(in crate::reconcile) fn content_key(&self, request: &InstallRequest<'_>) -> ContentKey {
        ContentKey::new(
            &self.installation_prefix(request),
            &self.spec.digest,
            self.object.metadata.uid.as_deref().unwrap_or_default(),
            self.certificate_version(request).as_deref(),
        )
    }

    /// Returns true if this content was the last completely installed content, even if an
    /// installation of other content has started later.
    pub(in crate::reconcile) fn was_installed(&self, request: &InstallRequest<'_>) -> bool {
        self.inventory
            .was_installed(&self.installation_prefix(request))
    }

    /// Returns true if this content is completely installed with the ServiceAccount and the target
    /// namespace of `request`.
    pub(in crate::reconcile) fn is_installed(&self, request: &InstallRequest<'_>) -> bool {
        self.inventory
            .is_installed(&self.installation_prefix(request))
    }

    /// Returns the values that all steps of one installation need.
    pub(in crate::reconcile) fn install<'b>(
        &self,
        request: &InstallRequest<'b>,
        reason: &'static str,
    ) -> Install<'b>
    where
        'a: 'b,
    {
        let object: &'a DynamicObject = self.object;
        let ctx: &'a Context = self.ctx;
        Install {
            client: request.client,
            account: request.account,
            uid: object.metadata.uid.as_deref().unwrap_or_default(),
            inventory: self.inventory.clone(),
            inventories: &ctx.inventories,
            reason,
            adopt: self.spec.adopt,
            created_namespace: self.created_namespace.clone(),
        }
    }
}

/// Returns the warning about a rule in `spec.drift.ignore` that has no effect.
pub(in crate::reconcile) fn ignore_warning(line: &str) -> String {
    format!("{line} ({})", codes::install::IGNORE_WITHOUT_EFFECT)
}
