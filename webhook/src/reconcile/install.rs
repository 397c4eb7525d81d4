//! From prepared objects to objects on the cluster: collisions first, then phase by phase.
//! Not here: whether it may be done at all (authorize, approve), or what is removed afterwards (prune).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bundle_core::diagnostic::codes;
use bundle_core::plan::drift::Entry;
use bundle_core::plan::health::{Health, health};
use bundle_core::plan::ignore::{self, Rule};
use bundle_core::plan::inventory::{Claim, Inventory};
use bundle_core::plan::phases::Phase;
use kube::Client;
use kube::api::DynamicObject;
use serde_json::Value;

use super::books::Left;
use super::inventory::Inventories;
use super::items::Item;
use super::object::{self, Applied, Seen, Target};
use super::requester_check::RequesterCheck;
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
    /// Uid of the BundleDeployment.
    pub(super) uid: &'a str,
    /// What it has.
    pub(super) inventory: Arc<Inventory>,
    /// What others have.
    pub(super) inventories: &'a Inventories,
    /// The reason of the condition if something goes wrong.
    pub(super) reason: &'static str,
    /// Whether objects that belong to nobody are taken over.
    pub(super) adopt: bool,
    /// Fields that are left to others.
    pub(super) ignore: &'a [Rule],
    /// Checks what could not be checked before earlier phases; none where the class does not ask for it.
    pub(super) check: Option<&'a RequesterCheck<'a>>,
}

/// What has been applied so far.
#[derive(Default)]
pub(super) struct Done {
    pub(super) left: HashMap<String, Left>,
    /// The uid of each object, as the API server answered.
    pub(super) uids: BTreeMap<String, String>,
    pub(super) warnings: BTreeSet<String>,
}

/// Which object each item is applied to, by key.
pub(super) type Targets = HashMap<String, Target>;

/// Why one object was not applied.
#[derive(Debug)]
pub(super) enum ApplyError {
    Api(kube::Error),
    /// Between the look at it and the apply somebody deleted it, or created another one. The next look says what there is to say.
    Moved,
}

impl ApplyError {
    fn is_passing(&self) -> bool {
        match self {
            Self::Api(error) => object::is_passing(error) || object::is_not_found(error),
            Self::Moved => true,
        }
    }

    fn told(&self) -> String {
        match self {
            Self::Api(error) => object::told(error),
            Self::Moved => "somebody deleted or created it at the same time".to_owned(),
        }
    }
}

impl Install<'_> {
    /// Says to which object each item will be applied, or names every object that exists and is not ours. `seen` are those that our watches know.
    pub(super) async fn targets(
        &self,
        items: &[&Item],
        seen: &BTreeMap<String, Seen>,
    ) -> Result<Targets, Trouble> {
        let (namespaces, others): (Vec<&Item>, Vec<&Item>) = items
            .iter()
            .copied()
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
        let mut foreign = BTreeMap::new();
        let mut replaced = HashSet::new();
        for (key, seen) in &exist {
            match self.inventory.claim(key, seen.live()) {
                Claim::Ours => continue,
                Claim::Replaced => {
                    replaced.insert(key.as_str());
                }
                Claim::Unrecorded => {}
            }
            foreign.insert(key.clone(), seen.uid.clone());
        }
        self.may_adopt(&foreign, &replaced).await?;
        Ok(items
            .iter()
            .map(|item| {
                let live = seen.get(&item.key).or_else(|| exist.get(&item.key));
                let target = live.map_or(Target::Absent, |seen| Target::Uid(seen.uid.clone()));
                (item.key.clone(), target)
            })
            .collect())
    }

    /// Whether objects that are not recorded may be taken over: never those that another inventory has, and others only where that is asked for.
    async fn may_adopt(
        &self,
        foreign: &BTreeMap<String, String>,
        replaced: &HashSet<&str>,
    ) -> Result<(), Trouble> {
        if foreign.is_empty() {
            return Ok(());
        }
        let owners = self.inventories.owners(foreign, self.uid).await;
        let owners = owners.map_err(|error| Trouble::inventory(self.reason, &error))?;
        let mut of_others = Vec::new();
        let mut of_nobody = Vec::new();
        for key in foreign.keys() {
            match owners.get(key) {
                Some(owner) => of_others.push(format!("{key} belongs to BundleDeployment {owner}")),
                None if self.adopt => {}
                None if replaced.contains(key.as_str()) => of_nobody.push(format!(
                    "{key} was deleted and made anew by somebody else, and is not taken over"
                )),
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

    /// Those of `items` that exist, by key.
    pub(super) async fn look_at(
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
    pub(super) async fn phase(
        &self,
        items: &[&Item],
        targets: &Targets,
        done: &mut Done,
    ) -> Result<(), Trouble> {
        if let Some(check) = self.check {
            check.before_phase(items).await?;
        }
        let applied: Vec<_> = super::parallel::all(items.iter().map(|item| async move {
            let target = targets.get(&item.key).unwrap_or(&Target::Absent);
            (*item, self.apply(item, target).await)
        }))
        .await;
        let mut failed = Vec::new();
        let mut passing = true;
        for (item, result) in applied {
            match result {
                Ok(applied) => {
                    done.warnings.extend(applied.warnings);
                    done.left.insert(item.key.clone(), left(&applied.seen));
                    done.uids.insert(item.key.clone(), applied.seen.uid);
                }
                Err(error) => {
                    passing &= error.is_passing();
                    failed.push(format!("{}: {}", item.key, error.told()));
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
    async fn apply(&self, item: &Item, target: &Target) -> Result<Applied, ApplyError> {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(50);
        let mut target = target.clone();
        loop {
            let error = match self.apply_once(item, &target, false).await {
                // It was to be created, and somebody else has done so since we looked.
                Ok(applied) if target == Target::Absent && !applied.created => {
                    return Err(ApplyError::Moved);
                }
                Ok(applied) => return Ok(applied),
                Err(error) => error,
            };
            let may_change =
                object::is_passing(&error) || (item.custom && object::is_not_found(&error));
            let conflict = object::is_conflict(&error);
            if !(may_change || conflict) || begun.elapsed() > TRIES {
                return Err(ApplyError::Api(error));
            }
            // The answer to a request that did its work may be lost, and a conflict may be about whose object it is.
            if (conflict || target == Target::Absent)
                && let Ok(now) = object::look(self.client, &item.kind, &item.id).await
            {
                target = match (target, now) {
                    (Target::Uid(_), None) => return Err(ApplyError::Moved),
                    (Target::Uid(uid), Some(now)) if now.uid != uid => {
                        return Err(ApplyError::Moved);
                    }
                    (Target::Absent, Some(now)) => {
                        if self.inventory.claim(&item.key, now.live()) != Claim::Ours {
                            return Err(ApplyError::Moved);
                        }
                        Target::Uid(now.uid)
                    }
                    _ if !may_change => return Err(ApplyError::Api(error)),
                    (target, _) => target,
                };
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Applies once more the object with this uid, which is ours: nothing changes where everything is as it was. With `dry_run` nothing changes in any case.
    pub(super) async fn verify(
        &self,
        item: &Item,
        uid: &str,
        dry_run: bool,
    ) -> Result<Applied, kube::Error> {
        self.apply_once(item, &Target::Uid(uid.to_owned()), dry_run)
            .await
    }

    async fn apply_once(
        &self,
        item: &Item,
        target: &Target,
        dry_run: bool,
    ) -> Result<Applied, kube::Error> {
        let value = value_to_apply(self.client, self.ignore, item).await?;
        let how = (target, dry_run);
        object::apply(self.client, &item.kind, &item.id, &value, how).await
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

/// What is sent of an object: all of it, but for the fields that are left to others.
pub(super) async fn value_to_apply<'i>(
    client: &Client,
    ignore: &[Rule],
    item: &'i Item,
) -> Result<Cow<'i, Value>, kube::Error> {
    let rules: Vec<&Rule> = ignore.iter().filter(|rule| rule.fits(&item.id)).collect();
    if rules.is_empty() {
        return Ok(Cow::Borrowed(&item.value));
    }
    // Only what others were given has to be read first.
    let namespace = item.id.namespace.as_deref();
    let live = object::read(client, &item.kind, namespace, &item.id.name).await?;
    let mut value = item.value.clone();
    if let Some(live) = live {
        leave_to_others(&mut value, &live, &rules);
    }
    Ok(Cow::Owned(value))
}

/// What an apply left, for the books.
pub(super) fn left(seen: &Seen) -> Left {
    Left {
        state: Some(seen.state),
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
        .filter_map(object::entry)
        .collect();
    let Ok(live) = serde_json::to_value(live) else {
        return;
    };
    ignore::leave(value, &live, &entries, rules);
}

#[cfg(test)]
mod tests {
    use bundle_core::object::ObjectId;
    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::super::apis::Kind;
    use super::*;

    fn item() -> Item {
        let id = ObjectId {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: Some("team-a".to_owned()),
            name: "web".to_owned(),
        };
        Item {
            key: id.to_string(),
            kind: Kind {
                resource: kube::core::discovery::ApiResource {
                    group: String::new(),
                    version: "v1".to_owned(),
                    api_version: "v1".to_owned(),
                    kind: "ConfigMap".to_owned(),
                    plural: "configmaps".to_owned(),
                },
                namespaced: true,
            },
            phase: Phase::Configuration,
            value: json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "web" } }),
            custom: false,
            id,
        }
    }

    /// Applies to `target` on a server that answers in this order; returns the requests, too.
    async fn applied(
        target: Target,
        answers: Vec<(u16, Value)>,
    ) -> (Result<Applied, ApplyError>, Vec<(Method, String, String)>) {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let client = Client::new(service, "default");
        let answering = tokio::spawn(async move {
            let mut requests = Vec::new();
            for (status, body) in answers {
                let (request, reply) = server.next_request().await.unwrap();
                let (parts, sent) = request.into_parts();
                let sent = sent.collect_bytes().await.unwrap();
                let query = parts.uri.query().unwrap_or_default().to_owned();
                let sent = String::from_utf8_lossy(&sent).into_owned();
                requests.push((parts.method, query, sent));
                let mut response = Response::new(Body::from(body.to_string().into_bytes()));
                *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
                reply.send_response(response);
            }
            requests
        });
        let inventories = Inventories::new(client.clone(), "state");
        let install = Install {
            client: &client,
            uid: "deployment",
            inventory: Arc::new(Inventory::new("web")),
            inventories: &inventories,
            reason: "InstallFailed",
            adopt: false,
            ignore: &[],
            check: None,
        };
        let result = install.apply(&item(), &target).await;
        (result, answering.await.unwrap())
    }

    fn object(uid: &str) -> Value {
        json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": { "name": "web", "namespace": "team-a", "uid": uid, "resourceVersion": "5" } })
    }

    fn failure(code: u16) -> Value {
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": "x", "message": "m" })
    }

    #[tokio::test]
    async fn an_object_that_should_not_exist_is_created_without_force_and_never_taken_over() {
        let (created, requests) = applied(Target::Absent, vec![(201, object("new"))]).await;
        assert_eq!(created.unwrap().seen.uid, "new");
        assert!(!requests[0].1.contains("force=true"), "{requests:?}");
        assert!(!requests[0].2.contains("uid"), "{requests:?}");
        // Somebody created it after we had looked: with values that do not conflict, and with others.
        let (taken, _) = applied(Target::Absent, vec![(200, object("theirs"))]).await;
        assert!(matches!(taken, Err(ApplyError::Moved)));
        let answers = vec![(409, failure(409)), (200, object("theirs"))];
        let (taken, _) = applied(Target::Absent, answers).await;
        assert!(matches!(taken, Err(ApplyError::Moved)));
    }

    #[tokio::test]
    async fn a_known_object_is_applied_with_force_under_its_uid_and_no_other_in_its_place() {
        let target = || Target::Uid("ours".to_owned());
        let (done, requests) = applied(target(), vec![(200, object("ours"))]).await;
        assert_eq!(done.unwrap().seen.uid, "ours");
        assert!(requests[0].1.contains("force=true"), "{requests:?}");
        assert!(requests[0].2.contains(r#""uid":"ours""#), "{requests:?}");
        for code in [409, 422] {
            let answers = vec![(code, failure(code)), (200, object("theirs"))];
            let (replaced, _) = applied(target(), answers).await;
            assert!(matches!(replaced, Err(ApplyError::Moved)), "{code}");
            let answers = vec![(code, failure(code)), (404, failure(404))];
            let (gone, _) = applied(target(), answers).await;
            assert!(matches!(gone, Err(ApplyError::Moved)), "{code}");
        }
        // A refusal of the object itself is told in the server's words.
        let answers = vec![(422, failure(422)), (200, object("ours"))];
        let (refused, _) = applied(target(), answers).await;
        assert!(matches!(refused, Err(ApplyError::Api(_))));
    }
}
