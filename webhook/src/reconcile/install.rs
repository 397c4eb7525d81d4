//! From prepared objects to objects on the cluster: collisions first, then phase by phase.
//! Not here: whether it may be done at all (authorize, approve), or what is removed afterwards (prune).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use bundle_core::diagnostic::codes;
use bundle_core::plan::drift::Entry;
use bundle_core::plan::health::{Health, health};
use bundle_core::plan::ignore::{self, Rule};
use bundle_core::plan::phases::Phase;
use kube::Client;
use kube::api::DynamicObject;
use serde_json::Value;

use super::books::Left;
use super::items::Item;
use super::object::{self, Applied, Seen};
use super::trouble::{self, Retry, Trouble};

/// How many complaints a message holds.
const COMPLAINTS: usize = 20;
/// How long Namespaces and CRDs may take until they are ready.
const GATE: Duration = Duration::from_secs(30);
/// How long one object is tried when the server is busy, or does not serve a kind yet that it has just established.
const TRIES: Duration = Duration::from_secs(5);

/// What all steps of one installation share.
pub(super) struct Install<'a> {
    /// Acts as the installing identity.
    pub(super) client: &'a Client,
    /// Name of the BundleDeployment.
    pub(super) deployment: &'a str,
    /// The reason of the condition if something goes wrong.
    pub(super) reason: &'static str,
    /// Whether objects that belong to nobody are taken over.
    pub(super) adopt: bool,
    /// Fields that are left to others.
    pub(super) ignore: &'a [Rule],
}

/// What has been applied so far.
#[derive(Default)]
pub(super) struct Done {
    pub(super) left: HashMap<String, Left>,
    pub(super) warnings: BTreeSet<String>,
}

impl Install<'_> {
    /// Names every object that exists and is not ours. `seen` are those that our watches know to be ours.
    pub(super) async fn collisions(
        &self,
        items: &[Item],
        seen: &BTreeMap<String, Seen>,
    ) -> Result<(), Trouble> {
        let (namespaces, others): (Vec<&Item>, Vec<&Item>) = items
            .iter()
            .filter(|item| !seen.contains_key(&item.key))
            .partition(|item| item.phase == Phase::Namespaces);
        let found = self.look_at(namespaces.iter().copied()).await?;
        // Nothing exists in a namespace that does not.
        let empty: HashSet<&str> = namespaces
            .iter()
            .filter(|item| !found.contains_key(&item.key))
            .map(|item| item.id.name.as_str())
            .collect();
        let mut exist = found;
        exist.extend(
            self.look_at(others.into_iter().filter(|item| {
                item.id
                    .namespace
                    .as_deref()
                    .is_none_or(|namespace| !empty.contains(namespace))
            }))
            .await?,
        );
        let mut of_others = Vec::new();
        let mut of_nobody = Vec::new();
        for (key, seen) in exist {
            match seen.owner {
                Some(owner) if owner == self.deployment => {}
                Some(owner) => of_others.push(format!("{key} belongs to BundleDeployment {owner}")),
                None if self.adopt => {}
                None => of_nobody.push(format!("{key} exists already and belongs to nobody")),
            }
        }
        let code = match (of_others.is_empty(), of_nobody.is_empty()) {
            (true, true) => return Ok(()),
            (true, false) => codes::install::COLLISION,
            (false, _) => codes::install::OWNED_BY_OTHER,
        };
        of_others.append(&mut of_nobody);
        let hint = if code == codes::install::COLLISION {
            " (remove it, rename it in the content, or set spec.collision: Adopt)"
        } else {
            ""
        };
        let message = format!("{}{hint}", trouble::list(of_others, COMPLAINTS));
        Err(Trouble::new(code, self.reason, message, Retry::Slowly))
    }

    async fn look_at(
        &self,
        items: impl Iterator<Item = &Item> + Send,
    ) -> Result<BTreeMap<String, Seen>, Trouble> {
        let looks: Vec<_> = super::parallel::all(items.map(|item| async move {
            (item, object::look(self.client, &item.kind, &item.id).await)
        }))
        .await;
        let mut found = BTreeMap::new();
        let mut failed = Vec::new();
        let mut passing = true;
        for (item, look) in looks {
            match look {
                Ok(Some(seen)) => {
                    found.insert(item.key.clone(), seen);
                }
                Ok(None) => {}
                Err(error) => {
                    passing &= object::is_passing(&error);
                    failed.push(format!("{}: {}", item.key, object::told(&error)));
                }
            }
        }
        self.complain(failed, passing, codes::install::APPLY_FAILED)?;
        Ok(found)
    }

    /// Applies one phase, and waits for what later phases need.
    pub(super) async fn phase(&self, items: &[&Item], done: &mut Done) -> Result<(), Trouble> {
        let applied: Vec<_> = super::parallel::all(
            items
                .iter()
                .map(|item| async move { (*item, self.apply(item).await) }),
        )
        .await;
        let mut failed = Vec::new();
        let mut passing = true;
        for (item, result) in applied {
            match result {
                Ok(applied) => {
                    done.warnings.extend(applied.warnings);
                    done.left.insert(item.key.clone(), left(&applied.seen));
                }
                Err(error) => {
                    passing &= object::is_passing(&error) || object::is_not_found(&error);
                    failed.push(format!("{}: {}", item.key, object::told(&error)));
                }
            }
        }
        self.complain(failed, passing, codes::install::APPLY_FAILED)?;
        if items.first().is_some_and(|item| item.phase.gates()) {
            self.wait_until_ready(items).await?;
        }
        Ok(())
    }

    fn complain(
        &self,
        failed: Vec<String>,
        passing: bool,
        code: bundle_core::diagnostic::Code,
    ) -> Result<(), Trouble> {
        if failed.is_empty() {
            return Ok(());
        }
        let retry = if passing { Retry::Soon } else { Retry::Slowly };
        Err(Trouble::new(
            code,
            self.reason,
            trouble::list(failed, COMPLAINTS),
            retry,
        ))
    }

    /// Applies one object; again, for a while, where the answer may change by itself.
    pub(super) async fn apply(&self, item: &Item) -> Result<Applied, kube::Error> {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(50);
        loop {
            let error = match self.apply_once(item).await {
                Ok(applied) => return Ok(applied),
                Err(error) => error,
            };
            let may_change =
                object::is_passing(&error) || (item.custom && object::is_not_found(&error));
            if !may_change || begun.elapsed() > TRIES {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    async fn apply_once(&self, item: &Item) -> Result<Applied, kube::Error> {
        let rules: Vec<&Rule> = self
            .ignore
            .iter()
            .filter(|rule| rule.fits(&item.id))
            .collect();
        if rules.is_empty() {
            return object::apply(self.client, &item.kind, &item.id, &item.value).await;
        }
        // Only what others were given has to be read first.
        let namespace = item.id.namespace.as_deref();
        let live = object::read(self.client, &item.kind, namespace, &item.id.name).await?;
        let mut value = item.value.clone();
        if let Some(live) = live {
            leave_to_others(&mut value, &live, &rules);
        }
        object::apply(self.client, &item.kind, &item.id, &value).await
    }

    async fn wait_until_ready(&self, items: &[&Item]) -> Result<(), Trouble> {
        let end = Instant::now() + GATE;
        let mut waiting: Vec<&Item> = items.to_vec();
        let mut pause = Duration::from_millis(20);
        loop {
            let looked: Vec<_> = super::parallel::all(waiting.into_iter().map(|item| async move {
                let namespace = item.id.namespace.as_deref();
                let look = object::read(self.client, &item.kind, namespace, &item.id.name).await;
                (item, look)
            }))
            .await;
            let mut not_ready = Vec::new();
            waiting = Vec::new();
            for (item, look) in looked {
                let why = match look {
                    Ok(Some(live)) => match health_of(item, &live) {
                        Health::Ready => continue,
                        Health::Waiting(why) | Health::Failed(why) => why,
                    },
                    Ok(None) => "is gone again".to_owned(),
                    Err(error) => object::told(&error),
                };
                not_ready.push(format!("{}: {why}", item.key));
                waiting.push(item);
            }
            if waiting.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(Trouble::new(
                    codes::install::NOT_READY,
                    self.reason,
                    trouble::list(not_ready, COMPLAINTS),
                    Retry::Soon,
                ));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }
}

/// What an apply left, for the books.
pub(super) fn left(seen: &Seen) -> Left {
    Left {
        print: seen.print,
        version: seen.version,
    }
}

/// The health of a live object.
pub(super) fn health_of(item: &Item, live: &DynamicObject) -> Health {
    match serde_json::to_value(live) {
        Ok(value) => health(&item.id.group, &item.id.kind, &value),
        Err(error) => Health::Waiting(error.to_string()),
    }
}

fn leave_to_others(value: &mut Value, live: &DynamicObject, rules: &[&Rule]) {
    let entries: Vec<Entry<'_>> = live
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .filter_map(|entry| {
            Some(Entry {
                manager: entry.manager.as_deref()?,
                operation: entry.operation.as_deref().unwrap_or_default(),
                subresource: entry.subresource.as_deref().unwrap_or_default(),
                fields: &entry.fields_v1.as_ref()?.0,
            })
        })
        .collect();
    let Ok(live) = serde_json::to_value(live) else {
        return;
    };
    ignore::leave(value, &live, &entries, rules);
}
