//! Applying the objects of a content phase by phase. Rights, approval, spec and class are asked again on the way: an installation can take minutes, and what was
//! allowed when it began may not be any more.
//! Not here: what is asked before the first object (deployment::steps), or single applies (install::apply, install::executor).

use std::collections::HashMap;

use bundle_core::diagnostic::codes;
use bundle_core::plan::consent::Act;
use bundle_core::plan::phases::Phase;

use crate::reconcile::content::items::Item;
use crate::reconcile::context::ClassFound;
use crate::reconcile::deployment::controller::DeploymentReconcile;
use crate::reconcile::deployment::record::Intents;
use crate::reconcile::deployment::steps::InstallRequest;
use crate::reconcile::drift::keep;
use crate::reconcile::drift::states::AppliedState;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::install::executor::Done;
use crate::reconcile::rights::authorized::AuthorizedInstall;

/// Most objects that are applied before it is looked whether rights have to be asked again.
const CHUNK: usize = 100;

impl<'a> DeploymentReconcile<'a> {
    /// Records all `items`, which are in the order of their phases, and applies them. `first` says that this content was not installed before.
    pub(in crate::reconcile) async fn apply<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        items: &'i [Item],
        (watched, first): (bool, bool),
        mut asked: AuthorizedInstall<'a, 'i>,
    ) -> Result<HashMap<String, AppliedState>, ReconcileError> {
        let all: Vec<&Item> = items.iter().collect();
        self.check_namespaces(request, &all, (Act::Install, &asked.namespaces))
            .await?;
        self.before_record(&all, &asked.namespaces).await?;
        // Recorded before anything is applied: a crash never loses an object.
        self.record_namespaces(request, items, asked.namespaces.clone())
            .await?;
        let mut intents = vec![self.record_targets(asked.plan.targets()).await?];
        self.write_applyset().await?;
        self.ctx.states.begin(&self.name);
        let mut done = Done::default();
        let work = (&mut done, &mut intents);
        let applied = self
            .apply_phases(request, items, (watched, first), &mut asked, work)
            .await;
        let mut recorded = Ok(());
        for intents in &intents {
            recorded = recorded.and(self.record_done(&done, intents).await);
        }
        if items.iter().any(keep::defines_kinds) {
            self.ctx.apis.forget_custom().await;
        }
        if let Err(error) = recorded.and(applied) {
            self.show_applied(request.generated, items, &done);
            let key = self.content_key(request);
            let states = &self.ctx.states;
            let seen = self.ctx.watches.seen_of(&self.name);
            states.interrupt(&self.name, &key, done.left, &done.uncertain, &seen);
            return Err(error);
        }
        self.warnings.extend(done.warnings);
        Ok(done.left)
    }

    async fn apply_phases<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        items: &'i [Item],
        (mut watched, first): (bool, bool),
        asked: &mut AuthorizedInstall<'a, 'i>,
        (done, intents): (&mut Done, &mut Vec<Intents>),
    ) -> Result<(), ReconcileError> {
        let install = self.install(request, request.reason);
        let mut left = items;
        while let Some(next) = left.first() {
            // Kinds that the content brings can be watched once the objects of all earlier phases are applied.
            if next.phase > Phase::Crds && !watched {
                self.watch(request, items, true).await?;
                watched = true;
            }
            if !asked.is_recent() {
                *asked = Box::pin(self.authorize_remaining(request, left, first)).await?;
                intents.push(self.record_targets(asked.plan.targets()).await?);
            }
            let of_phase = left.iter().take_while(|item| item.phase == next.phase);
            let (chunk, later) = left.split_at(of_phase.take(CHUNK).count());
            let chunk: Vec<&Item> = chunk.iter().collect();
            // From here on until it is created anew, the object has the values of neither content.
            let replaced = chunk.iter().map(|item| &item.key);
            done.uncertain.extend(
                replaced
                    .filter(|key| asked.replacements.contains(key))
                    .cloned(),
            );
            intents.extend(self.replace_phase(request, asked, &chunk).await?);
            let applies = asked.check.before_phase(&chunk, &mut asked.plan).await?;
            self.before_applies(&chunk, &mut asked.namespaces).await?;
            let outcome = install.phase(&asked.check, applies, done).await;
            self.record_applied(done).await?;
            outcome?;
            left = later;
        }
        if !watched {
            self.watch(request, items, true).await?;
        }
        Ok(())
    }

    /// Asks once more for all that an installation of `items` takes, after it has gone on for a while.
    async fn authorize_remaining<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        items: &'i [Item],
        first: bool,
    ) -> Result<AuthorizedInstall<'a, 'i>, ReconcileError> {
        self.has_not_changed(request).await?;
        self.approve(request, first).await?;
        let asked = self.authorize_install(request, items, first).await?;
        let all: Vec<&Item> = items.iter().collect();
        self.check_namespaces(request, &all, (Act::Install, &asked.namespaces))
            .await?;
        Ok(asked)
    }

    /// Fails if the deployment or its class has changed since the reconcile began.
    async fn has_not_changed(&self, request: &InstallRequest<'_>) -> Result<(), ReconcileError> {
        let failed =
            |error| ReconcileError::api("read the BundleDeployment again", request.reason, &error);
        let before = &self.object.metadata;
        let now = self.ctx.get(&self.ctx.deployments, &self.name).await;
        let is_same = now.map_err(failed)?.is_some_and(|now| {
            let now = now.metadata;
            now.uid == before.uid
                && now.generation == before.generation
                && now.deletion_timestamp.is_none()
        });
        let class = self.ctx.class(&self.class.name).await.map_err(failed)?;
        let is_same_class = matches!(class, ClassFound::Ours(class) if *class == *self.class);
        if is_same && is_same_class {
            return Ok(());
        }
        Err(ReconcileError::new(
            codes::install::CHANGED_MEANWHILE,
            request.reason,
            "spec or the class changed while the content was installed: the installation begins anew with what they say now",
            RetryPolicy::Soon,
        ))
    }
}
