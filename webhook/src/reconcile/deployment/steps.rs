//! Putting the content of one Bundle in place: may it be done, is it done already, do it, prune, say so.
//! Not here: which Bundle (bundle::generated), the single steps (install::executor, removal::remove, rights::authorize, deployment::approve), or keeping it (drift::keep).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::OnceLock;

use bundle_api::names::{self, reason};
use bundle_core::content::ContentId;
use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::State;
use bundle_core::plan::ignore;
use bundle_core::plan::steps::{InPlace, InstallStep, Observed};
use bundle_core::review::CheckedBundleSpec;
use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};

use crate::cluster::ServiceAccount;
use crate::reconcile::api::object::Seen;
use crate::reconcile::bundle::controller;
use crate::reconcile::bundle::generated::Child;
use crate::reconcile::content::items::{self, Item, Owner};
use crate::reconcile::content::reader;
use crate::reconcile::context::Room;
use crate::reconcile::deployment::controller::Turn;
use crate::reconcile::drift::books::{self, Left};
use crate::reconcile::drift::keep;
use crate::reconcile::error::{Retry, Trouble};
use crate::reconcile::install::executor::Install;
use crate::reconcile::rights::authorized::AuthorizedInstall;

/// What will be put in place, and as whom.
pub(in crate::reconcile) struct Placing<'a> {
    pub(in crate::reconcile) child: &'a Child,
    pub(in crate::reconcile) account: &'a ServiceAccount,
    pub(in crate::reconcile) client: &'a Client,
    pub(in crate::reconcile) reason: &'static str,
}

impl Placing<'_> {
    /// The digest of the content.
    pub(in crate::reconcile) fn digest(&self) -> &str {
        self.child
            .content
            .as_ref()
            .map_or("", |content| content.digest.as_str())
    }

    /// The content, and what its source was resolved to.
    pub(in crate::reconcile) fn source(&self) -> Result<ContentId, Trouble> {
        let lost = |why: &str| {
            Trouble::new(
                codes::install::CONTENT_LOST,
                reason::BUNDLE_LOAD_FAILED,
                format!("Bundle {}: {why}", self.child.name),
                Retry::OnChange,
            )
        };
        let spec = CheckedBundleSpec::parse(&self.child.object.data["spec"])
            .map_err(|_| lost("its source cannot be read"))?;
        let content = self.child.content.as_ref();
        let digest = content
            .map(|content| content.digest.clone())
            .ok_or_else(|| lost("its content is not known"))?;
        Ok(ContentId::new(&spec.source, digest))
    }
}

impl<'a> Turn<'a> {
    /// The objects of the content, ready to be applied.
    pub(in crate::reconcile) async fn items(
        &mut self,
        placing: &Placing<'_>,
    ) -> Result<Vec<Item>, Trouble> {
        let id = placing.source()?;
        let target = self.target_namespace()?.map(str::to_owned);
        let read = reason::READING_CONTENT_FAILED;
        let wanted = reader::Wanted {
            name: &self.name,
            version: &self.version(),
            requester: &self.requester.user,
            content: &id,
            target: target.as_deref(),
            reason: read,
        };
        let content = reader::load(self.room, &wanted, &mut self.memory).await?;
        let (state, _, message) = controller::compatibility(self.room, &content)?;
        if state == State::False {
            if !self.spec.accept_unsupported {
                return Err(Trouble::new(
                    codes::format::UNSUPPORTED_KUBERNETES,
                    placing.reason,
                    message,
                    Retry::Slowly,
                ));
            }
            self.warnings.insert(format!(
                "{} ({message})",
                codes::review::KUBERNETES_ACCEPTED.title
            ));
        }
        let mut objects = content.objects;
        Box::pin(self.add_created_namespace(&mut objects)).await?;
        let owner = Owner {
            name: &self.name,
            applyset: &self.applyset,
            namespace: target.as_deref(),
        };
        let mut items = items::items(&self.room.apis, objects, &owner, placing.reason).await?;
        items.retain(|item| !self.has_expired(placing, item));
        Ok(items)
    }

    /// What of the object work is for.
    fn version(&self) -> String {
        let uid = self.object.metadata.uid.as_deref().unwrap_or_default();
        let generation = self.object.metadata.generation.unwrap_or_default();
        format!("{uid} {generation}")
    }

    /// Makes sure that the content is in place. Returns whether something had to be done for it.
    pub(in crate::reconcile) async fn place(
        &mut self,
        placing: &Placing<'_>,
        is_unpacked: bool,
    ) -> Result<bool, Trouble> {
        let key = self.content_key(placing);
        let attempt = self.attempt_key(&key);
        let held = self.room.books.held(&self.name, &attempt);
        let observed = self.observed(placing, (&key, is_unpacked), held.is_some());
        let installing = self.install_content(placing, &key, (observed, held));
        match Box::pin(installing).await {
            Err(trouble) if trouble.code == codes::install::INVALID_OBJECT => {
                Err(self.room.books.hold(&self.name, &attempt, trouble))
            }
            result => result.map_err(|trouble| self.with_namespace_hint(trouble)),
        }
    }

    /// What is known before anything is done.
    fn observed(
        &self,
        placing: &Placing<'_>,
        (key, is_unpacked): (&str, bool),
        is_held: bool,
    ) -> Observed {
        let known = self.room.books.content(&self.name);
        Observed {
            is_paused: self.spec.paused,
            corrects_drift: self.spec.correct_drift,
            is_unpacked,
            in_place: match known.as_deref() {
                None => InPlace::Unknown,
                Some(known) if known == key => InPlace::Wanted,
                Some(_) => InPlace::Other,
            },
            is_installed: self.is_installed(placing),
            is_unfinished: self
                .inventory
                .record
                .as_ref()
                .is_some_and(|record| record.is_unfinished),
            is_decided: self.is_decided(placing),
            is_active: self.status.active_bundle.as_deref() == Some(&placing.child.name),
            is_held,
            ..Observed::default()
        }
    }

    /// Content and settings, as they were asked for: after a write of the spec, or by somebody who takes the deployment over, it is tried at once.
    fn attempt_key(&self, content: &str) -> String {
        let generation = self.object.metadata.generation.unwrap_or_default();
        let admitted = self.object.annotations().get(names::ANNOTATION_ADMIT);
        format!("{content} {generation} {admitted:?}")
    }

    /// The objects of the content that are to be installed now.
    async fn prepared_items(&mut self, placing: &Placing<'_>) -> Result<Vec<Item>, Trouble> {
        let mut items = self.items(placing).await?;
        self.expire_unseen_jobs(placing, &mut items).await?;
        items.sort_by_key(|item| item.phase);
        let objects: Vec<_> = items.iter().map(|item| (&item.id, &item.value)).collect();
        let unused = ignore::without_effect(&self.spec.drift_ignore, &objects);
        for line in unused {
            let code = codes::install::IGNORE_WITHOUT_EFFECT;
            self.warnings.insert(format!("{line} ({code})"));
        }
        Ok(items)
    }

    /// Does the steps of the plan one after the other, until none is left or one fails.
    async fn install_content(
        &mut self,
        placing: &Placing<'_>,
        key: &str,
        (mut observed, held): (Observed, Option<Trouble>),
    ) -> Result<bool, Trouble> {
        let first = observed.is_first();
        let prepared = OnceLock::<Vec<Item>>::new();
        let items = || prepared.get().map_or(&[][..], Vec::as_slice);
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
                InstallStep::TellHeldError => return held.map_or(Ok(false), Err),
                InstallStep::CheckContent => self.is_what_it_was(placing)?,
                InstallStep::Render => {
                    let items = self.prepared_items(placing).await?;
                    prepared.get_or_init(|| items);
                }
                InstallStep::CheckTargets => self.within_targets(items())?,
                InstallStep::AskApproval => self.approve(placing, first).await?,
                InstallStep::CheckSource => self.takes_source()?,
                InstallStep::Verify => self.verify(placing).await?,
                InstallStep::Authorize | InstallStep::AuthorizeAgain => {
                    authorized = Some(self.authorize_install(placing, items(), first).await?);
                }
                InstallStep::RecordDecision => self.record_decision(placing, items()).await?,
                InstallStep::Watch => is_watched = self.watch(placing, items(), false).await?,
                InstallStep::FindDrift => self.find_again(placing).await?,
                InstallStep::Compare => {
                    seen = self.seen(placing, items()).await?;
                    observed.is_as_recorded = Some(self.is_as_left(items(), placing, &seen));
                }
                InstallStep::TakeAsRecorded => {
                    tracing::info!(
                        deployment = self.name,
                        "everything is in place: nothing is applied"
                    );
                    let left = keep::as_left(items(), &seen).unwrap_or_default();
                    self.room.books.settle(&self.name, key, left, &seen);
                }
                InstallStep::Apply => {
                    let authorized = match authorized.take() {
                        Some(authorized) => authorized,
                        None => self.authorize_install(placing, items(), first).await?,
                    };
                    let watched = (is_watched, first);
                    let left = self.apply(placing, items(), watched, authorized).await?;
                    let seen = self.room.watches.seen_of(&self.name);
                    self.room.books.settle(&self.name, key, left, &seen);
                }
                InstallStep::Prune => self.prune(placing, items()).await?,
                InstallStep::RecordInstalled => {
                    let fields = self.room.books.fields_digest(&self.name);
                    self.record(placing, items(), fields).await?;
                }
                // Kinds that only the former content had are not watched any more.
                InstallStep::WatchAll => {
                    self.watch(placing, items(), true).await?;
                }
            }
            observed.done.insert(step);
        }
    }

    /// After a restart: finds the state of installed content again, without applying anything. What differs counts as drifted.
    pub(in crate::reconcile) async fn find_again(
        &mut self,
        placing: &Placing<'_>,
    ) -> Result<(), Trouble> {
        let mut items = self.items(placing).await?;
        self.expire_unseen_jobs(placing, &mut items).await?;
        self.watch(placing, &items, false).await?;
        let seen = self.seen(placing, &items).await?;
        let in_place = self.is_as_left(&items, placing, &seen);
        let changed = if in_place {
            BTreeSet::new()
        } else {
            keep::changed(placing.client, &items, &seen).await
        };
        let left: HashMap<String, Left> = items
            .iter()
            .map(|item| {
                let left = match seen.get(&item.key) {
                    Some(seen) if !changed.contains(&item.key) => {
                        crate::reconcile::install::executor::left(seen)
                    }
                    _ => Left {
                        state: None,
                        version: 0,
                    },
                };
                (item.key.clone(), left)
            })
            .collect();
        let key = self.content_key(placing);
        self.room.books.settle(&self.name, &key, left, &seen);
        self.room.books.doubt(&self.name, changed);
        Ok(())
    }

    /// The content, the identity that installs it, and the namespace of its objects that name none, as the inventory records them.
    pub(in crate::reconcile) fn placement(&self, placing: &Placing<'_>) -> String {
        let namespace = self.spec.target_namespace.as_deref().unwrap_or("-");
        format!("{} {} {namespace} ", placing.digest(), placing.account)
    }

    /// Content, identity and settings: if one of them changes, everything is applied again. With the uid: what an earlier object of the same name had
    /// installed says nothing of what this one may.
    pub(in crate::reconcile) fn content_key(&self, placing: &Placing<'_>) -> String {
        format!(
            "{}{} {}",
            self.placement(placing),
            self.spec.digest,
            self.object.metadata.uid.as_deref().unwrap_or_default()
        )
    }

    /// Returns whether this content is what was installed last, even if an installation of other content began since.
    pub(in crate::reconcile) fn was_installed(&self, placing: &Placing<'_>) -> bool {
        let applied = self.placement(placing);
        self.installed_content()
            .is_some_and(|installed| installed.installation.starts_with(&applied))
    }

    /// Whether just this content was installed completely, as the same ServiceAccount and into the same namespace.
    pub(in crate::reconcile) fn is_installed(&self, placing: &Placing<'_>) -> bool {
        let applied = self.placement(placing);
        self.inventory.installation.starts_with(&applied)
            && self
                .installed_content()
                .is_some_and(|installed| installed.installation.starts_with(&applied))
    }

    /// Opens the watches for `items`. Kinds that the content itself brings can be watched once they are served: `all` says that they are.
    /// Says whether everything is watched.
    pub(in crate::reconcile) async fn watch(
        &self,
        placing: &Placing<'_>,
        items: &[Item],
        all: bool,
    ) -> Result<bool, Trouble> {
        let failed = |error: kube::Error| {
            Trouble::api(
                "ask what may be watched",
                reason::CREATE_DYNAMIC_WATCH_FAILED,
                &error,
            )
        };
        let mut watched = Vec::new();
        let mut served = HashMap::new();
        for item in items {
            if item.custom && !all && !served.contains_key(&item.kind) {
                let resource = &item.kind.resource;
                let found = self
                    .room
                    .apis
                    .find(&resource.group, &resource.version, &resource.kind)
                    .await
                    .map_err(failed)?;
                served.insert(item.kind.clone(), found.is_some());
            }
            if served.get(&item.kind).copied().unwrap_or(true) {
                watched.push(item);
            }
        }
        let complete = watched.len() == items.len();
        // Until other content is installed completely, objects of the former one are kept, and watched.
        let only = self.is_installed(placing);
        let subjects = self
            .room
            .scopes
            .subjects(placing.client, placing.account, watched)
            .await
            .map_err(failed)?;
        self.room
            .watches
            .keep(&self.name, &subjects, only, placing.client)
            .await
            .map_err(|error| {
                Trouble::new(
                    codes::install::NOT_WATCHED,
                    reason::CREATE_DYNAMIC_WATCH_FAILED,
                    error.to_string(),
                    Retry::Soon,
                )
            })?;
        Ok(complete)
    }

    /// The recorded objects among `items` that exist. Those that no watch shows, such as one without our labels, are looked at one by one.
    pub(in crate::reconcile) async fn seen(
        &self,
        placing: &Placing<'_>,
        items: &[Item],
    ) -> Result<BTreeMap<String, Seen>, Trouble> {
        let mut seen = self.room.watches.seen_of(&self.name);
        let missing = items.iter().filter(|item| {
            !seen.contains_key(&item.key) && self.inventory.uid(&item.key).is_some()
        });
        let install = self.install(placing, placing.reason);
        let found = install.look_at(missing).await?;
        seen.extend(
            found
                .into_iter()
                .filter(|(key, seen)| self.inventory.owns(key, &seen.uid)),
        );
        Ok(seen)
    }

    /// Whether what was seen is just what is recorded that our last apply left.
    fn is_as_left(
        &self,
        items: &[Item],
        placing: &Placing<'_>,
        seen: &BTreeMap<String, Seen>,
    ) -> bool {
        let Some(installed) = self.installed_content() else {
            return false;
        };
        if installed.installation != self.content_key(placing) || !self.is_installed(placing) {
            return false;
        }
        let Some(left) = keep::as_left(items, seen) else {
            return false;
        };
        books::digest_of(&left)
            .is_some_and(|digest| installed.fields_digest.as_deref() == Some(digest.as_str()))
    }

    /// What all steps of one installation share.
    pub(in crate::reconcile) fn install<'b>(
        &self,
        placing: &Placing<'b>,
        reason: &'static str,
    ) -> Install<'b>
    where
        'a: 'b,
    {
        let object: &'a DynamicObject = self.object;
        let room: &'a Room = self.room;
        Install {
            client: placing.client,
            account: placing.account,
            uid: object.metadata.uid.as_deref().unwrap_or_default(),
            inventory: self.inventory.clone(),
            inventories: &room.inventories,
            reason,
            adopt: self.spec.adopt,
            created_namespace: self.created_namespace.clone(),
        }
    }
}
