//! Keeping what is installed: drifted objects applied again, health looked at where something moved.
//! Not here: seeing drift (watch, books), or installing (place).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bundle_core::plan::applyset::GroupKind;
use bundle_core::plan::drift;
use bundle_core::plan::health::{Health, health};
use bundle_core::plan::phases::Phase;
use kube::Client;

use super::install::{self, Done, Install};
use super::items::Item;
use super::object;
use super::room::Room;
use super::trouble::Trouble;

/// How often in a row objects are restored at once; after that a fight with somebody else is slowed down.
const AT_ONCE: u32 = 10;
/// The longest pause in such a fight.
const SLOWEST: Duration = Duration::from_secs(30);

/// Applies again what has drifted, in the order of installation. Says what was restored.
pub(super) async fn heal(
    room: &Room,
    install: &Install<'_>,
    items: &[Item],
) -> Result<Vec<String>, Trouble> {
    let drifted = room.books.drifted(install.deployment);
    let mut by_phase = BTreeMap::<Phase, Vec<&Item>>::new();
    for item in items.iter().filter(|item| drifted.contains_key(&item.key)) {
        if !room.books.is_told_by_fields(install.deployment, &item.key)
            && covered(install.client, item).await
        {
            room.books.settled(install.deployment, &item.key);
            continue;
        }
        by_phase.entry(item.phase).or_default().push(item);
    }
    let mut restored = Vec::new();
    for items in by_phase.values() {
        let mut done = Done::default();
        let result = install.phase(items, &mut done).await;
        for (key, left) in done.left {
            room.books.healed(install.deployment, &key, left);
            restored.push(key);
        }
        result?;
    }
    restored.sort();
    room.shared.metrics.drift_corrected(restored.len() as u64);
    Ok(restored)
}

/// How long to wait before healing, if somebody keeps changing the objects back.
pub(super) fn pause(room: &Room, deployment: &str) -> Duration {
    let times = room.books.count_healing(deployment, Instant::now());
    if times <= AT_ONCE {
        return Duration::ZERO;
    }
    Duration::from_millis(100)
        .saturating_mul(1_u32 << (times - AT_ONCE).min(10))
        .min(SLOWEST)
}

/// Whether an object without managed fields still has everything that we applied.
async fn covered(client: &Client, item: &Item) -> bool {
    let namespace = item.id.namespace.as_deref();
    match object::read(client, &item.kind, namespace, &item.id.name).await {
        Ok(Some(live)) => {
            serde_json::to_value(&live).is_ok_and(|live| drift::covers(&live, &item.value))
        }
        _ => false,
    }
}

/// The items that are not there, or lack something that we apply: found by reading each of them, where hashes do not tell.
pub(super) async fn changed(
    client: &Client,
    items: &[Item],
    seen: &BTreeMap<String, object::Seen>,
) -> BTreeSet<String> {
    let looked = super::parallel::all(items.iter().map(|item| async move {
        let same = seen.contains_key(&item.key) && covered(client, item).await;
        (!same).then(|| item.key.clone())
    }))
    .await;
    looked.into_iter().flatten().collect()
}

/// Looks at each object that moved, and records how it is. Says whether one could not be read and has to be looked at again.
pub(super) async fn look(room: &Room, client: &Client, deployment: &str) -> bool {
    let mut again = false;
    let touched = room.books.take_touched(deployment);
    let looked: Vec<_> = super::parallel::all(touched.into_iter().map(|key| async move {
        let health = health_of(room, client, &key).await;
        (key, health)
    }))
    .await;
    for (key, health) in looked {
        let why = match health {
            Ok(Health::Ready) => None,
            Ok(Health::Waiting(why) | Health::Failed(why)) => Some(why),
            Err(error) => {
                again = true;
                room.books.touch(deployment, &key);
                Some(format!("cannot be read: {}", object::told(&error)))
            }
        };
        room.books.tell_health(deployment, &key, why);
    }
    again
}

async fn health_of(room: &Room, client: &Client, key: &str) -> Result<Health, kube::Error> {
    let Some((group_kind, namespace, name)) = parts(key) else {
        return Ok(Health::Ready);
    };
    let Some(kind) = room.apis.preferred(&group_kind).await? else {
        return Ok(Health::Waiting("its kind is gone".to_owned()));
    };
    Ok(match object::read(client, &kind, namespace, name).await? {
        Some(live) => {
            let value = serde_json::to_value(&live).map_err(kube::Error::SerdeError)?;
            health(&group_kind.group, &group_kind.kind, &value)
        }
        None => Health::Waiting("is not there".to_owned()),
    })
}

/// Kind, namespace and name in a key: the text of an object id.
fn parts(key: &str) -> Option<(GroupKind, Option<&str>, &str)> {
    let mut parts = key.split('/');
    let kind = GroupKind::parse(parts.next()?);
    let (first, second) = (parts.next()?, parts.next());
    Some(match second {
        Some(name) => (kind, Some(first), name),
        None => (kind, None, first),
    })
}

/// What was seen of `items`, as what our last apply left; none if one of them is not there, not ours or told by no fields.
pub(super) fn as_left(
    items: &[Item],
    seen: &BTreeMap<String, object::Seen>,
) -> Option<std::collections::HashMap<String, super::books::Left>> {
    items
        .iter()
        .map(|item| {
            let seen = seen.get(&item.key)?;
            seen.print?;
            Some((item.key.clone(), install::left(seen)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use bundle_core::object::ObjectId;

    use super::*;

    #[test]
    fn a_key_is_the_text_of_an_id() {
        let id = |group: &str, namespace: Option<&str>| ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: "Thing".to_owned(),
            namespace: namespace.map(str::to_owned),
            name: "x.example.com".to_owned(),
        };
        for id in [
            id("", None),
            id("example.com", None),
            id("example.com", Some("team-a")),
        ] {
            let key = id.to_string();
            let (kind, namespace, name) = parts(&key).unwrap();
            assert_eq!(
                (kind.group.as_str(), kind.kind.as_str(), namespace, name),
                id.identity()
            );
        }
    }
}
