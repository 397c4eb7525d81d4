//! State after a rejected refresh, as in the client workflow of TUF (5.3 to 5.6): the client keeps
//! new roots. The client also keeps the lowest accepted versions of other metadata.

use e2e::Output;
use serde_json::{Value, json};

use super::{PAST, Scene};

/// Returns a scene whose cache has version 5 of all metadata.
async fn scene_at_version_five() -> Scene {
    let mut scene = Scene::new().await;
    scene.offer(|state| versions(state, 5, 5));
    scene.init().await.success().unwrap();
    scene
}

/// Sets the version of timestamp and snapshot to `version`, and the version of targets to
/// `targets`. Each role is signed with its own keys.
fn versions(state: &mut Value, version: u64, targets: u64) {
    for (role, version) in [
        ("timestamp", version),
        ("snapshot", version),
        ("targets", targets),
    ] {
        state[role]["version"] = json!(version);
        state[role]["signers"] = state[role]["keys"].clone();
        state[role]["expires"] = json!("2090-01-01T00:00:00Z");
    }
}

impl Scene {
    fn offer(&mut self, change: impl FnOnce(&mut Value)) {
        self.repository.rewrite(change).unwrap();
    }

    async fn update(&self) -> Output {
        self.run_plugin("trust update -o json").await
    }

    async fn refuses(&self, why: &str) {
        let refused = self.update().await.failure(3).unwrap();
        assert!(refused.contains(why), "{why}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_a_rejected_refresh_are_kept() {
    let mut scene = scene_at_version_five().await;
    // The timestamp is valid, and the snapshot is not.
    scene.offer(|state| {
        versions(state, 7, 7);
        state["snapshot"]["signers"] = json!(["eve"]);
    });
    scene.refuses("0/1 valid signatures").await;
    // Metadata that is older than this timestamp is now rejected as a rollback, although no refresh
    // with this timestamp was complete.
    for version in [5, 6] {
        scene.offer(|state| versions(state, version, version));
        let why = format!("has version {version}, older than the trusted version 7");
        scene.refuses(&why).await;
    }
    // The client also rejects, as a rollback, targets that are older than the targets of the last
    // complete refresh.
    scene.offer(|state| versions(state, 8, 4));
    scene.refuses("targets.json").await;
    // Timestamp and snapshot are valid, and the targets are not.
    scene.offer(|state| {
        versions(state, 9, 9);
        state["targets"]["signers"] = json!(["eve"]);
    });
    scene.refuses("0/1 valid signatures").await;
    // A further timestamp with an invalid snapshot does not change the lowest accepted versions.
    scene.offer(|state| {
        versions(state, 10, 9);
        state["snapshot"]["signers"] = json!(["eve"]);
    });
    scene.refuses("0/1 valid signatures").await;
    scene.offer(|state| versions(state, 11, 8));
    scene
        .refuses("has version 8, older than the trusted version 9")
        .await;
    // Meanwhile the last complete metadata is used offline, and newer metadata is accepted.
    let offline = scene.run_plugin("trust show --offline -o json").await;
    offline.success().unwrap();
    scene.offer(|state| versions(state, 12, 12));
    scene.update().await.success().unwrap();
    scene.offer(|state| versions(state, 11, 11));
    scene.refuses("older than the trusted version 12").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_root_is_kept_if_its_metadata_is_rejected() {
    let mut scene = scene_at_version_five().await;
    scene.offer(|state| {
        state["root"]["version"] = json!(2);
        state["timestamp"]["keys"] = json!(["second"]);
        versions(state, 6, 6);
        state["timestamp"]["expires"] = json!(PAST);
    });
    scene.refuses("expired on").await;
    // A mirror hides the second root and serves metadata that is signed with the withdrawn key.
    fs_err::remove_file(scene.repository.root().with_file_name("2.root.json")).unwrap();
    scene.offer(|state| {
        state["root"]["version"] = json!(1);
        state["timestamp"]["keys"] = json!(["timestamp"]);
        versions(state, 6, 6);
    });
    scene.refuses("0/1 valid signatures").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn root_with_new_keys_recovers_from_fast_forward() {
    for rotated in ["timestamp", "snapshot"] {
        let mut scene = scene_at_version_five().await;
        // The attacker with the stolen keys has raised the versions, once in a rejected refresh and
        // once in an accepted refresh.
        scene.offer(|state| {
            versions(state, 1_000, 1_000);
            state["targets"]["signers"] = json!(["eve"]);
        });
        scene.refuses("0/1 valid signatures").await;
        scene.offer(|state| versions(state, 2_000, 6));
        scene.refuses("targets.json").await;
        scene.offer(|state| versions(state, 6, 6));
        scene.refuses("older than the trusted version 2000").await;
        scene.offer(|state| {
            state["root"]["version"] = json!(2);
            state[rotated]["keys"] = json!(["second"]);
            versions(state, 6, 6);
        });
        let updated = scene.update().await.success().unwrap();
        assert!(updated.contains("\"version\": 2"), "{rotated}: {updated}");
    }
}
