//! Applying the objects of a content phase by phase. Rights, approval, spec and class are asked again on the way: an installation can take minutes, and what was
//! allowed when it began may not be any more.
//! Not here: what is asked before the first object (deployment::steps), or single applies (install::apply, install::executor).

use std::collections::HashMap;

use bundle_core::diagnostic::codes;
use bundle_core::plan::consent::Act;
use bundle_core::plan::phases::Phase;

use crate::reconcile::content::items::Item;
use crate::reconcile::context::ClassFound;
use crate::reconcile::deployment::controller::Turn;
use crate::reconcile::deployment::record::Intents;
use crate::reconcile::deployment::steps::Placing;
use crate::reconcile::drift::books::Left;
use crate::reconcile::drift::keep;
use crate::reconcile::error::{Retry, Trouble};
use crate::reconcile::install::executor::Done;
use crate::reconcile::rights::authorized::AuthorizedInstall;

/// Most objects that are applied before it is looked whether rights have to be asked again.
const CHUNK: usize = 100;

impl<'a> Turn<'a> {
    /// Records all `items`, which are in the order of their phases, and applies them. `first` says that this content was not installed before.
    pub(in crate::reconcile) async fn apply<'i>(
        &mut self,
        placing: &Placing<'_>,
        items: &'i [Item],
        (watched, first): (bool, bool),
        mut asked: AuthorizedInstall<'a, 'i>,
    ) -> Result<HashMap<String, Left>, Trouble> {
        let all: Vec<&Item> = items.iter().collect();
        self.check_namespaces(placing, &all, (Act::Install, &asked.namespaces))
            .await?;
        self.before_record(&all, &asked.namespaces).await?;
        // Recorded before anything is applied: a crash never loses an object.
        self.record_namespaces(placing, items, asked.namespaces.clone())
            .await?;
        let mut intents = vec![self.record_targets(asked.plan.targets()).await?];
        self.write_applyset().await?;
        self.room.books.begin(&self.name);
        let mut done = Done::default();
        let work = (&mut done, &mut intents);
        let applied = self
            .apply_phases(placing, items, (watched, first), &mut asked, work)
            .await;
        let mut recorded = Ok(());
        for intents in &intents {
            recorded = recorded.and(self.record_done(&done, intents).await);
        }
        if items.iter().any(keep::defines_kinds) {
            self.room.apis.forget_custom().await;
        }
        if let Err(trouble) = recorded.and(applied) {
            self.show_applied(placing.child, items, &done);
            let key = self.content_key(placing);
            let books = &self.room.books;
            let seen = self.room.watches.seen_of(&self.name);
            books.interrupt(&self.name, &key, done.left, &done.uncertain, &seen);
            return Err(trouble);
        }
        self.warnings.extend(done.warnings);
        Ok(done.left)
    }

    async fn apply_phases<'i>(
        &mut self,
        placing: &Placing<'_>,
        items: &'i [Item],
        (mut watched, first): (bool, bool),
        asked: &mut AuthorizedInstall<'a, 'i>,
        (done, intents): (&mut Done, &mut Vec<Intents>),
    ) -> Result<(), Trouble> {
        let install = self.install(placing, placing.reason);
        let mut left = items;
        while let Some(next) = left.first() {
            // Kinds that the content brings can be watched once the objects of all earlier phases are applied.
            if next.phase > Phase::Crds && !watched {
                self.watch(placing, items, true).await?;
                watched = true;
            }
            if !asked.is_recent() {
                *asked = Box::pin(self.authorize_remaining(placing, left, first)).await?;
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
            intents.extend(self.replace_phase(placing, asked, &chunk).await?);
            let applies = asked.check.before_phase(&chunk, &mut asked.plan).await?;
            self.before_applies(&chunk, &mut asked.namespaces).await?;
            let outcome = install.phase(&asked.check, applies, done).await;
            self.record_applied(done).await?;
            outcome?;
            left = later;
        }
        if !watched {
            self.watch(placing, items, true).await?;
        }
        Ok(())
    }

    /// Asks once more for all that an installation of `items` takes, after it has gone on for a while.
    async fn authorize_remaining<'i>(
        &mut self,
        placing: &Placing<'_>,
        items: &'i [Item],
        first: bool,
    ) -> Result<AuthorizedInstall<'a, 'i>, Trouble> {
        self.has_not_changed(placing).await?;
        self.approve(placing, first).await?;
        let asked = self.authorize_install(placing, items, first).await?;
        let all: Vec<&Item> = items.iter().collect();
        self.check_namespaces(placing, &all, (Act::Install, &asked.namespaces))
            .await?;
        Ok(asked)
    }

    /// Fails if the deployment or its class has changed since the reconcile began.
    async fn has_not_changed(&self, placing: &Placing<'_>) -> Result<(), Trouble> {
        let failed =
            |error| Trouble::api("read the BundleDeployment again", placing.reason, &error);
        let before = &self.object.metadata;
        let now = self.room.get(&self.room.deployments, &self.name).await;
        let is_same = now.map_err(failed)?.is_some_and(|now| {
            let now = now.metadata;
            now.uid == before.uid
                && now.generation == before.generation
                && now.deletion_timestamp.is_none()
        });
        let class = self.room.class(&self.class.name).await.map_err(failed)?;
        let is_same_class = matches!(class, ClassFound::Ours(class) if *class == *self.class);
        if is_same && is_same_class {
            return Ok(());
        }
        Err(Trouble::new(
            codes::install::CHANGED_MEANWHILE,
            placing.reason,
            "spec or the class changed while the content was installed: the installation begins anew with what they say now",
            Retry::Soon,
        ))
    }
}
