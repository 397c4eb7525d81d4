//! Putting the content of one Bundle in place: may it be done, is it done already, do it, prune, say so.
//! Not here: which Bundle (child), the single steps (install, remove, authorize, approve), or keeping it (keep).

use std::collections::{BTreeSet, HashMap};

use bundle_api::deployment::ServiceAccountName;
use bundle_api::deployment_status::Installed;
use bundle_api::names::{self, condition, reason};
use bundle_core::diagnostic::codes;
use bundle_core::object::Manifest;
use bundle_core::plan::applyset::{self, GroupKind};
use bundle_core::plan::conditions::State;
use bundle_core::plan::phases::Phase;
use bundle_core::plan::{inventory, targets};
use bundle_core::reference::{Digest, PinnedReference, Reference};
use bundle_core::review::class::Authorization;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::books::{self, Left};
use super::child::Child;
use super::deployment::Turn;
use super::install::{Done, Install};
use super::items::{self, Item, Owner};
use super::remove::{self, Remover};
use super::trouble::{Retry, Trouble};
use super::{approve, authorize, bundle, content, keep, verify};
use crate::cluster::ServiceAccount;

/// How many warnings a status holds, and how many objects a message names.
const SOME: usize = 20;

/// What will be put in place, and as whom.
pub(super) struct Placing<'a> {
    pub(super) child: &'a Child,
    pub(super) account: &'a ServiceAccount,
    pub(super) client: &'a Client,
    pub(super) reason: &'static str,
}

impl Placing<'_> {
    /// The digest of the content.
    pub(super) fn digest(&self) -> &str {
        self.child
            .status
            .content
            .as_ref()
            .map_or("", |content| content.digest.as_str())
    }

    /// The pinned reference of the content, and the Secret to pull it with.
    fn source(&self) -> Result<(PinnedReference, Option<String>), Trouble> {
        let lost = |why: &str| {
            Trouble::new(
                codes::install::CONTENT_LOST,
                reason::BUNDLE_LOAD_FAILED,
                format!("Bundle {}: {why}", self.child.name),
                Retry::OnChange,
            )
        };
        let image = &self.child.object.data["spec"]["source"]["image"];
        let reference: Reference = image["ref"]
            .as_str()
            .ok_or_else(|| lost("it has no image source"))?
            .parse()
            .map_err(|_| lost("its reference cannot be read"))?;
        let digest: Digest = self
            .digest()
            .parse()
            .map_err(|_| lost("its recorded digest cannot be read"))?;
        let secret = image["pullSecret"].as_str().map(str::to_owned);
        Ok((reference.pin(digest), secret))
    }
}

impl Turn<'_> {
    /// The objects of the content, ready to be applied.
    pub(super) async fn items(&mut self, placing: &Placing<'_>) -> Result<Vec<Item>, Trouble> {
        let (pinned, secret) = placing.source()?;
        let read = reason::READING_CONTENT_FAILED;
        let files = content::files(self.room, &pinned, secret.as_deref(), read).await?;
        let content = content::read(&files, read)?;
        drop(files);
        let (state, _, message) = bundle::compatibility(self.room, &content)?;
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
        let owner = Owner {
            name: &self.name,
            applyset: &self.applyset,
            namespace: &placing.account.namespace,
        };
        items::items(&self.room.apis, content.objects, &owner, placing.reason).await
    }

    /// Makes sure that the content is in place. Says whether anything had to be applied.
    pub(super) async fn place(&mut self, placing: &Placing<'_>) -> Result<bool, Trouble> {
        let key = self.content_key(placing);
        let known = self.room.books.content(&self.name);
        if known.as_deref() == Some(&key) {
            return Ok(false);
        }
        let items = self.items(placing).await?;
        let first = !self.is_installed(placing);
        self.within_targets(&items)?;
        self.authorize(placing, &items, first).await?;
        self.approve(placing, first).await?;
        if first {
            self.verify(placing).await?;
        }
        self.record_inventory(&items).await?;
        let served = self.watch(placing, &items, false).await?;
        let only_reports = self.spec.paused || !self.spec.correct_drift;
        if known.is_none() && !first && only_reports {
            self.find_again(placing).await?;
            return Ok(false);
        }
        if known.is_none() && !first && self.is_as_left(&items, placing) {
            tracing::info!(
                deployment = self.name,
                "everything is in place: nothing is applied"
            );
            let seen = self.room.watches.seen_of(&self.name);
            let left = keep::as_left(&items, &seen).unwrap_or_default();
            self.room.books.settle(&self.name, &key, left, &seen);
            return Ok(false);
        }
        let left = self.apply(placing, &items, served).await?;
        let digest = books::digest_of(&left);
        let seen = self.room.watches.seen_of(&self.name);
        self.room.books.settle(&self.name, &key, left, &seen);
        self.prune(placing, &items).await?;
        self.record(placing, &items, digest);
        Ok(true)
    }

    /// After a restart: finds the state of installed content again, without applying anything. What differs counts as drifted.
    pub(super) async fn find_again(&mut self, placing: &Placing<'_>) -> Result<(), Trouble> {
        let items = self.items(placing).await?;
        self.watch(placing, &items, false).await?;
        let seen = self.room.watches.seen_of(&self.name);
        let in_place = self.is_as_left(&items, placing);
        let changed = if in_place {
            BTreeSet::new()
        } else {
            keep::changed(placing.client, &items, &seen).await
        };
        let left: HashMap<String, Left> = items
            .iter()
            .map(|item| {
                let left = match seen.get(&item.key) {
                    Some(seen) if !changed.contains(&item.key) => super::install::left(seen),
                    _ => Left {
                        print: None,
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

    /// Content, identity and settings: if one of them changes, everything is applied again.
    pub(super) fn content_key(&self, placing: &Placing<'_>) -> String {
        format!(
            "{} {} {}",
            placing.digest(),
            placing.account,
            self.spec.digest
        )
    }

    /// Whether just this content was installed completely, as the same ServiceAccount: objects without a namespace go where that one lives.
    fn is_installed(&self, placing: &Placing<'_>) -> bool {
        self.status.installed.as_ref().is_some_and(|installed| {
            installed.digest == placing.digest()
                && installed.installed_as.as_ref().is_some_and(|account| {
                    account.namespace == placing.account.namespace
                        && account.name == placing.account.name
                })
        })
    }

    /// Verifies the content once more before it is first installed: policies may have changed since it was unpacked.
    async fn verify(&self, placing: &Placing<'_>) -> Result<(), Trouble> {
        let (pinned, secret) = placing.source()?;
        let registry = content::registry(self.room, secret.as_deref(), placing.reason).await?;
        verify::verify(self.room, self.class, &registry, pinned)
            .await
            .map(drop)
            .map_err(|trouble| Trouble {
                reason: placing.reason,
                ..trouble
            })
    }

    fn within_targets(&self, items: &[Item]) -> Result<(), Trouble> {
        let manifests: Vec<Manifest> = items
            .iter()
            .map(|item| Manifest {
                id: item.id.clone(),
                value: Value::Null,
                file: String::new(),
                line: 0,
            })
            .collect();
        let outside = targets::outside(
            &manifests,
            &self.class.namespaces,
            self.class.cluster_scoped,
        );
        if outside.is_empty() {
            return Ok(());
        }
        Err(Trouble::new(
            codes::install::OUTSIDE_TARGETS,
            self.install_reason(),
            format!(
                "class {} does not let content land there: {}",
                self.class.name,
                bundle_core::plan::conditions::some_of(&outside, SOME)
            ),
            Retry::OnChange,
        ))
    }

    async fn authorize(
        &mut self,
        placing: &Placing<'_>,
        items: &[Item],
        first: bool,
    ) -> Result<(), Trouble> {
        let user = self.requester.user.clone();
        let (found, message) = match self.class.authorization {
            Authorization::Class => (
                "Delegated",
                format!("class {} decides for whoever may use it", self.class.name),
            ),
            Authorization::Requester if !first => (
                "RequesterMay",
                format!(
                    "the rights for {} were checked when it was installed",
                    placing.digest()
                ),
            ),
            Authorization::Requester => {
                let asked =
                    authorize::authorize(&self.room.own, placing.client, &self.requester, items)
                        .await;
                if let Err(trouble) = asked {
                    let state = if trouble.cannot_tell() {
                        State::Unknown
                    } else {
                        State::False
                    };
                    self.said.set(
                        condition::AUTHORIZED,
                        state,
                        "RightsMissing",
                        &trouble.message,
                    );
                    return Err(Trouble {
                        reason: self.install_reason(),
                        ..trouble
                    });
                }
                (
                    "RequesterMay",
                    format!("{user} may do all that the content does"),
                )
            }
        };
        self.said
            .set(condition::AUTHORIZED, State::True, found, &message);
        Ok(())
    }

    /// Whether the content is approved. A withdrawn approval is told, and tears nothing down: only content that is new waits for one.
    pub(super) async fn approve(
        &mut self,
        placing: &Placing<'_>,
        first: bool,
    ) -> Result<(), Trouble> {
        let approved = approve::approved(
            self.room,
            self.object,
            self.class.approval,
            &self.requester,
            placing.digest(),
        )
        .await;
        match approved {
            Ok(by) => {
                let (found, message) = match &by {
                    Some(user) => ("Approved", format!("{user} approved {}", placing.digest())),
                    None => (
                        "NotRequired",
                        format!("class {} asks for no approval", self.class.name),
                    ),
                };
                self.said
                    .set(condition::APPROVED, State::True, found, &message);
                self.approved_by = by;
                Ok(())
            }
            Err(trouble) => {
                self.said.set(
                    condition::APPROVED,
                    State::False,
                    "NotApproved",
                    &trouble.message,
                );
                if !first {
                    return Ok(());
                }
                Err(Trouble {
                    reason: self.install_reason(),
                    ..trouble
                })
            }
        }
    }

    /// Writes down which kinds and namespaces will be in use, before anything is applied: a crash never loses an object.
    async fn record_inventory(&mut self, items: &[Item]) -> Result<(), Trouble> {
        let (mut kinds, mut namespaces) = self.inventory();
        kinds.extend(kinds_of(items));
        namespaces.extend(namespaces_of(items));
        self.write_inventory(kinds, namespaces).await
    }

    pub(super) fn inventory(&self) -> (BTreeSet<GroupKind>, BTreeSet<String>) {
        let annotation = |name: &str| {
            self.annotations
                .get(name)
                .map(String::as_str)
                .unwrap_or_default()
        };
        (
            applyset::read_group_kinds(annotation(names::ANNOTATION_APPLYSET_GROUP_KINDS)),
            applyset::read_namespaces(annotation(names::ANNOTATION_APPLYSET_NAMESPACES)),
        )
    }

    async fn write_inventory(
        &mut self,
        kinds: BTreeSet<GroupKind>,
        namespaces: BTreeSet<String>,
    ) -> Result<(), Trouble> {
        let wanted = [
            (
                names::ANNOTATION_APPLYSET_GROUP_KINDS,
                applyset::write_group_kinds(&kinds),
            ),
            (
                names::ANNOTATION_APPLYSET_NAMESPACES,
                applyset::write_namespaces(&namespaces),
            ),
            (
                names::ANNOTATION_APPLYSET_TOOLING,
                format!("{}/v{}", names::FIELD_MANAGER, env!("CARGO_PKG_VERSION")),
            ),
        ];
        let labelled = self.object.labels().get(names::LABEL_APPLYSET_ID) == Some(&self.applyset);
        let written = wanted
            .iter()
            .all(|(name, text)| self.annotations.get(*name) == Some(text));
        if written && labelled {
            return Ok(());
        }
        let annotations: HashMap<&str, &str> = wanted
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        let metadata = json!({
            "uid": self.object.metadata.uid,
            "labels": { names::LABEL_APPLYSET_ID: self.applyset },
            "annotations": annotations,
        });
        bundle::patch_metadata(self.room, &self.room.deployments, &self.name, metadata)
            .await
            .map_err(|error| {
                Trouble::api(
                    "record what will be installed",
                    self.install_reason(),
                    &error,
                )
            })?;
        for (name, text) in wanted {
            self.annotations.insert(name.to_owned(), text);
        }
        Ok(())
    }

    /// Opens the watches for `items`. Kinds that the content itself brings can be watched once they are served: `all` says that they are.
    /// Says whether everything is watched.
    async fn watch(
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
            let is_served = !item.custom || all || {
                let resource = &item.kind.resource;
                match served.get(&item.kind) {
                    Some(is_served) => *is_served,
                    None => {
                        let found = self
                            .room
                            .apis
                            .find(&resource.group, &resource.version, &resource.kind)
                            .await
                            .map_err(failed)?;
                        served.insert(item.kind.clone(), found.is_some());
                        found.is_some()
                    }
                }
            };
            if is_served {
                watched.push(item);
            }
        }
        let complete = watched.len() == items.len();
        let subjects = self
            .room
            .scopes
            .subjects(placing.client, placing.account, watched)
            .await
            .map_err(failed)?;
        self.room
            .watches
            .keep(&self.name, &subjects, placing.client)
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

    /// Whether what the watches have listed is just what the status says that our last apply left.
    fn is_as_left(&self, items: &[Item], placing: &Placing<'_>) -> bool {
        let Some(installed) = &self.status.installed else {
            return false;
        };
        let same_spec = self.old.observed_generation == self.object.metadata.generation;
        if !same_spec || !self.is_installed(placing) {
            return false;
        }
        let seen = self.room.watches.seen_of(&self.name);
        let Some(left) = keep::as_left(items, &seen) else {
            return false;
        };
        books::digest_of(&left)
            .is_some_and(|digest| installed.fields_digest.as_deref() == Some(digest.as_str()))
    }

    async fn apply(
        &mut self,
        placing: &Placing<'_>,
        items: &[Item],
        watched: bool,
    ) -> Result<HashMap<String, Left>, Trouble> {
        let name = self.name.clone();
        let ignore = self.spec.drift_ignore.clone();
        let install = Install {
            client: placing.client,
            deployment: &name,
            reason: placing.reason,
            adopt: self.spec.adopt,
            ignore: &ignore,
        };
        let seen = self.room.watches.seen_of(&name);
        install.collisions(items, &seen).await?;
        self.room.books.begin(&name);
        let mut done = Done::default();
        let mut watched = watched;
        let mut phases = std::collections::BTreeMap::<Phase, Vec<&Item>>::new();
        for item in items {
            phases.entry(item.phase).or_default().push(item);
        }
        for (phase, items_of_phase) in phases {
            if phase > Phase::Crds && !watched {
                self.watch(placing, items, true).await?;
                watched = true;
            }
            install.phase(&items_of_phase, &mut done).await?;
        }
        if !watched {
            self.watch(placing, items, true).await?;
        }
        self.warnings.extend(done.warnings);
        Ok(done.left)
    }

    /// Removes what the content does not have any more, and shrinks what is recorded to what is there.
    async fn prune(&mut self, placing: &Placing<'_>, items: &[Item]) -> Result<(), Trouble> {
        let (kinds, namespaces) = self.inventory();
        let name = self.name.clone();
        let remover = Remover {
            apis: &self.room.apis,
            scopes: &self.room.scopes,
            client: placing.client,
            account: placing.account,
            deployment: &name,
            reason: placing.reason,
        };
        let present = remover.present(&kinds, &namespaces).await?;
        let unwanted: BTreeSet<String> = inventory::to_prune(
            present.iter().map(|present| &present.id),
            items.iter().map(|item| &item.id),
        )
        .into_iter()
        .map(ToString::to_string)
        .collect();
        let mut going: Vec<_> = present
            .into_iter()
            .filter(|present| unwanted.contains(&present.id.to_string()))
            .collect();
        let mut left_kinds = kinds_of(items);
        let left_namespaces = namespaces_of(items);
        let kept = remover.in_use(&going).await?;
        for kept in kept {
            self.warnings.insert(format!(
                "{} is no longer part of the content and stays: {}",
                kept.id, kept.why
            ));
            left_kinds.insert(GroupKind::new(&kept.id.group, &kept.id.kind));
            going.retain(|present| present.id != kept.id);
        }
        let mut rest = going;
        while !rest.is_empty() {
            let step: Vec<_> = remove::next_step(&rest).into_iter().cloned().collect();
            remover.delete(&step).await?;
            rest.retain(|present| !step.iter().any(|gone| gone.id == present.id));
            for gone in &step {
                tracing::info!(deployment = name, object = %gone.id, "pruned");
            }
        }
        self.write_inventory(left_kinds, left_namespaces).await
    }

    /// What the status says after success.
    fn record(&mut self, placing: &Placing<'_>, items: &[Item], fields: Option<Digest>) {
        let content = placing.child.status.content.as_ref();
        let version = content.and_then(|content| content.version.clone());
        let approved_by = self.approved_by.clone();
        self.status.installed = Some(Installed {
            digest: placing.digest().to_owned(),
            version: version.clone(),
            objects: Some(items.len() as u64),
            installed_as: Some(ServiceAccountName {
                namespace: placing.account.namespace.clone(),
                name: placing.account.name.clone(),
            }),
            requested_by: Some(self.requester.user.clone()),
            approved_by,
            fields_digest: fields.map(|digest| digest.to_string()),
        });
        self.status.active_bundle = Some(placing.child.name.clone());
        self.add_revision(&placing.child.name, placing.digest(), version.as_deref());
    }
}

fn kinds_of(items: &[Item]) -> BTreeSet<GroupKind> {
    items
        .iter()
        .map(|item| GroupKind::new(&item.id.group, &item.id.kind))
        .collect()
}

fn namespaces_of(items: &[Item]) -> BTreeSet<String> {
    items
        .iter()
        .filter_map(|item| item.id.namespace.clone())
        .collect()
}
